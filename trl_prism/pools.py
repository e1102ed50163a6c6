"""How wide a pool of questions is, and how many of its labels are right. Measuring only."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from trl_prism.core.coverage import coverage, entropy_of_labels, semantic_diversity
from trl_prism.core.curriculum import Candidate
from trl_prism.domains.base import Domain


def measure_pool(
    pool: Sequence[Candidate], embeddings: np.ndarray, *, num_clusters: int, domain: Domain, past: np.ndarray
) -> tuple[dict[str, Any], np.ndarray]:
    """How wide the pool's usable questions are spread, and the counts per cluster over all rounds so far.

    Usable is every candidate that is neither malformed nor implausible, whether or not it was kept.

    Args:
        pool (`Sequence[Candidate]`): Candidates with their clusters.
        embeddings (`numpy.ndarray` of shape `(num_usable, d)`): Embeddings of the usable ones, in pool order.
        num_clusters (`int`): `K`.
        domain ([`~trl_prism.domains.base.Domain`]): Names the true kind of a question where it can.
        past (`numpy.ndarray` of shape `(K,)`): Questions per cluster in earlier rounds.
    """
    usable = [candidate for candidate in pool if candidate.usable]
    counts = np.bincount([candidate.cluster for candidate in usable], minlength=num_clusters).astype(float)
    now, cumulative = coverage(counts), coverage(past + counts)
    kinds = None
    if domain.num_kinds is not None:
        truths = [domain.truth(candidate.question) for candidate in usable]
        kinds = entropy_of_labels(
            [truth.kind for truth in truths if truth is not None and truth.kind is not None],
            num_kinds=domain.num_kinds,
        )
    metrics = {
        "coverage/entropy": now.entropy,
        "coverage/gini": now.gini,
        "coverage/active_clusters": now.active_clusters,
        "coverage/top_share": now.top_share,
        "coverage/cumulative_entropy": cumulative.entropy,
        "diversity/semantic": semantic_diversity(embeddings),
        "diversity/skill_entropy": kinds,
    }
    return metrics, past + counts


def label_accuracy(kept: Sequence[Candidate], domain: Domain) -> dict[str, Any]:
    """How many pseudo-labels are right, where the domain knows; a question without an answer has no right label."""
    if not domain.knows_truth:
        return {"labels/accuracy": None, "labels/num_right": None}
    right = 0
    for candidate in kept:
        truth = domain.truth(candidate.question)
        right += (
            truth is not None and candidate.answer is not None and domain.equivalent(truth.answer, candidate.answer)
        )
    return {"labels/accuracy": right / len(kept) if kept else None, "labels/num_right": right}
