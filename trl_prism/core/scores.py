"""What answers to problems with known answers add up to: pass@k, mean@k, maj@k, and how sure one can be.

Shapes: `p` problems, `n` sampled answers each.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trl_prism.errors import PrismError


@dataclass(frozen=True)
class Score:
    """A mean over problems in [0, 1], with its 95 % bootstrap interval."""

    value: float
    low: float
    high: float


def pass_at_k(num_right: int, num_samples: int, k: int) -> float:
    """The chance that at least one of `k` answers, drawn from `num_samples` without replacement, is right.

    `1 - C(n - c, k) / C(n, k)` for `c` right answers among `n`: the unbiased estimator.

    Raises:
        PrismError: if `k` is not between 1 and `num_samples`.

    Source: Chen et al. 2021, arXiv:2107.03374, equation 1.

    Example:

    ```python
    >>> pass_at_k(1, 4, 2), pass_at_k(0, 4, 2), pass_at_k(3, 4, 2)
    (0.5, 0.0, 1.0)

    ```
    """
    if not 1 <= k <= num_samples:
        raise PrismError(f"pass@{k} needs at least {k} samples, there are {num_samples}; draw more or lower k.")
    return 1.0 - math.comb(num_samples - num_right, k) / math.comb(num_samples, k)


def mean_with_interval(values: Sequence[float] | NDArray[np.float64], *, seed: int = 0) -> Score:
    """The mean over problems, shape `(p,)`, and the percentile bootstrap interval over problems.

    With one problem, or values that are all the same, the interval is the value itself.
    """
    x = np.asarray(values, dtype=np.float64)
    if len(x) == 0:
        raise PrismError("There are no problems to take a mean over.")
    mean = float(x.mean())
    if len(x) == 1 or (x == x[0]).all():
        return Score(mean, mean, mean)
    from scipy.stats import bootstrap

    result = bootstrap(
        (x,), np.mean, n_resamples=2000, method="percentile", rng=np.random.default_rng(seed), vectorized=True
    )
    return Score(mean, float(result.confidence_interval.low), float(result.confidence_interval.high))
