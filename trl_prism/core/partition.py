"""The frozen partition of question space into clusters, and the one rule that assigns questions to them."""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trl_prism.errors import PrismError


Floats = NDArray[np.float32]
ROWS_PER_BLOCK = 256
_WEIGHTS, _DESCRIPTION = "centroids.safetensors", "partition.json"


class Partition:
    """K directions in embedding space, fitted once on a reference corpus and frozen.

    A question lies in the cluster whose centroid has the largest cosine with its embedding; of equals the lowest
    number. The fit is k-means on normalised embeddings; each mean is then normalised once, here, so that training,
    balancing and measuring can only ever use the same rule. (The published code assigns with raw means in one place
    and with normalised ones in another.)

    Args:
        centroids (`array_like` of shape `(K, d)`): Rows of any positive length; stored as float32 unit vectors.
        embedder (`str`): Fingerprint of the embedder that made the embeddings. Another one cannot be used with it.
        corpus_hash (`str`, *optional*, defaults to `""`): Fingerprint of the reference corpus.
        seed (`int`, *optional*): Seed of the fit.

    Source: Prism, arXiv:2603.13309: the partition is fitted on MATH's training questions and sees no answers.
    """

    def __init__(self, centroids: ArrayLike, *, embedder: str, corpus_hash: str = "", seed: int | None = None):
        raw = np.asarray(centroids, dtype=np.float64)
        if raw.ndim != 2:
            raise PrismError(f"Centroids have shape {raw.shape}; they must be a matrix of shape (K, d).")
        lengths = np.linalg.norm(raw, axis=1, keepdims=True)
        if not np.isfinite(raw).all() or (lengths == 0).any():
            raise PrismError("A centroid is zero or not finite, so it has no direction. Fit the partition again.")
        self.centroids: Floats = (raw / lengths).astype(np.float32)
        self.embedder = embedder
        self.corpus_hash = corpus_hash
        self.seed = seed

    @classmethod
    def fit(
        cls, embeddings: ArrayLike, num_clusters: int, *, embedder: str, corpus_hash: str, seed: int
    ) -> "Partition":
        """Fits K clusters to the reference corpus's embeddings, shape `(n, d)`.

        Runs on one thread, since k-means depends on the order of sums and with it on the number of threads. Points
        that occur twice count once, so that a cluster is a kind of question and not a repetition.

        Raises:
            PrismError: for fewer distinct points than clusters, or values that are not finite.
        """
        from sklearn.cluster import KMeans
        from threadpoolctl import threadpool_limits

        # Rounded: two embeddings of one text may differ in their last bits.
        points = np.unique(np.round(check_embeddings(embeddings), 5), axis=0)
        if len(points) < num_clusters:
            raise PrismError(
                f"The reference corpus has {len(points)} distinct points, fewer than `num_clusters` = {num_clusters}. "
                f"Use a larger corpus or `num_clusters` of at most {len(points)}."
            )
        with threadpool_limits(limits=1):
            fitted = KMeans(n_clusters=num_clusters, n_init=4, random_state=seed).fit(points)
        distinct = len(np.unique(np.round(fitted.cluster_centers_, 6), axis=0))
        if distinct < num_clusters:
            raise PrismError(
                f"k-means found {distinct} distinct clusters instead of `num_clusters` = {num_clusters}; use "
                f"`num_clusters` of at most {distinct}, or a more varied reference corpus."
            )
        return cls(fitted.cluster_centers_, embedder=embedder, corpus_hash=corpus_hash, seed=seed)

    @property
    def num_clusters(self) -> int:
        return len(self.centroids)

    @property
    def hash(self) -> str:
        """Fingerprint of the centroids and of the embedder they belong to."""
        digest = hashlib.sha256(self.centroids.tobytes())
        digest.update(self.embedder.encode())
        return digest.hexdigest()[:16]

    def check_embedder(self, embedder: str) -> None:
        """Raises [`PrismError`] unless the embedder is the one that this partition was fitted with."""
        if embedder != self.embedder:
            raise PrismError(
                f"The partition was fitted with the embedder {self.embedder}, this run embeds with {embedder}. "
                "Distances mean nothing across embedders: use the former, or fit a new partition."
            )

    def check_num_clusters(self, num_clusters: int) -> None:
        """Raises [`PrismError`] unless the run's `num_clusters` is the number of this partition's."""
        if self.num_clusters != num_clusters:
            raise PrismError(
                f"`num_clusters` is {num_clusters}, and the partition of `partition_path` has {self.num_clusters} "
                f"clusters. Set it to {self.num_clusters}."
            )

    def assign(self, embeddings: ArrayLike) -> NDArray[np.int64]:
        """The cluster of each question: `argmax_k <z, mu_k>` for embeddings of shape `(n, d)`.

        Raises:
            PrismError: for another width than the centroids', zero rows, or values that are not finite.
        """
        z = np.asarray(embeddings, dtype=np.float32)
        width = self.centroids.shape[1]
        if len(z) == 0:
            check_embeddings(z, width=width)
        clusters = np.zeros(len(z), dtype=np.int64)
        # In blocks, which fit into a processor's cache: otherwise a large pool would cost more per question.
        for start in range(0, len(z), ROWS_PER_BLOCK):
            block = check_embeddings(z[start : start + ROWS_PER_BLOCK], width=width)
            clusters[start : start + len(block)] = np.argmax(block @ self.centroids.T, axis=1)  # (rows, K) -> (rows,)
        return clusters

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Writes the centroids as safetensors and everything else as readable JSON."""
        from safetensors.numpy import save_file

        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        description: dict[str, Any] = {
            "num_clusters": self.num_clusters,
            "dimension": self.centroids.shape[1],
            "embedder": self.embedder,
            "corpus_hash": self.corpus_hash,
            "seed": self.seed,
            "hash": self.hash,
        }
        save_file({"centroids": self.centroids}, folder / (_WEIGHTS + ".part"))
        (folder / (_WEIGHTS + ".part")).replace(folder / _WEIGHTS)
        (folder / (_DESCRIPTION + ".part")).write_text(json.dumps(description, indent=2) + "\n")
        (folder / (_DESCRIPTION + ".part")).replace(folder / _DESCRIPTION)

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> "Partition":
        """Reads a saved partition and checks that it is whole.

        Raises:
            PrismError: if a file is missing, or the centroids are not those that the description was written for.
        """
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        folder = Path(directory)
        if not (folder / _WEIGHTS).is_file() or not (folder / _DESCRIPTION).is_file():
            raise PrismError(f"{folder} holds no partition: {_WEIGHTS} and {_DESCRIPTION} are expected.")
        try:
            description = json.loads((folder / _DESCRIPTION).read_text())
            centroids = load_file(folder / _WEIGHTS)["centroids"]
        except (ValueError, KeyError, SafetensorError) as error:
            raise PrismError(f"The partition in {folder} is damaged: {error}.") from error
        loaded = cls.__new__(cls)
        loaded.centroids = centroids
        loaded.embedder = description["embedder"]
        loaded.corpus_hash = description["corpus_hash"]
        loaded.seed = description["seed"]
        if loaded.hash != description["hash"]:
            raise PrismError(
                f"The centroids in {folder} have the hash {loaded.hash}, not {description['hash']} as written beside "
                "them: the files do not belong together or are damaged."
            )
        return loaded


def check_embeddings(embeddings: ArrayLike, *, width: int | None = None) -> Floats:
    """Embeddings as float32 unit rows, shape `(n, d)`; raises [`PrismError`] for NaN, zero rows or another width."""
    z = np.asarray(embeddings, dtype=np.float32)
    if z.ndim != 2 or (width is not None and z.shape[1] != width):
        raise PrismError(f"Embeddings have shape {z.shape}; expected (n, {'d' if width is None else width}).")
    if not np.isfinite(z).all():
        bad = int((~np.isfinite(z).all(axis=1)).sum())
        raise PrismError(f"{bad} of {len(z)} embeddings hold NaN or infinity; the embedder is at fault, not the fit.")
    lengths = np.linalg.norm(z, axis=1, keepdims=True)
    if (lengths == 0).any():
        raise PrismError(f"{int((lengths == 0).sum())} of {len(z)} embeddings are zero and have no direction.")
    return z / lengths


def fingerprint(texts: Sequence[str]) -> str:
    """A short hash of texts and their order."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode("utf-8", "surrogatepass") + b"\x00")
    return digest.hexdigest()[:16]
