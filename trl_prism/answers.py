"""Answers to mathematical questions: what a completion answers, when two answers are the same, what several agree on.

A canonical form decides most pairs exactly; [`trl_prism.core.sameness.canonical`][] lists the decisions. What is left
are pairs of formulas. Those that differ at a point are different ([`trl_prism.core.sameness.numeric`][]); the others
go to Math-Verify in processes that can be killed ([`trl_prism.ports.verifier`][]).
"""

from collections.abc import Sequence
from functools import lru_cache

from trl_prism.core.answers import Vote
from trl_prism.core.answers import vote as vote_by
from trl_prism.core.extraction import extract_answer
from trl_prism.core.sameness.canonical import canonical
from trl_prism.core.sameness.forms import Form, same
from trl_prism.core.sameness.numeric import surely_different
from trl_prism.ports.verifier import Verifier, shared_verifier


__all__ = ["Vote", "equivalent", "extract_answer", "vote", "vote_all"]


def equivalent(a: str, b: str, *, verifier: Verifier | None = None) -> bool:
    """Whether two answers are the same. Symmetric; never raises; bounded in time by the verifier's limits.

    Example:

    ```python
    >>> equivalent("0.5", r"\\frac{1}{2}"), equivalent("50\\\\%", "0.5"), equivalent("listen", "silent")
    (True, False, False)

    ```
    """
    used = verifier or shared_verifier()

    # Sets of hard formulas ask for many pairs; together they have the processor time of one.
    seconds = 0.0

    def equal_formulas(x: str, y: str) -> bool:
        nonlocal seconds
        if surely_different(x, y) or seconds >= used.timeout:
            return False
        verdict = used.verdict(x, y)
        seconds += verdict.seconds
        return verdict.equal

    return a == b or same(_canonical(a), _canonical(b), equal_formulas)


def vote(answers: Sequence[str | None], *, verifier: Verifier | None = None) -> Vote:
    """The vote of one question's answers, with [`equivalent`] for sameness; see [`trl_prism.core.answers.vote`][].

    Example:

    ```python
    >>> vote(["0.5", r"\\frac{1}{2}", "3", None])
    Vote(answer='0.5', agreement=0.5, margin=0.25, entropy=0.6365141682948128, frac_unanswered=0.25)

    ```
    """
    return vote_by(answers, lambda a, b: equivalent(a, b, verifier=verifier))


def vote_all(questions: Sequence[Sequence[str | None]], *, verifier: Verifier | None = None) -> list[Vote]:
    """The votes of many questions. Pairs that need Math-Verify are decided first, on all workers at once."""
    used = verifier or shared_verifier()
    pairs: dict[tuple[str, str], None] = {}

    def note(a: str, b: str) -> bool:
        if not surely_different(a, b):
            pairs[min(a, b), max(a, b)] = None
        return False

    for answers in questions:
        vote_by(answers, lambda a, b: same(_canonical(a), _canonical(b), note))
    used.equal_many(list(pairs))
    return [vote(answers, verifier=used) for answers in questions]


@lru_cache(maxsize=200_000)
def _canonical(answer: str) -> Form:
    return canonical(answer)
