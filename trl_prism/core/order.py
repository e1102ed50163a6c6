"""The order in which a phase goes through its rows."""

import numpy as np


def passes(num_rows: int, num_needed: int, *, seed: int) -> list[int]:
    """Indices of rows, pass after pass, each pass in a random order of its own, until there are enough.

    Made before the phase begins, so that one that goes on from a checkpoint meets the rows of one that was not
    stopped: a sampler that shuffles as it goes has forgotten where it was.

    Args:
        num_rows (`int`): Rows there are, at least 1.
        num_needed (`int`): Rows the phase will use.
        seed (`int`): With the same seed, the same order.

    Example:

    ```python
    >>> order = passes(3, 7, seed=0)
    >>> sorted(order[:3]), sorted(order[3:6]), len(order)
    ([0, 1, 2], [0, 1, 2], 7)

    ```
    """
    rng = np.random.default_rng(seed)
    order: list[int] = []
    while len(order) < num_needed:
        order += rng.permutation(num_rows).tolist()
    return order[:num_needed]
