"""Mathematics in words: the domain of the full recipe."""

import re
from collections.abc import Sequence
from pathlib import Path

from trl_prism.answers import equivalent, extract_answer, vote_all
from trl_prism.core.answers import Vote
from trl_prism.domains.base import Domain, MalformedQuestion, Problem
from trl_prism.errors import PrismError
from trl_prism.ports.datasets import Row, read_hub
from trl_prism.ports.files import read_jsonl
from trl_prism.ports.texts import Prompt
from trl_prism.ports.verifier import shared_verifier


# Chat: messages for the tokenizer's template.
QUESTIONER_INSTRUCTION = (
    "You write problems for a mathematics competition. Invent one new problem whose answer is a single number or "
    "expression, hard enough that a good student fails it now and then. State it completely, so that it can be solved "
    "without a picture and has one answer only. Write the problem between <question> and </question>, do not solve it."
)
SOLVER_INSTRUCTION = "Reason step by step, and put your final answer within \\boxed{}."

# Plain text: a base model goes on with what it sees, so it is shown two problems and how one is solved.
EXAMPLE_PROBLEMS = (
    "A baker sells 18 rolls in the morning and twice as many in the afternoon. How many rolls does she sell that day?",
    "A train covers 150 kilometres in 2 hours and then 90 kilometres in 1 hour. What is its mean speed in kilometres "
    "per hour?",
)
EXAMPLE_SOLUTIONS = (
    "In the afternoon she sells 2 * 18 = 36 rolls. In all she sells 18 + 36 = 54 rolls. The answer is \\boxed{54}.",
    "It covers 150 + 90 = 240 kilometres in 2 + 1 = 3 hours. So its mean speed is 240 / 3 = 80. The answer is "
    "\\boxed{80}.",
)
QUESTIONER_TEXT = "Problems with numbers for pupils, each with a single number as answer.\n\n" + "".join(
    f"Problem: {problem}\n\n" for problem in EXAMPLE_PROBLEMS
)
SOLVER_TEXT = "".join(
    f"Problem: {problem}\nSolution: {solution}\n\n"
    for problem, solution in zip(EXAMPLE_PROBLEMS, EXAMPLE_SOLUTIONS, strict=True)
)

_QUESTION = re.compile(r"<question>(.*?)</question>", re.DOTALL)
# What a complete question ends with, in plain-text mode: a sentence or a formula.
_ENDS = ".?!:$)]}\"'"
_WORDS = re.compile(r"\w+")
_SOLVED = re.compile(r"\\boxed|\\fbox|\b(solution|answer)\b[\s*_\d]*:|\bthe answer is\b", re.IGNORECASE)


