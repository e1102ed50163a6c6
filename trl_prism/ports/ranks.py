"""Lists that are spread over ranks. With one process everything here is the identity."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Generic, TypeVar

from trl_prism.errors import PrismError, StopRequested, WorkError


S = TypeVar("S")
T = TypeVar("T")


def state(*, cpu: bool = False, timeout: float | None = None) -> Any:
    """accelerate's view of the processes, made on the first call, which decides whether they run on the CPU.

    It also decides how long a collective waits for a rank: `timeout` seconds, by default what torch does, ten minutes
    on GPUs.

    Without an accelerator they do: left to itself, `PartialState` would take the ranks of a CPU launch for processes
    that know nothing of each other, each of them the main one.
    """
    import torch
    from accelerate import PartialState
    from accelerate.utils import parse_flag_from_env

    if PartialState._shared_state:
        return PartialState()
    kwargs = {} if timeout is None else {"timeout": timedelta(seconds=timeout)}
    cpu = cpu or parse_flag_from_env("ACCELERATE_USE_CPU") or not torch.accelerator.is_available()
    return PartialState(cpu=cpu, **kwargs)


def leave() -> None:
    """Ends the process group when all ranks have come here; without it one that is slower may abort at its exit."""
    from accelerate import PartialState

    if PartialState._shared_state and num_ranks() > 1:
        state().wait_for_everyone()
        state().destroy_process_group()


def num_ranks() -> int:
    return int(state().num_processes)


def rank() -> int:
    return int(state().process_index)


def is_main() -> bool:
    return bool(state().is_main_process)


def distributed_type() -> str:
    """What accelerate makes of the launch: `NO`, `MULTI_CPU`, `MULTI_GPU`, `DEEPSPEED` or `FSDP`."""
    for flag, kind in (("ACCELERATE_USE_DEEPSPEED", "DEEPSPEED"), ("ACCELERATE_USE_FSDP", "FSDP")):
        if os.environ.get(flag) == "true" and num_ranks() > 1:
            return kind
    return str(state().distributed_type.value)


def launch_kind() -> str:
    """How accelerate launched: `none`, `ddp`, `zero1` to `zero3`, `fsdp1` or `fsdp2`."""
    if num_ranks() == 1:
        return "none"
    if os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true":
        return f"zero{_zero_stage()}"
    if os.environ.get("ACCELERATE_USE_FSDP") == "true":
        return f"fsdp{os.environ.get('FSDP_VERSION', '1')}"
    return "ddp"


def _zero_stage() -> int:
    path = os.environ.get("ACCELERATE_DEEPSPEED_CONFIG_FILE", "none")
    if path != "none":
        return int(json.loads(Path(path).read_text())["zero_optimization"]["stage"])
    return int(os.environ.get("ACCELERATE_DEEPSPEED_ZERO_STAGE", "2"))


def gather_list(local: Sequence[T]) -> list[T]:
    """The concatenation of every rank's list in rank order, on every rank. A collective: all ranks must call it."""
    from accelerate.utils import gather_object

    items: Any = list(local)
    return list(gather_object(items)) if num_ranks() > 1 else items


def from_main(work: Callable[[], T], name: str = "the main process") -> T:
    """What the main process makes of it, on every rank: bit by bit the same. A collective.

    Raises:
        WorkError: on every rank, if it fails on the main one.
    """
    outcomes = gather_list([_outcome(work)] if is_main() else [])
    return _values(outcomes, name)[0]


def dealt(
    items: Sequence[S], size: int, work: Callable[[int, list[S]], Sequence[T]], name: str = "a share of the work"
) -> list[T]:
    """Work on a list that all ranks hold, spread over them; the results of all, in order, on every rank. A collective.

    The list is cut into chunks of `size`, whatever the number of ranks, and chunk `i` falls to rank `i` modulo their
    number. So work that depends on nothing but the chunk and its number gives the same on one rank and on eight.

    Args:
        items (`Sequence`): The list, the same on every rank.
        size (`int`): Items in a chunk.
        work (`Callable`): From a chunk's number and its items to one result per item.
        name (`str`, *optional*): What it is, for the error.

    Raises:
        WorkError: on every rank, if it fails on one.
    """
    chunks = [list(items[start : start + size]) for start in range(0, len(items), size)]
    own = range(rank(), len(chunks), num_ranks())
    outcome = _outcome(lambda: [(number, list(work(number, chunks[number]))) for number in own])
    done = dict(pair for part in _values(gather_list([outcome]), name) for pair in part)
    return [result for number in range(len(chunks)) for result in done[number]]


def together(name: str, work: Callable[[], T]) -> T:
    """A rank's own work, which every rank does at the same time: if it fails on one, all end. A collective.

    Otherwise the others would wait for the one that failed until the process group gives up (`ddp_timeout`).

    Args:
        name (`str`): What it is, for the error.
        work (`Callable`): The work.

    Raises:
        WorkError: on every rank, if it fails on one; the error names the rank.
    """
    outcome = _outcome(work)
    # The value stays here: only whether it failed, and how, goes to the others.
    _values(gather_list([replace(outcome, value=None)]), name)
    return outcome.value  # type: ignore[return-value]


@dataclass(frozen=True)
class _Outcome(Generic[T]):
    """What work on one rank came to."""

    rank: int
    value: T | None
    failure: str | None = None
    error: Exception | None = None
    stopped: bool = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "error": None}  # not every exception can travel


def _outcome(work: Callable[[], T]) -> _Outcome[T]:
    try:
        return _Outcome(rank(), work())
    except StopRequested:
        return _Outcome(rank(), None, stopped=True)
    except Exception as error:  # of any kind: it is raised again on every rank
        text = str(error) if isinstance(error, PrismError) else f"{type(error).__name__}: {error}"
        return _Outcome(rank(), None, text, error)


def _values(outcomes: Sequence[_Outcome[T]], name: str) -> list[T]:
    """The values, or on every rank the first failure."""
    failed = next((outcome for outcome in outcomes if outcome.failure is not None), None)
    if failed is None and any(outcome.stopped for outcome in outcomes):
        raise StopRequested
    if failed is None:
        return [outcome.value for outcome in outcomes]  # type: ignore[misc]
    if num_ranks() == 1 and isinstance(failed.error, PrismError):
        raise failed.error
    where = f" on rank {failed.rank} of {num_ranks()}" if num_ranks() > 1 else ""
    raise WorkError(f"{name} failed{where}: {failed.failure}") from failed.error
