"""What a cluster is about: its most typical words, and a question."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


# Enough to know a cluster by; more would cost time on a large pool.
QUESTIONS_PER_CLUSTER = 200
CHARACTERS = 2000


@dataclass(frozen=True)
class Topic:
    """A cluster in words: `words` is empty, and `example` too, where no question lies in it."""

    words: tuple[str, ...]
    example: str

    def __str__(self) -> str:
        return ", ".join(self.words)


def topics(questions: Sequence[str], clusters: np.ndarray, *, num_clusters: int, num_words: int = 3) -> list[Topic]:
    """The words that tell each cluster's questions from the others', by TF-IDF over one document per cluster.

    Args:
        questions (`Sequence[str]`): `n` questions.
        clusters (`numpy.ndarray` of shape `(n,)`): Their clusters, -1 for none.
        num_clusters (`int`): `K`.
        num_words (`int`, *optional*, defaults to 3): Most words of a cluster.

    Returns:
        `list[Topic]`: of length `K`.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    members: list[list[str]] = [[] for _ in range(num_clusters)]
    for question, cluster in zip(questions, clusters, strict=True):
        if 0 <= cluster < num_clusters and len(members[cluster]) < QUESTIONS_PER_CLUSTER:
            members[cluster].append(question[:CHARACTERS])
    documents = ["\n".join(texts) for texts in members]
    found: list[tuple[str, ...]] = [()] * num_clusters
    try:
        vectorizer = TfidfVectorizer(token_pattern=r"(?u)\b[^\W\d_]{3,}\b", stop_words="english", max_features=20_000)
        weights = vectorizer.fit_transform(documents)
    except ValueError:  # no word in any of them
        weights = None
    if weights is not None:
        names = vectorizer.get_feature_names_out()
        for k in range(num_clusters):
            row = weights[k]
            best = row.indices[np.argsort(-row.data, kind="stable")[:num_words]]
            found[k] = tuple(str(names[i])[:20] for i in best)
    return [Topic(found[k], members[k][0] if members[k] else "") for k in range(num_clusters)]
