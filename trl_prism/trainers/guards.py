"""What ends a phase at once: a number that is none, and memory that is not enough."""

import contextlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch

from trl_prism.errors import PrismError, first_line
from trl_prism.ports.files import write_text
from trl_prism.ports.ranks import rank, together
from trl_prism.ports.texts import text_of


def checked_reward(func: Callable[..., Sequence[float | None]]) -> Callable[..., Sequence[float | None]]:
    """A reward function that fails on all ranks with one error, if it fails on one, or returns what is no number.

    `None` stays `None`: TRL leaves such a completion out of that function's reward.
    """
    name = getattr(func, "__name__", type(func).__name__)

    def call(**kwargs: Any) -> Sequence[float | None]:
        rewards = func(**kwargs)
        for i, value in enumerate(rewards):
            if value is not None and not math.isfinite(value):
                text = text_of(kwargs["completions"][i])
                raise PrismError(
                    f"The reward function {name} gave {value} for the completion {text[:200]!r}; it must give finite "
                    "numbers, or None for a completion that it does not judge."
                )
        return rewards

    def reward(**kwargs: Any) -> Sequence[float | None]:
        return together(f"The reward function {name}", lambda: call(**kwargs))

    # TRL names metrics after the function.
    reward.__name__ = name
    return reward


@contextlib.contextmanager
def out_of_memory_explained(folder: Path) -> Iterator[None]:
    """Turns running out of memory into [`PrismError`] that names the largest knobs; the summary is in the folder."""
    try:
        yield
    except RuntimeError as error:  # torch.OutOfMemoryError is one
        if not isinstance(error, torch.OutOfMemoryError) and "can't allocate memory" not in str(error):
            raise
        path = folder / f"out-of-memory-rank-{rank()}.txt"
        summary = torch.cuda.memory_summary() if torch.cuda.is_available() else ""
        write_text(path, f"{error}\n\n{summary}\n")
        raise PrismError(
            f"Out of memory: {first_line(error)} The summary is in {path}. Lower `per_device_train_batch_size` or "
            "`sampling_batch_size`, then `max_completion_length`; set `gradient_checkpointing: true`, or shard over "
            "more ranks (`trl-prism plan` shows the parts). The same command goes on from the last checkpoint."
        ) from error


def stop_at(what: str, *, step: int, folder: str, rows: Sequence[dict[str, Any]]) -> NoReturn:
    """Writes the batch in which something was not finite to the phase's folder and raises [`PrismError`]."""
    path = Path(folder) / f"not-finite-step-{step}-rank-{rank()}.json"
    write_text(path, json.dumps(rows, indent=2) + "\n")
    raise PrismError(
        f"The {what} at step {step} is not finite. The batch is in {path}. Lower the learning rate, or look at the "
        "precision (`bf16`, `dtype`) and at the batch; the same command goes on from the last checkpoint."
    )
