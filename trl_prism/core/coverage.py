"""The memory of visits, and measures of how evenly and how widely questions are spread.

Shapes: `n` questions, `K` clusters, `d` dimensions.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trl_prism.core.rewards import rarity
from trl_prism.errors import PrismError


Floats = NDArray[np.float64]

COUNT_UPDATES = ("question", "indicator", "share")


class VisitMemory:
    """How often each cluster was visited, forgetting slowly: `n_k <- gamma n_k + (1 - gamma) x_k` once per batch.

    What `x_k` counts has more than one reading, and they behave very differently:

    - `"question"`: the number of the batch's questions in cluster k (the released code). A batch of 2,048 questions
      weighs 256 times as much as one of 8.
    - `"indicator"`: 1 if the cluster was visited in the batch, else 0 (the paper's text). Nearly inert: a visited
      cluster stays at exactly 1, an unvisited one falls as `gamma^t`.
    - `"share"`: `K` times the share of the batch's questions in cluster k, so that the mean stays 1 whatever the
      batch size (ours).

    Args:
        num_clusters (`int`): `K`, at least 1.
        decay (`float`, *optional*, defaults to `0.99`): `gamma`, in [0, 1).
        update (`str`, *optional*, defaults to `"question"`): `"question"`, `"indicator"` or `"share"`.

    Attributes:
        visits (`numpy.ndarray` of shape `(K,)`): `n`, 1.0 at the start.
        num_updates (`int`): Batches remembered so far; batches without any question do not count.

    Source: Prism, arXiv:2603.13309, the exponential moving average of cluster counts.

    Example:

    ```python
    >>> memory = VisitMemory(2, decay=0.9, update="share")
    >>> memory.update([0, 0, 0, 0])
    >>> memory.visits.round(3).tolist()
    [1.1, 0.9]

    ```
    """

    def __init__(self, num_clusters: int, *, decay: float = 0.99, update: str = "question"):
        if num_clusters < 1:
            raise PrismError(f"`num_clusters` is {num_clusters}; it must be at least 1.")
        if not 0 <= decay < 1:
            raise PrismError(f"`coverage_decay` is {decay}; it must lie in [0, 1), as 0.99.")
        if update not in COUNT_UPDATES:
            raise PrismError(f"`count_update` is {update!r}; it must be one of {', '.join(COUNT_UPDATES)}.")
        self.decay = decay
        self.count_update = update
        self.visits: Floats = np.ones(num_clusters)
        self.num_updates = 0

    @property
    def rarity(self) -> Floats:
        """Rarity of every cluster now, as in [`~trl_prism.core.rewards.rarity`]."""
        return rarity(self.visits)

    def update(self, clusters: ArrayLike) -> None:
        """Remembers one batch: the clusters of its questions, shape `(n,)`. An empty batch changes nothing."""
        counts = count(clusters, num_clusters=len(self.visits))
        if counts.sum() == 0:
            return
        if self.count_update == "indicator":
            counts = np.minimum(counts, 1.0)
        elif self.count_update == "share":
            counts = counts * (len(self.visits) / counts.sum())
        self.visits = self.decay * self.visits + (1 - self.decay) * counts
        self.num_updates += 1

    def state_dict(self) -> dict[str, Any]:
        """Everything that must survive, as JSON can hold it without loss."""
        return {
            "visits": self.visits.tolist(),
            "num_updates": self.num_updates,
            "decay": self.decay,
            "count_update": self.count_update,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from a saved state. Raises [`PrismError`] if it was saved under other settings."""
        mine = {"num_clusters": len(self.visits), "decay": self.decay, "count_update": self.count_update}
        theirs = {
            "num_clusters": len(state["visits"]),
            "decay": state["decay"],
            "count_update": state["count_update"],
        }
        if mine != theirs:
            raise PrismError(f"The saved visits belong to {theirs}, this run has {mine}. Continue with the former.")
        visits = np.asarray(state["visits"], dtype=np.float64)
        if not np.isfinite(visits).all() or (visits < 0).any():
            raise PrismError("The saved visits hold values that are negative or not finite; the file is damaged.")
        self.visits = visits
        self.num_updates = int(state["num_updates"])


def count(clusters: ArrayLike, *, num_clusters: int) -> Floats:
    """How many of the questions lie in each cluster, shape `(K,)`."""
    index = np.asarray(clusters, dtype=np.int64).reshape(-1)
    if index.size and not (index.min() >= 0 and index.max() < num_clusters):
        raise PrismError(f"Cluster numbers run from {index.min()} to {index.max()}, outside 0 to {num_clusters - 1}.")
    return np.bincount(index, minlength=num_clusters).astype(np.float64)


@dataclass(frozen=True)
class Coverage:
    """How questions are spread over clusters.

    Attributes:
        entropy (`float`): Shannon entropy divided by `log K`: 0 if all lie in one cluster, 1 if evenly spread.
        gini (`float`): Gini coefficient of the counts: 0 if evenly spread, `1 - 1/K` if all lie in one cluster.
        active_clusters (`int`): Clusters with at least one question.
        top_share (`float`): Share of questions in the ten fullest clusters.
    """

    entropy: float
    gini: float
    active_clusters: int
    top_share: float


def coverage(counts: ArrayLike, *, top: int = 10) -> Coverage:
    """Measures of spread from the number of questions per cluster, shape `(K,)`.

    Source: the measures of Prism's coverage table (arXiv:2603.13309): active clusters, normalised entropy, Gini,
    top-10 share. Without any question all measures are 0, except Gini, which is then 0 as well.

    Example:

    ```python
    >>> coverage([5, 5, 0, 0])
    Coverage(entropy=0.5, gini=0.5, active_clusters=2, top_share=1.0)

    ```
    """
    n = np.sort(np.asarray(counts, dtype=np.float64))
    total, size = n.sum(), len(n)
    if total == 0:
        return Coverage(0.0, 0.0, 0, 0.0)
    ranks = np.arange(1, size + 1)
    return Coverage(
        entropy=normalised_entropy(n),
        gini=float((2 * ranks - size - 1) @ n / (size * total)),
        active_clusters=int((n > 0).sum()),
        top_share=float(n[-top:].sum() / total),
    )


def normalised_entropy(counts: ArrayLike, *, num_kinds: int | None = None) -> float:
    """Shannon entropy of the counts over `log` of the number of kinds (default: the length of `counts`), in [0, 1]."""
    n = np.asarray(counts, dtype=np.float64)
    size = num_kinds or len(n)
    if n.sum() == 0 or size < 2:
        return 0.0
    p = n[n > 0] / n.sum()
    return float(max(0.0, -(p * np.log(p)).sum() / np.log(size)))


def entropy_of_labels(labels: Iterable[str], *, num_kinds: int) -> float:
    """Normalised entropy of named kinds, out of `num_kinds` that could have occurred.

    Example:

    ```python
    >>> entropy_of_labels(["a", "b"], num_kinds=4)
    0.5

    ```
    """
    _, counts = np.unique(list(labels), return_counts=True)
    return normalised_entropy(counts, num_kinds=num_kinds)


def semantic_diversity(embeddings: ArrayLike) -> float:
    """1 minus the mean cosine over all pairs of different questions: 0 if all mean the same.

    Args:
        embeddings (`array_like` of shape `(n, d)`): L2-normalised rows.

    Returns:
        `float`: in [0, 2]; 0 for fewer than two questions. Linear in `n`: the sum over all pairs is the squared norm
        of the sum.

    Example:

    ```python
    >>> semantic_diversity([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    0.6666666666666667

    ```
    """
    x = np.asarray(embeddings, dtype=np.float64)
    n = len(x)
    if n < 2:
        return 0.0
    total = x.sum(axis=0)
    mean_cosine = (total @ total - np.einsum("nd,nd->", x, x)) / (n * (n - 1))
    return float(1.0 - mean_cosine)
