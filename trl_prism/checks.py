"""Checks that a recipe and a command have in common."""

import math

from trl_prism.errors import PrismError


def check_between(name: str, value: float | None, low: float, high: float) -> None:
    """Raises [`PrismError`] for a value that is missing, no number or out of bounds; names the nearest legal one."""
    if value is not None and low <= value <= high:
        return
    bounds = f"be at least {low}" if math.isinf(high) else f"lie between {low} and {high}"
    nearest = ""
    if value is not None and math.isfinite(value) and not math.isinf(high):
        nearest = f", the nearest is {low if value < low else high}"
    raise PrismError(f"`{name}` is {value}; it must {bounds}{nearest}.")


def check_dtype(dtype: str) -> None:
    """Raises [`PrismError`] for what is neither `auto` nor the name of a type of torch."""
    import torch

    if dtype != "auto" and not isinstance(getattr(torch, dtype, None), torch.dtype):
        raise PrismError(f"`dtype` is {dtype!r}; it must be 'auto' or a type of torch, as bfloat16.")
