"""Checks that a recipe and a command have in common."""

from trl_prism.errors import PrismError


def check_between(name: str, value: float | None, low: float, high: float) -> None:
    """Raises [`PrismError`] for a value that is missing or outside of its bounds."""
    if value is None or not low <= value <= high:
        raise PrismError(f"`{name}` is {value}; it must lie between {low} and {high}.")


def check_dtype(dtype: str) -> None:
    """Raises [`PrismError`] for what is neither `auto` nor the name of a type of torch."""
    import torch

    if dtype != "auto" and not isinstance(getattr(torch, dtype, None), torch.dtype):
        raise PrismError(f"`dtype` is {dtype!r}; it must be 'auto' or a type of torch, as bfloat16.")
