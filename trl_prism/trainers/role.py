"""What both roles' trainers share."""

from collections.abc import Callable, Sequence
from typing import Any

from transformers import PreTrainedModel
from trl import GRPOTrainer

from trl_prism.ports.ranks import together


class RoleTrainer(GRPOTrainer):
    """[`~trl.GRPOTrainer`] for one phase of one role.

    Args:
        model (`PreTrainedModel`): The weights that the phase starts from.
        reference_path (`str`, *optional*): Where the KL term's reference is loaded from. TRL loads it from the path
            that the model's configuration names, which after a hand-over in memory is some earlier model; so that
            path is stated here. Needed where `args.beta` is not 0.
        stop_strings (`Sequence[str]`, *optional*): Strings that end a completion, beside the end token.
        reward_funcs (`Sequence[Callable]`): Reward functions as TRL takes them. One that fails on one rank ends all.
        kwargs: As for [`~trl.GRPOTrainer`].
    """

    _tag_names = ["trl", "grpo", "prism"]  # noqa: RUF012 - TRL's own form
    _name = "Prism"
    _paper = {  # noqa: RUF012
        "title": "Preventing Curriculum Collapse in Self-Evolving Reasoning Systems",
        "id": "2603.13309",
    }

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        reference_path: str | None = None,
        stop_strings: Sequence[str] = (),
        reward_funcs: Sequence[Callable[..., list[float]]] = (),
        **kwargs: Any,
    ):
        if reference_path is not None:
            model.config._name_or_path = reference_path
        self._stop_strings = list(stop_strings)
        if self._stop_strings:
            args = kwargs["args"]
            args.generation_kwargs = {**(args.generation_kwargs or {}), "stop_strings": self._stop_strings}
        super().__init__(model=model, reward_funcs=[on_every_rank(func) for func in reward_funcs], **kwargs)
        if self._stop_strings:
            # `generate` needs the tokenizer to look for strings, and TRL does not pass it.
            model.generate = _with_tokenizer(model.generate, self.processing_class)

    def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
        completion_ids, logprobs = super()._generate_single_turn(*args, **kwargs)
        if self._stop_strings and logprobs is None:
            # TRL cuts after the end token; after a stop string there is none, and padding would be trained on.
            completion_ids = [_without_padding(ids, self._tokenizer.pad_token_id) for ids in completion_ids]
        return completion_ids, logprobs


def on_every_rank(func: Callable[..., list[float]]) -> Callable[..., list[float]]:
    """A reward function that fails on all ranks with one error, if it fails on one."""
    name = getattr(func, "__name__", type(func).__name__)

    def reward(**kwargs: Any) -> list[float]:
        return together(f"The reward function {name}", lambda: func(**kwargs))

    # TRL names metrics after the function.
    reward.__name__ = name
    return reward


def _with_tokenizer(generate: Any, tokenizer: Any) -> Any:
    def generate_with_tokenizer(*args: Any, **kwargs: Any) -> Any:
        return generate(*args, tokenizer=tokenizer, **kwargs)

    return generate_with_tokenizer


def _without_padding(ids: list[int], pad_id: int) -> list[int]:
    """The ids without padding at their end; one is kept where there is nothing else, or where it is the end token."""
    end = len(ids)
    while end > 1 and ids[end - 1] == pad_id and ids[end - 2] == pad_id:
        end -= 1
    if end > 1 and ids[end - 1] == pad_id:
        end -= 1
    return ids[:end]
