"""Lists that are spread over ranks. With one process everything here is the identity."""

from collections.abc import Sequence
from typing import Any, TypeVar


T = TypeVar("T")


def num_ranks() -> int:
    from accelerate import PartialState

    return int(PartialState().num_processes)


def rank() -> int:
    from accelerate import PartialState

    return int(PartialState().process_index)


def is_main() -> bool:
    from accelerate import PartialState

    return bool(PartialState().is_main_process)


def gather_list(local: Sequence[T]) -> list[T]:
    """The concatenation of every rank's list in rank order, on every rank. A collective: all ranks must call it."""
    from accelerate.utils import gather_object

    items: Any = list(local)
    return list(gather_object(items)) if num_ranks() > 1 else items


def own_slice(everything: Sequence[T]) -> list[T]:
    """This rank's part of a list that all ranks hold, in contiguous parts that differ in length by one at most."""
    from accelerate import PartialState

    state = PartialState()
    return list(everything[slice(*bounds(len(everything), state.process_index, state.num_processes))])


def bounds(length: int, rank: int, num: int) -> tuple[int, int]:
    """Where the part of one rank starts and ends.

    Example:

    ```python
    >>> [bounds(5, rank, 3) for rank in range(3)]
    [(0, 2), (2, 4), (4, 5)]

    ```
    """
    size, extra = divmod(length, num)
    start = rank * size + min(rank, extra)
    return start, start + size + (rank < extra)
