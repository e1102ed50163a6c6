"""Which attention really runs: what was asked for where it can, otherwise sdpa, and why."""

from dataclasses import dataclass

from trl_prism.errors import PrismError


FLASH = ("flash_attention_2", "flash_attention_3")


@dataclass(frozen=True)
class Attention:
    """What was asked for, what is used, and the reason where these differ."""

    asked: str | None
    used: str | None
    reason: str | None = None


def resolve_attention(asked: str | None, *, dtype: str, strict: bool = False) -> Attention:
    """The attention that can run here.

    Args:
        asked (`str`, *optional*): As `attn_implementation` of transformers; `None` leaves the choice to it.
        dtype (`str`): Type of the weights; flash attention takes 16-bit types only.
        strict (`bool`, *optional*, defaults to `False`): Refuse instead of falling back.

    Raises:
        PrismError: if `strict`, and what was asked for cannot run.
    """
    if asked not in FLASH:
        return Attention(asked, asked)
    reason = _missing(asked, dtype)
    if reason is None:
        return Attention(asked, asked)
    if strict:
        raise PrismError(
            f"`attn_implementation: {asked}` cannot run here: {reason}. Mend that, or turn off `attn_strict` and run "
            "with sdpa."
        )
    return Attention(asked, "sdpa", reason)


def _missing(asked: str, dtype: str) -> str | None:
    import torch
    from transformers.utils import import_utils

    if not torch.cuda.is_available():
        return "there is no CUDA device"
    if dtype not in ("float16", "bfloat16"):
        return f"it needs float16 or bfloat16 weights, and `dtype` is {dtype}"
    installed = getattr(import_utils, f"is_{asked.replace('attention', 'attn')}_available", lambda: False)()
    if not installed and not import_utils.is_kernels_available():
        return "neither the package flash-attn nor `kernels` is installed"
    return None
