"""Lists that are spread over ranks. With one process everything here is the identity."""

from collections.abc import Sequence
from typing import Any, TypeVar


T = TypeVar("T")


def state(*, cpu: bool = False) -> Any:
    """accelerate's view of the processes, made on the first call, which decides whether they run on the CPU.

    Without an accelerator they do: left to itself, `PartialState` would take the ranks of a CPU launch for processes
    that know nothing of each other, each of them the main one.
    """
    import torch
    from accelerate import PartialState
    from accelerate.utils import parse_flag_from_env

    if PartialState._shared_state:
        return PartialState()
    return PartialState(cpu=cpu or parse_flag_from_env("ACCELERATE_USE_CPU") or not torch.accelerator.is_available())


def num_ranks() -> int:
    return int(state().num_processes)


def rank() -> int:
    return int(state().process_index)


def is_main() -> bool:
    return bool(state().is_main_process)


def gather_list(local: Sequence[T]) -> list[T]:
    """The concatenation of every rank's list in rank order, on every rank. A collective: all ranks must call it."""
    from accelerate.utils import gather_object

    items: Any = list(local)
    return list(gather_object(items)) if num_ranks() > 1 else items


def own_slice(everything: Sequence[T]) -> list[T]:
    """This rank's part of a list that all ranks hold, in contiguous parts that differ in length by one at most."""
    return list(everything[slice(*bounds(len(everything), rank(), num_ranks()))])


def bounds(length: int, place: int, num: int) -> tuple[int, int]:
    """Where the part of one rank starts and ends.

    Example:

    ```python
    >>> [bounds(5, place, 3) for place in range(3)]
    [(0, 2), (2, 4), (4, 5)]

    ```
    """
    size, extra = divmod(length, num)
    start = place * size + min(place, extra)
    return start, start + size + (place < extra)
