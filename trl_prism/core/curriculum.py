"""From a pool of candidate questions to the Solver's curriculum, with the reason for every drop."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trl_prism.core.rewards import check_band, in_band


# The filters in the order in which they are asked. A candidate is dropped by the first that it fails.
FILTERS = (
    "malformed",
    "implausible",
    "duplicate",
    "unanswered",
    "too_easy",
    "too_hard",
    "over_cluster_cap",
    "surplus",
)

# The filters for what is no question at all.
NO_QUESTION = ("malformed", "implausible")


@dataclass(kw_only=True)
class Candidate:
    """One question of the pool, and all that is known of it without truth.

    Attributes:
        question (`str`): The question, or the raw completion where it holds none.
        answer (`str`, *optional*): The majority answer, its pseudo-label.
        agreement, margin, entropy, frac_unanswered (`float`): As in [`~trl_prism.core.answers.Vote`].
        cluster (`int`): Its cluster, -1 where it was never embedded.
        dropped (`str`, *optional*): The filter that dropped it, one of `FILTERS`; `None` if it was kept.
        detail (`str`): For a malformed candidate, what is wrong with it.
        votes (`str`): The different answers and how many votes each had, most votes first, as a JSON object.
    """

    question: str
    answer: str | None = None
    agreement: float = 0.0
    margin: float = 0.0
    entropy: float = 0.0
    frac_unanswered: float = 0.0
    cluster: int = -1
    dropped: str | None = None
    detail: str = ""
    votes: str = ""

    @property
    def usable(self) -> bool:
        """Whether it is a question at all: neither malformed nor implausible, kept or not."""
        return self.dropped not in NO_QUESTION


def curate(
    pool: Iterable[Candidate],
    *,
    band: Sequence[float],
    max_per_cluster: int | None = None,
    max_questions: int | None = None,
) -> list[Candidate]:
    """Marks every candidate that does not belong into the curriculum, and returns those that do, in pool order.

    Candidates that already carry a reason (malformed, implausible, duplicate) keep it. Then fall those that nobody
    answered, those outside of the band of agreement, those beyond the cap of their cluster and those beyond the
    number of questions asked for, the first ones of the pool being kept.

    Args:
        pool (`Iterable[Candidate]`): Candidates with their votes; `dropped` is written in place.
        band (`Sequence[float]`): Closed interval of agreement.
        max_per_cluster (`int`, *optional*): Most questions of one cluster.
        max_questions (`int`, *optional*): Most questions in all.
    """
    low, _ = check_band(band, name="curriculum_band")
    kept: list[Candidate] = []
    per_cluster: dict[int, int] = {}
    for candidate in pool:
        if candidate.dropped is not None:
            continue
        if candidate.answer is None:
            candidate.dropped = "unanswered"
        elif not in_band(candidate.agreement, band):
            candidate.dropped = "too_hard" if candidate.agreement < low else "too_easy"
        elif max_per_cluster is not None and per_cluster.get(candidate.cluster, 0) >= max_per_cluster:
            candidate.dropped = "over_cluster_cap"
        elif max_questions is not None and len(kept) >= max_questions:
            candidate.dropped = "surplus"
        else:
            per_cluster[candidate.cluster] = per_cluster.get(candidate.cluster, 0) + 1
            kept.append(candidate)
    return kept


def mark_duplicates(pool: Iterable[Candidate]) -> None:
    """Drops every question whose words and signs, spaces, case and closing punctuation aside, stood there before.

    A question with other numbers is another question.
    """
    seen: set[str] = set()
    for candidate in pool:
        if candidate.dropped is None:
            key = "".join(candidate.question.split()).casefold().rstrip(".?!:")
            if key in seen:
                candidate.dropped = "duplicate"
            seen.add(key)


def funnel(pool: Iterable[Candidate]) -> dict[str, int]:
    """How many candidates fell at each filter, and how many were kept."""
    counts = dict.fromkeys((*FILTERS, "kept"), 0)
    for candidate in pool:
        counts[candidate.dropped or "kept"] += 1
    return counts
