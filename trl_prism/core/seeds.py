"""Seeds of their own for everything that is drawn."""

from collections.abc import Sequence

import numpy as np


def derived_seed(words: Sequence[int]) -> int:
    """One seed from several numbers, such as a run's seed and the number of a chunk; between 0 and 2^31 - 1.

    Example:

    ```python
    >>> derived_seed([0, 1]) == derived_seed([0, 1]), derived_seed([0, 1]) == derived_seed([1, 0])
    (True, False)

    ```
    """
    return int(np.random.SeedSequence(words).generate_state(1)[0] & 0x7FFFFFFF)
