"""The lab as a domain: sixteen kinds of word problems whose truth a program knows."""

from random import Random

from prism_lab import skills
from prism_lab.model import ANSWER, QUESTION, RESULT
from trl_prism.domains.base import Domain, MalformedQuestion, Problem


class Lab(Domain):
    """Word problems in a small language. Its model is in [`prism_lab.model`][], its truth in [`prism_lab.skills`][].

    Args:
        num_held_out (`int`, *optional*, defaults to `320`): Held-out problems, equally many of every skill.
        held_out_seed (`int`, *optional*, defaults to `1`): Another seed draws other held-out problems.
        num_reference (`int`, *optional*, defaults to `1600`): Questions of the reference corpus.
    """

    num_kinds = len(skills.SKILLS)
    knows_truth = True

    def __init__(self, num_held_out: int = 320, held_out_seed: int = 1, num_reference: int = 1600):
        self.num_held_out = num_held_out
        self.held_out_seed = held_out_seed
        self.num_reference = num_reference

    def questioner_prompt(self) -> str:
        return QUESTION

    def solver_prompt(self, question: str) -> str:
        return f"{question} {ANSWER}"

    def parse_question(self, completion: str) -> str:
        """All of the completion is the question: words of the language and at least one number."""
        question = " ".join(completion.split())
        if not question:
            raise MalformedQuestion("empty question")
        for mark in (QUESTION, ANSWER, RESULT, "=", ";"):
            if mark in question.split():
                raise MalformedQuestion("holds its own answer" if mark in (ANSWER, RESULT, "=") else f"holds {mark}")
        if not any(word.isdigit() for word in question.split()):
            raise MalformedQuestion("holds no number")
        return question

    def extract_answer(self, completion: str) -> str | None:
        """The number after the last result mark."""
        _, mark, tail = completion.rpartition(RESULT)
        words = tail.split()
        return words[0] if mark and words and words[0].isdigit() else None

    def reference_questions(self) -> list[str]:
        rng = Random("reference")
        return [skills.ask(rng, _skill(i)).question for i in range(self.num_reference)]

    def held_out_problems(self) -> list[Problem]:
        rng = Random(f"held out {self.held_out_seed}")
        return [_problem(skills.ask(rng, _skill(i), held_out=True)) for i in range(self.num_held_out)]

    def truth(self, question: str) -> Problem | None:
        found = skills.read(question)
        return _problem(found) if found else None


def _skill(i: int) -> skills.Skill:
    return skills.SKILLS[i % len(skills.SKILLS)]


def _problem(found: skills.Problem) -> Problem:
    return Problem(found.question, str(found.answer), found.skill.name)
