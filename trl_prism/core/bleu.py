"""R-Zero's in-batch repetition penalty: the share of the batch that lies in a question's own BLEU cluster.

The published code compares all pairs in pure Python. Here the matched n-grams of all pairs come from four sparse
products, and each distinct set of counts is scored once. The result is bit for bit that of nltk and scikit-learn,
which the tests use as the oracle, so that ties at the distance threshold fall the same way.
"""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse


MAX_ORDER = 4
# Chen and Cherry (2014), smoothing method 1: what stands in for a numerator of zero.
_EPSILON = 0.1


def cluster_share(questions: Sequence[str], *, distance_threshold: float = 0.5) -> NDArray[np.float64]:
    """Share of the batch that lies in the BLEU cluster of each question.

    The distance of two questions is 1 - BLEU-4 (whitespace tokens, smoothing method 1) with the earlier one of the
    batch as hypothesis and the later one as reference; clusters come from agglomerative clustering with average
    linkage, cut at `distance_threshold`.

    Args:
        questions (`Sequence[str]`): `n` texts. An empty text, as R-Zero writes for a malformed question, resembles
            nothing, not even another empty one.
        distance_threshold (`float`, *optional*, defaults to `0.5`): Distance from which clusters stay apart.

    Returns:
        `numpy.ndarray` of shape `(n,)`: values in `[1/n, 1]`.

    Source: R-Zero (arXiv:2508.05004), released code of the Questioner's reward.

    Example:

    ```python
    >>> cluster_share(["what is 2 plus 3 ?", "what is 2 plus 3 ?", "name a prime"]).round(2).tolist()
    [0.67, 0.67, 0.33]

    ```
    """
    n = len(questions)
    if n < 2:
        return np.ones(n)
    from sklearn.cluster import AgglomerativeClustering

    clustering = AgglomerativeClustering(
        n_clusters=None, distance_threshold=distance_threshold, metric="precomputed", linkage="average"
    )
    labels = clustering.fit_predict(bleu_distances(questions))
    return np.bincount(labels)[labels] / n


def bleu_distances(questions: Sequence[str]) -> NDArray[np.float64]:
    """Pairwise `1 - BLEU-4`, shape `(n, n)`, symmetric with a zero diagonal.

    BLEU is not symmetric. As in R-Zero's code only the pairs `i < j` are scored, with question `i` as hypothesis and
    `j` as reference, and the value is used in both directions.
    """
    n = len(questions)
    tokens = [question.split() for question in questions]
    # (order, i, j): n-grams that i and j share, each as often as it occurs in both
    matches = np.stack([_shared_ngrams(tokens, order) for order in range(1, MAX_ORDER + 1)])
    lengths = np.array([len(words) for words in tokens], dtype=np.int64)

    rows, columns = np.triu_indices(n, k=1)
    # One row per pair: matches of orders 1 to 4, hypothesis length, reference length. (pairs, 6)
    pairs = np.column_stack([matches[:, rows, columns].T, lengths[rows], lengths[columns]])
    distinct, inverse = _distinct_rows(pairs)
    scores = np.array([_sentence_bleu(*map(int, row)) for row in distinct])

    distances = np.zeros((n, n))
    distances[rows, columns] = distances[columns, rows] = 1 - scores[inverse]
    return distances


def _shared_ngrams(tokens: Sequence[Sequence[str]], order: int) -> NDArray[np.int64]:
    """Clipped n-gram matches of all pairs, shape `(n, n)`.

    `min(a, b)` of two counts is the number of levels `t >= 1` with `a >= t` and `b >= t`. So an n-gram that occurs
    `c` times becomes `c` binary features, and one product of a binary matrix with its transpose counts all matches.
    """
    vocabulary: dict[tuple[tuple[str, ...], int], int] = {}
    rows: list[int] = []
    columns: list[int] = []
    for row, words in enumerate(tokens):
        counts = Counter(tuple(words[i : i + order]) for i in range(len(words) - order + 1))
        for ngram, count in counts.items():
            for level in range(count):
                rows.append(row)
                columns.append(vocabulary.setdefault((ngram, level), len(vocabulary)))
    shape = (len(tokens), max(1, len(vocabulary)))
    binary = sparse.csr_matrix((np.ones(len(rows), dtype=np.int64), (rows, columns)), shape=shape)
    return np.asarray((binary @ binary.T).todense())


def _distinct_rows(rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The distinct rows and, for each row, which of them it is. Packs a row into one integer where it fits."""
    bases = rows.max(axis=0) + 1
    if math.prod(int(base) for base in bases) >= 2**63:
        distinct, inverse = np.unique(rows, axis=0, return_inverse=True)
        return distinct, inverse.reshape(-1)
    packed = np.ravel_multi_index(tuple(rows.T), tuple(bases))
    _, first, inverse = np.unique(packed, return_index=True, return_inverse=True)
    return rows[first], inverse.reshape(-1)


def _sentence_bleu(
    match_1: int, match_2: int, match_3: int, match_4: int, hypothesis_length: int, reference_length: int
) -> float:
    """BLEU-4 of one pair from its counts, in nltk's order of floating-point operations."""
    if match_1 == 0:
        return 0.0
    logs = []
    for order, match in enumerate((match_1, match_2, match_3, match_4), start=1):
        possible = max(1, hypothesis_length - order + 1)
        precision = (match if match else _EPSILON) / possible
        logs.append(0.25 * math.log(precision))
    brevity = 1.0 if hypothesis_length > reference_length else math.exp(1 - reference_length / hypothesis_length)
    return brevity * math.exp(math.fsum(logs))
