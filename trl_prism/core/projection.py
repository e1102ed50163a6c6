"""Where questions lie, on a plane: the two directions in which the reference corpus varies most."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trl_prism.core.partition import Floats, check_embeddings
from trl_prism.errors import PrismError


# Points of the reference corpus that are kept, to be drawn behind the questions of a round.
KEPT = 2000


@dataclass(frozen=True)
class Projection:
    """The first two principal components of the reference corpus's embeddings. For looking, not for measuring.

    Attributes:
        mean (`numpy.ndarray` of shape `(d,)`): Their mean.
        axes (`numpy.ndarray` of shape `(2, d)`): The components.
        explained (`numpy.ndarray` of shape `(2,)`): The share of the variance along each, in [0, 1].
        reference (`numpy.ndarray` of shape `(m, 2)`): Where the first 2,000 points of the corpus lie.
    """

    mean: Floats
    axes: Floats
    explained: Floats
    reference: Floats

    @classmethod
    def fit(cls, embeddings: ArrayLike) -> "Projection":
        """Fits the plane to embeddings of shape `(n, d)`; a corpus with fewer than two directions lies on a line."""
        from sklearn.decomposition import PCA
        from threadpoolctl import threadpool_limits

        points = check_embeddings(embeddings)
        num_axes = min(2, *points.shape)
        with threadpool_limits(limits=1):
            fitted = PCA(n_components=num_axes, random_state=0).fit(points)
        axes = np.zeros((2, points.shape[1]), dtype=np.float32)
        axes[:num_axes] = fitted.components_
        explained = np.zeros(2, dtype=np.float32)
        explained[:num_axes] = np.nan_to_num(fitted.explained_variance_ratio_)
        mean = fitted.mean_.astype(np.float32)
        return cls(mean, axes, explained, ((points[:KEPT] - mean) @ axes.T).astype(np.float32))

    def __call__(self, embeddings: ArrayLike) -> NDArray[np.float32]:
        """Where embeddings of shape `(n, d)` lie, shape `(n, 2)`."""
        points = np.asarray(embeddings, dtype=np.float32).reshape(-1, len(self.mean))
        return ((points - self.mean) @ self.axes.T).astype(np.float32)

    def save(self, path: str | os.PathLike[str]) -> None:
        from safetensors.numpy import save_file

        part = Path(path).with_suffix(".part")
        save_file({name: np.ascontiguousarray(value) for name, value in vars(self).items()}, part)
        part.replace(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Projection":
        """Reads a saved plane. Raises [`PrismError`] if the file is missing or damaged."""
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            return cls(**load_file(path))
        except (OSError, SafetensorError, TypeError) as error:
            raise PrismError(f"The projection {path} cannot be read: {error}.") from error
