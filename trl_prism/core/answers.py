"""Votes: what the Solver's answers to one question agree on."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Vote:
    """What several answers to one question say together.

    Attributes:
        answer (`str`, *optional*): The majority answer, as its most frequent spelling; `None` if nobody answered.
        agreement (`float`): Share of *all* votes that equal the majority answer, in [0, 1]. A vote without an answer
            is a disagreement: it counts in the denominator and can never win.
        margin (`float`): Agreement minus the share of the second most frequent answer, in [0, 1].
        entropy (`float`): Shannon entropy, in nats, of the answers that were given.
        frac_unanswered (`float`): Share of votes without an answer.
        counts (`dict[str, int]`): Votes for each different answer, by its most frequent spelling, most votes first.
    """

    answer: str | None
    agreement: float
    margin: float
    entropy: float
    frac_unanswered: float
    counts: dict[str, int] = field(default_factory=dict, compare=False, repr=False)


def vote(answers: Sequence[str | None], equivalent: Callable[[str, str], bool] | None = None) -> Vote:
    """The vote of one question's answers.

    Answers are grouped into the connected components of `equivalent`, over the sorted distinct spellings. So the
    same multiset of answers gives the same vote in every order, although equality checks of mathematics are neither
    symmetric nor transitive. Of equally large groups the one with the first spelling in sorted order wins; a group
    goes by its most frequent spelling, of equals the shortest and then the first in sorted order.

    Args:
        answers (`Sequence[str | None]`): One entry per vote, `None` where the completion holds no answer.
        equivalent (`Callable`, *optional*): Whether two spellings mean the same, asked in both directions; equal
            spellings always do. By default nothing else does.

    Returns:
        [`Vote`]

    Example:

    ```python
    >>> v = vote(["4", "4", "5", None])
    >>> v.answer, v.agreement, v.margin, v.frac_unanswered
    ('4', 0.5, 0.25, 0.25)
    >>> vote([None, None]).answer is None
    True

    ```
    """
    total = len(answers)
    counts: dict[str, int] = {}
    for answer in answers:
        if answer is not None:
            counts[answer] = counts.get(answer, 0) + 1
    if not counts:
        return Vote(None, 0.0, 0.0, 0.0, 1.0 if total else 0.0)

    groups = _components(sorted(counts), equivalent) if equivalent else [[spelling] for spelling in sorted(counts)]
    sizes = [sum(counts[spelling] for spelling in group) for group in groups]
    # Groups come in sorted order of their first spelling, and max() keeps the first of equals.
    winner = max(range(len(groups)), key=sizes.__getitem__)
    runner_up = max((size for i, size in enumerate(sizes) if i != winner), default=0)
    answered = sum(sizes)
    names = [min(group, key=lambda spelling: (-counts[spelling], len(spelling), spelling)) for group in groups]
    return Vote(
        answer=names[winner],
        agreement=sizes[winner] / total,
        margin=(sizes[winner] - runner_up) / total,
        entropy=max(0.0, -sum(size / answered * math.log(size / answered) for size in sizes)),
        frac_unanswered=(total - answered) / total,
        counts={names[i]: sizes[i] for i in sorted(range(len(groups)), key=lambda i: -sizes[i])},
    )


def _components(spellings: Sequence[str], equivalent: Callable[[str, str], bool]) -> list[list[str]]:
    """Connected components of `equivalent` over sorted spellings, each in sorted order."""
    parent = list(range(len(spellings)))

    def root(i: int) -> int:
        while parent[i] != i:
            i = parent[i]
        return i

    for j in range(1, len(spellings)):
        for i in range(j):
            if root(i) != root(j) and (
                equivalent(spellings[i], spellings[j]) or equivalent(spellings[j], spellings[i])
            ):
                parent[max(root(i), root(j))] = min(root(i), root(j))
    groups: dict[int, list[str]] = {}
    for i, spelling in enumerate(spellings):
        groups.setdefault(root(i), []).append(spelling)
    return [groups[key] for key in sorted(groups)]
