"""The Questioner's rewards, as functions of numbers.

Shapes: `n` questions, `K` clusters. Agreement is the share of the Solver's answers that equal the majority answer, so
it needs no truth.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trl_prism.errors import PrismError


Floats = NDArray[np.float64]

GATE_CENTER = 0.75
GATE_WIDTH = 0.4
DEFAULT_BAND = (0.3, 0.9)
MALFORMED = -1.0

# Agreement is a fraction of votes, and 0.3 or 0.9 have no exact binary form: 3 of 10 must count as inside [0.3, 0.9].
_TOLERANCE = 1e-9


def in_band(agreement: ArrayLike, band: Sequence[float] = DEFAULT_BAND) -> NDArray[np.bool_]:
    """Whether agreement lies in the closed interval `band`.

    Example:

    ```python
    >>> in_band([0.2, 3 / 10, 0.9, 1.0]).tolist()
    [False, True, True, False]

    ```
    """
    low, high = check_band(band)
    p = np.asarray(agreement, dtype=np.float64)
    return (p >= low - _TOLERANCE) & (p <= high + _TOLERANCE)


def check_band(band: Sequence[float], *, name: str = "band") -> tuple[float, float]:
    """Returns the band as two floats, or raises [`PrismError`] if it is not `0 <= low < high <= 1`."""
    if len(band) != 2 or not 0 <= band[0] < band[1] <= 1:
        raise PrismError(f"`{name}` is {list(band)}; it must be two numbers with 0 <= low < high <= 1, as [0.3, 0.9].")
    return float(band[0]), float(band[1])


def gate(
    agreement: ArrayLike,
    *,
    center: float = GATE_CENTER,
    width: float = GATE_WIDTH,
    band: Sequence[float] = DEFAULT_BAND,
) -> Floats:
    """How close questions lie to the edge of the Solver's ability (the zone of proximal development).

    `g(p) = max(0, 1 - |p - center| / width)`, and 0 outside of the band.

    Args:
        agreement (`array_like` of shape `(n,)`): Agreement `p`, in [0, 1].
        center (`float`, *optional*, defaults to `0.75`): The agreement that earns most.
        width (`float`, *optional*, defaults to `0.4`): Distance from the center at which the gate reaches 0.
        band (`Sequence[float]`, *optional*, defaults to `(0.3, 0.9)`): Closed interval outside of which the gate is 0.

    Returns:
        `numpy.ndarray` of shape `(n,)`: values in [0, 1].

    Source: Prism, arXiv:2603.13309, the reward's first factor.

    Example:

    ```python
    >>> gate([0.4, 0.5, 0.7, 0.8, 0.9, 1.0]).round(3).tolist()
    [0.125, 0.375, 0.875, 0.875, 0.625, 0.0]

    ```
    """
    p = np.asarray(agreement, dtype=np.float64)
    return np.where(in_band(p, band), np.maximum(0.0, 1.0 - np.abs(p - center) / width), 0.0)


def rarity(visits: ArrayLike) -> Floats:
    """How seldom each cluster has been visited: `d_k = exp(-n_k / mean_j n_j)`.

    Args:
        visits (`array_like` of shape `(K,)`): The remembered visits `n`, non-negative.

    Returns:
        `numpy.ndarray` of shape `(K,)`: values in (0, 1], `exp(-1) = 0.368` where all visits are equal. With no
        visits at all every cluster is as rare as any other, and the value is the same 0.368.

    Source: Prism, arXiv:2603.13309.

    Example:

    ```python
    >>> rarity([1.0, 1.0]).round(3).tolist()
    [0.368, 0.368]
    >>> rarity([2.0, 0.0]).round(3).tolist()
    [0.135, 1.0]

    ```
    """
    n = np.asarray(visits, dtype=np.float64)
    mean = n.mean()
    return np.exp(-(n / mean if mean > 0 else np.ones_like(n)))


def prism_reward(
    agreement: ArrayLike,
    question_rarity: ArrayLike,
    well_formed: ArrayLike,
    *,
    coverage_weight: float = 5.0,
    center: float = GATE_CENTER,
    width: float = GATE_WIDTH,
    band: Sequence[float] = DEFAULT_BAND,
) -> Floats:
    """The reward of Prism: `r = g(p) * (1 + lambda * d)`, and -1 for a malformed question.

    With `coverage_weight=0` it is the gate alone (`reward: gate` in a recipe).

    Args:
        agreement (`array_like` of shape `(n,)`): Agreement `p`; ignored where the question is malformed.
        question_rarity (`array_like` of shape `(n,)`): `d`, the rarity of the cluster that each question lies in.
        well_formed (`array_like` of shape `(n,)`): `False` where the completion holds no usable question.
        coverage_weight (`float`, *optional*, defaults to `5.0`): `lambda`; the highest value of `r` is `1 + lambda`.
        center, width, band: As in [`gate`].

    Returns:
        `numpy.ndarray` of shape `(n,)`: -1, or values in [0, 1 + lambda]. Never NaN for finite input.

    Source: Prism, arXiv:2603.13309; the -1 is the released code's.

    Example:

    ```python
    >>> prism_reward([0.7, 0.7, 1.0, 0.0], [1.0, 0.0, 1.0, 0.0], [True, True, True, False]).round(3).tolist()
    [5.25, 0.875, 0.0, -1.0]

    ```
    """
    g = gate(agreement, center=center, width=width, band=band)
    reward = g * (1.0 + coverage_weight * np.asarray(question_rarity, dtype=np.float64))
    return np.where(np.asarray(well_formed, dtype=bool), reward, MALFORMED)


def rzero_reward(
    agreement: ArrayLike, cluster_share: ArrayLike, well_formed: ArrayLike, *, uncertainty: str = "code"
) -> Floats:
    """The baseline's reward: uncertainty minus the share of the batch that lies in the question's own BLEU cluster.

    `r = u(p) - share`, and `-1 - share` for a malformed question, where `u` is `min(p, 1 - p)` in R-Zero's code
    (`uncertainty="code"`) and `1 - 2 |p - 1/2|`, twice as much, in its paper (`uncertainty="paper"`).

    Args:
        agreement (`array_like` of shape `(n,)`): Agreement `p`, in [0, 1].
        cluster_share (`array_like` of shape `(n,)`): As from [`~trl_prism.core.bleu.cluster_share`], in (0, 1].
        well_formed (`array_like` of shape `(n,)`): `False` where the completion holds no usable question.
        uncertainty (`str`, *optional*, defaults to `"code"`): `"code"` or `"paper"`.

    Source: R-Zero, arXiv:2508.05004, and its released code.

    Example:

    ```python
    >>> rzero_reward([0.5, 0.9, 0.0], [0.25, 0.25, 0.5], [True, True, False]).round(3).tolist()
    [0.25, -0.15, -1.5]

    ```
    """
    p = np.asarray(agreement, dtype=np.float64)
    if uncertainty == "code":
        u = np.minimum(p, 1.0 - p)
    elif uncertainty == "paper":
        u = 1.0 - 2.0 * np.abs(p - 0.5)
    else:
        raise PrismError(f"`rzero_uncertainty` is {uncertainty!r}; it must be 'code' or 'paper'.")
    return np.where(np.asarray(well_formed, dtype=bool), u, MALFORMED) - np.asarray(cluster_share, dtype=np.float64)
