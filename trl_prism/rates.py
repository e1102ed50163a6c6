"""The learning rates that a schedule really gives, before a run has cost anything."""

from typing import Any

import torch
from transformers import TrainingArguments, get_scheduler


def scheduled_rates(args: TrainingArguments, num_updates: int) -> list[float]:
    """The learning rate of each of a role's updates over its whole life, by transformers' own schedule."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=args.learning_rate)
    schedule = get_scheduler(
        args.lr_scheduler_type,
        optimizer,
        num_warmup_steps=args.get_warmup_steps(num_updates),
        num_training_steps=num_updates,
        scheduler_specific_kwargs=args.lr_scheduler_kwargs,
    )
    rates = []
    for _ in range(num_updates):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        schedule.step()
    return rates


def endless_warmup(role: str, args: TrainingArguments, *, num_rounds: int, over_run: bool) -> str | None:
    """What to say of a warm-up that is longer than all the updates there are; `None` where it ends."""
    num_updates = args.max_steps * (num_rounds if over_run else 1)
    warmup = args.get_warmup_steps(num_updates)
    if warmup and args.lr_scheduler_type == "constant":
        return (
            f"`{role}.warmup_steps` is {warmup}, and the schedule `constant` takes no warm-up: the rate is "
            f"{args.learning_rate:.2e} from the first update on. For a warm-up set `lr_scheduler_type: "
            "constant_with_warmup`."
        )
    if warmup < num_updates:
        return None
    where = f"{num_rounds} rounds of {args.max_steps}" if over_run else "a phase"
    return (
        f"The {role}'s warm-up of {warmup} updates is longer than the {num_updates} updates of {where}: its learning "
        f"rate reaches {max(scheduled_rates(args, num_updates)):.2e}, not {args.learning_rate:.2e}. If that is not "
        f"meant, lower `{role}.warmup_steps`."
    )


def lost_updates(role: str, args: TrainingArguments, *, config: Any, kind: str) -> str | None:
    """What to say of weights that are trained in 16 bits and keep little of an update; `None` where they are not.

    DeepSpeed trains 32-bit weights beside the 16-bit ones, and adapters are trained in 32 bits.
    """
    if config.dtype not in ("bfloat16", "float16") or config.use_peft or kind.startswith("zero"):
        return None
    return (
        f"The {role} would train {config.dtype} weights themselves: at a learning rate of {args.learning_rate:.1e} "
        "most of an update is smaller than the distance between two such numbers and is lost (docs/engines.md "
        "measures how much). Set `dtype: float32` with `bf16: true`, launch with DeepSpeed, or use `use_peft`."
    )
