"""Models and tokenizers by folder or Hub id, with one clear error where there are none."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from trl_prism._compat import whole_on_every_rank
from trl_prism.errors import PrismError, first_line
from trl_prism.ports.ranks import state


if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

T = TypeVar("T")


def load_tokenizer(path: str, *, eos_token: str | None = None, **kwargs: Any) -> "PreTrainedTokenizerBase":
    """A model's tokenizer, which pads on the left as generation needs it.

    Args:
        path (`str`): Folder or Hub id.
        eos_token (`str`, *optional*): Ends completions instead of the tokenizer's own end token.
        kwargs: As for `AutoTokenizer.from_pretrained`.

    Raises:
        PrismError: if there is none, or it has no token to end a completion with, or not this one.
    """
    from transformers import AutoTokenizer

    tokenizer = _loaded(path, "tokenizer", lambda: AutoTokenizer.from_pretrained(path, padding_side="left", **kwargs))
    if eos_token is not None:
        if eos_token not in tokenizer.get_vocab():
            raise PrismError(f"`eos_token` is {eos_token!r}, which the tokenizer of {path!r} does not know.")
        tokenizer.eos_token = eos_token
    if tokenizer.eos_token_id is None:
        raise PrismError(
            f"The tokenizer of {path!r} has no end token, so no completion would ever end. Set `eos_token` to "
            "a token that it knows."
        )
    if tokenizer.pad_token_id is None:  # as TRL does
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_model(path: str, **kwargs: Any) -> "PreTrainedModel":
    """A causal language model to be trained."""
    from transformers import AutoModelForCausalLM

    return _loaded(path, "model", lambda: AutoModelForCausalLM.from_pretrained(path, **kwargs))


def load_frozen(path: str, **kwargs: Any) -> "PreTrainedModel":
    """A causal language model that is never trained: in eval mode, without gradients, whole on every rank."""
    with whole_on_every_rank():
        model = load_model(path, **kwargs)
    return model.to(state().device).eval().requires_grad_(False)


def _loaded(path: str, what: str, load: Callable[[], T]) -> T:
    try:
        return load()
    except (OSError, ValueError, ImportError) as error:
        reason = first_line(error).rstrip(" .:")
        raise PrismError(
            f"The {what} {path!r} cannot be loaded: {reason}. Give a folder with a model in it, or an id on the Hub "
            "(with a network, and logged in where the repository is gated)."
        ) from error
