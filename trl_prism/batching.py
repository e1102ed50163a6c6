"""From global batch sizes to TRL's: one recipe means the same on one rank and on eight."""

from dataclasses import dataclass
from typing import Any

from trl_prism.errors import PrismError


@dataclass(frozen=True)
class Batching:
    """TRL's batch settings of one role.

    Attributes:
        per_device_train_batch_size (`int`): Completions per forward pass on one rank.
        gradient_accumulation_steps (`int`): Forward passes per optimizer update.
        steps_per_generation (`int`): Forward passes per generation batch.
    """

    per_device_train_batch_size: int
    gradient_accumulation_steps: int
    steps_per_generation: int


def solve_batching(
    *,
    prompts_per_step: int,
    prompts_per_update: int | None,
    num_generations: int,
    max_per_device: int,
    num_ranks: int,
    role: str,
) -> Batching:
    """Splits a step's completions over ranks and forward passes.

    A step generates `prompts_per_step * num_generations` completions; every `prompts_per_update` prompts of it make
    one optimizer update. A rank works through its part in the fewest forward passes of at most `max_per_device`
    completions each.

    Args:
        prompts_per_step (`int`): Prompts per generation batch, over all ranks.
        prompts_per_update (`int`, *optional*): Prompts per optimizer update, over all ranks; by default all of the
            step's.
        num_generations (`int`): Completions per prompt, at least 2.
        max_per_device (`int`): Most completions per forward pass of one rank.
        num_ranks (`int`): Number of processes.
        role (`str`): Named in errors.

    Raises:
        PrismError: where the numbers do not divide; with the nearest values that do.

    Example:

    ```python
    >>> solve_batching(prompts_per_step=24, prompts_per_update=None, num_generations=8, max_per_device=64,
    ...                num_ranks=2, role="solver")
    Batching(per_device_train_batch_size=48, gradient_accumulation_steps=2, steps_per_generation=2)

    ```
    """
    per_update = prompts_per_step if prompts_per_update is None else prompts_per_update
    for name, value, low in (
        ("prompts_per_step", prompts_per_step, 1),
        ("prompts_per_update", per_update, 1),
        ("num_generations", num_generations, 2),
        ("per_device_train_batch_size", max_per_device, 1),
    ):
        if value < low:
            raise PrismError(f"`{role}.{name}` is {value}; it must be at least {low}.")
    if prompts_per_step % per_update:
        raise PrismError(
            f"`{role}.prompts_per_step` is {prompts_per_step}, not a multiple of `{role}.prompts_per_update` = "
            f"{per_update}; the nearest multiples are {_neighbours(prompts_per_step, per_update)}."
        )
    completions = per_update * num_generations
    if completions % num_ranks:
        step = next(n for n in range(1, num_ranks + 1) if n * num_generations % num_ranks == 0)
        raise PrismError(
            f"An update of the {role} has {per_update} prompts x {num_generations} completions = {completions}, which "
            f"{num_ranks} ranks cannot share evenly; the nearest numbers of prompts that they can are "
            f"{_neighbours(per_update, step)}."
        )
    per_rank = completions // num_ranks
    passes = next(n for n in range(1, per_rank + 1) if per_rank % n == 0 and per_rank // n <= max_per_device)
    return Batching(per_rank // passes, passes, passes * (prompts_per_step // per_update))


def updates_per_batch(args: Any, *, num_iterations: int | None = None) -> int:
    """Optimizer updates that one generation batch is used for.

    Args:
        args: A role's `GRPOConfig`, or a [`Batching`] and `num_iterations` beside it.
    """
    iterations = args.num_iterations if num_iterations is None else num_iterations
    return int(max(1, args.steps_per_generation * iterations // args.gradient_accumulation_steps))


def _neighbours(value: int, divisor: int) -> str:
    below = value // divisor * divisor
    return f"{below} and {below + divisor}" if below else f"{divisor}"