class Maths(Domain):
    r"""Questions between `<question>` tags, answers in `\boxed{}`, sameness by [`trl_prism.answers`][].

    Args:
        reference (`str`, *optional*, defaults to `"EleutherAI/hendrycks_math"`): Reference corpus of the partition: a
            local JSONL file or the Hub id of a data set.
        reference_column (`str`, *optional*, defaults to `"problem"`): Its column with the questions.
        reference_config (`str` or `list[str]`, *optional*): The Hub data set's configurations; several are joined.
        reference_split (`str`, *optional*, defaults to `"train"`): The Hub data set's split.
        reference_revision (`str`, *optional*): The Hub data set's commit; by default the newest.
        max_reference_questions (`int`, *optional*): Only the first so many.
        held_out (`str`, *optional*): Local JSONL file with problems that measure the Solver.
        held_out_columns (`list[str]`, *optional*, defaults to `("problem", "answer")`): Columns of question and
            answer. GSM8K's answers are cut after their `####`.
        max_held_out (`int`, *optional*): Only the first so many.
        prompt_format (`str`, *optional*, defaults to `"chat"`): `"chat"` gives messages for the tokenizer's template,
            `"text"` gives plain text, for base models without one.
        max_question_chars (`int`, *optional*, defaults to `2000`): A longer question is malformed.
    """

    def __init__(
        self,
        reference: str = "EleutherAI/hendrycks_math",
        reference_column: str = "problem",
        reference_config: str | Sequence[str] | None = None,
        reference_split: str = "train",
        reference_revision: str | None = None,
        max_reference_questions: int | None = None,
        held_out: str | None = None,
        held_out_columns: Sequence[str] = ("problem", "answer"),
        max_held_out: int | None = None,
        prompt_format: str = "chat",
        max_question_chars: int = 2000,
    ):
        if prompt_format not in ("chat", "text"):
            raise PrismError(f"`prompt_format` is {prompt_format!r}; it must be 'chat' or 'text'.")
        self.reference = reference
        self.reference_column = reference_column
        self.reference_config = reference_config
        self.reference_split = reference_split
        self.reference_revision = reference_revision
        self.max_reference_questions = max_reference_questions
        self.held_out = held_out
        self.held_out_columns = tuple(held_out_columns)
        self.max_held_out = max_held_out
        self.prompt_format = prompt_format
        self.max_question_chars = max_question_chars
        # A base model does not stop by itself: it goes on with the next problem.
        self.questioner_stop = ("\n\n",) if prompt_format == "text" else ("</question>",)
        self.solver_stop = ("\n\nProblem:",) if prompt_format == "text" else ()
        copied = EXAMPLE_PROBLEMS if prompt_format == "text" else (QUESTIONER_INSTRUCTION,)
        self._prompt_words = [_words(text) for text in copied]

    def questioner_prompt(self) -> Prompt:
        if self.prompt_format == "text":
            return f"{QUESTIONER_TEXT}Problem:"
        return [
            {"role": "system", "content": QUESTIONER_INSTRUCTION},
            {"role": "user", "content": "Write one new problem."},
        ]

    def solver_prompt(self, question: str) -> Prompt:
        if self.prompt_format == "text":
            return f"{SOLVER_TEXT}Problem: {question}\nSolution:"
        return [{"role": "system", "content": SOLVER_INSTRUCTION}, {"role": "user", "content": question}]

    def parse_question(self, completion: str) -> str:
        r"""The text between the last complete pair of tags; in plain-text mode the first paragraph.

        Malformed is a completion without a closed tag (so also one that was cut off), an empty question, one longer
        than `max_question_chars`, a copy of the instruction or of an example, and a question that holds its own
        answer: a `\boxed`, or a solution after it.
        """
        if self.prompt_format == "text":
            question = completion.strip().split("\n\n")[0].strip()
            if question and question[-1] not in _ENDS:
                raise MalformedQuestion("cut off: does not end like a sentence")
        else:
            found = _QUESTION.findall(completion)
            if not found:
                raise MalformedQuestion("no complete <question>...</question>")
            question = found[-1].split("<question>")[-1].strip()
        if len(question) < 8 or not _WORDS.search(question):
            raise MalformedQuestion("empty question, fewer than eight characters")
        if len(question) > self.max_question_chars:
            raise MalformedQuestion(f"{len(question)} characters, more than {self.max_question_chars}")
        if _SOLVED.search(question):
            raise MalformedQuestion("holds its own answer")
        if any(len(_words(question) & words) > 0.6 * len(words) for words in self._prompt_words):
            raise MalformedQuestion("copy of the prompt")
        return question

    def extract_answer(self, completion: str) -> str | None:
        return extract_answer(completion)

    def equivalent(self, a: str, b: str) -> bool:
        return equivalent(a, b)

    def vote_all(self, questions: Sequence[Sequence[str | None]]) -> list[Vote]:
        return vote_all(questions)

    def diagnostics(self) -> dict[str, float]:
        """How many pairs of formulas were refused or failed so far, by cause."""
        return {f"answers/num_{cause}": float(number) for cause, number in sorted(shared_verifier().causes.items())}

    def reference_questions(self) -> list[str]:
        if Path(self.reference).is_file():
            rows: Sequence[Row] = read_jsonl(self.reference)
        else:
            given = self.reference_config
            names = [given] if given is None or isinstance(given, str) else list(given)
            rows, _ = read_hub(self.reference, names, self.reference_split, self.reference_revision)
        if rows and self.reference_column not in rows[0]:
            raise PrismError(
                f"The reference corpus {self.reference!r} has no column {self.reference_column!r}; it has "
                f"{', '.join(rows[0])}. Name it with `reference_column`."
            )
        return [str(row[self.reference_column]) for row in rows[: self.max_reference_questions]]

    def held_out_problems(self) -> list[Problem]:
        if self.held_out is None:
            return []
        question, answer = self.held_out_columns
        rows = read_jsonl(self.held_out)[: self.max_held_out]
        problems = []
        for number, row in enumerate(rows, start=1):
            missing = [column for column in (question, answer) if row.get(column) is None]
            if missing:
                raise PrismError(
                    f"{self.held_out}, row {number}, has no {missing[0]!r}; it has {', '.join(row)}. Name the columns "
                    "with `held_out_columns`."
                )
            kind = str(row["subject"]) if "subject" in row else None
            problems.append(Problem(str(row[question]), str(row[answer]).split("####")[-1].strip(), kind))
        return problems


def _words(text: str) -> frozenset[str]:
    return frozenset(word.casefold() for word in _WORDS.findall(text))
