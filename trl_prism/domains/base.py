"""The interface between the loop and a subject."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from trl_prism.core.answers import Vote, vote
from trl_prism.ports.texts import Prompt


@dataclass(frozen=True)
class Problem:
    """A question whose answer is known. For measuring only: no reward and no curriculum ever sees one.

    Attributes:
        question (`str`): The text that the Solver is asked.
        answer (`str`): The right answer.
        kind (`str`, *optional*): What kind of question it is (a subject, a skill), where that is known.
        level (`str`, *optional*): How hard it is said to be, where that is known.
    """

    question: str
    answer: str
    kind: str | None = None
    level: str | None = None


class MalformedQuestion(Exception):  # noqa: N818 - a result, not a fault
    """What a completion of the Questioner holds instead of a usable question; the message says what is wrong."""


class Domain(ABC):
    """A subject: how the two roles are asked, how their completions are read, when two answers are the same.

    Everything that rewards or labels is here. What only measures (`held_out_problems`, `truth`) may be missing.
    """

    #: Strings that end a completion of a role, beside the model's end-of-sequence token.
    questioner_stop: Sequence[str] = ()
    solver_stop: Sequence[str] = ()
    #: Whether `truth` knows the answer of every question that has one, so that labels can be checked.
    knows_truth: bool = False
    #: Number of kinds that `truth` can name, where it can; the maximum of `diversity/skill_entropy` is its logarithm.
    num_kinds: int | None = None

    @abstractmethod
    def questioner_prompt(self) -> Prompt:
        """The prompt that asks for one question. All of the Questioner's prompts are this one."""

    @abstractmethod
    def solver_prompt(self, question: str) -> Prompt:
        """The prompt that asks for the answer of one question."""

    @abstractmethod
    def parse_question(self, completion: str) -> str:
        """The question in a completion of the Questioner. Raises [`MalformedQuestion`] where there is none."""

    @abstractmethod
    def extract_answer(self, completion: str) -> str | None:
        """The answer in a completion of the Solver, `None` where there is none."""

    def equivalent(self, a: str, b: str) -> bool:
        """Whether two answers mean the same. By default, whether they are spelled the same."""
        return a == b

    def vote_all(self, questions: Sequence[Sequence[str | None]]) -> list[Vote]:
        """The vote of each question's answers, see [`~trl_prism.core.answers.vote`]."""
        return [vote(answers, self.equivalent) for answers in questions]

    def diagnostics(self) -> dict[str, float]:
        """Counts worth a line in the metrics, by name; cumulative."""
        return {}

    @abstractmethod
    def reference_questions(self) -> list[str]:
        """The corpus that the partition is fitted on: questions, no answers."""

    def held_out_problems(self) -> list[Problem]:
        """Problems that measure the Solver after each round; empty where there are none."""
        return []

    def example_question(self) -> str:
        """A question to show or to try something on: a held-out one, or one of the reference corpus."""
        held_out = self.held_out_problems()
        return held_out[0].question if held_out else self.reference_questions()[0]

    def truth(self, question: str) -> Problem | None:
        """The right answer and the kind of a question, where they are known. For measuring only."""
        return None
