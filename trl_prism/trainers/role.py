"""What both roles' trainers share."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.optim.lr_scheduler import LambdaLR
from transformers import PreTrainedModel
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl import GRPOTrainer

from trl_prism.batching import updates_per_batch
from trl_prism.errors import PrismError
from trl_prism.ports.files import one_clear_error
from trl_prism.ports.ranks import from_main
from trl_prism.ports.vllm import stop_kwargs
from trl_prism.trainers.checkpoints import StopCallback, prune, seal
from trl_prism.trainers.guards import checked_reward, stop_at
from trl_prism.trainers.handoff import ADAPTER, RestoreMasterWeights, cast, full_state, is_peft_model, merge_adapter
from trl_prism.trainers.reporting import backends


class RoleTrainer(GRPOTrainer):
    """[`~trl.GRPOTrainer`] for one phase of one role.

    Args:
        model (`PreTrainedModel`): The weights that the phase starts from.
        reference_path (`str`, *optional*): Where the KL term's reference is loaded from. TRL loads it from the path
            that the model's configuration names, which after a hand-over in memory is some earlier model; so that
            path is stated here. Needed where `args.beta` is not 0.
        stop_strings (`Sequence[str]`, *optional*): Strings that end a completion, beside the end token.
        handoff_dtype (`str`, *optional*, defaults to `"float32"`): Type of the saved weights.
        handoff_start (`str`, *optional*): Folder with weights that an earlier phase saved and this one starts from.
        model_kwargs (`dict`, *optional*): What `model` was loaded with beside its path, as `revision`: with adapters
            it is loaded once more, to merge them.
        max_sequences (`int`, *optional*): Most completions that one rank generates at a time; by default all of its
            part of the generation batch, whose cache may not fit. vLLM makes batches of its own.
        phase (`tuple[int, int]`, *optional*, defaults to `(0, 1)`): Which of the role's phases this is, and how many
            there are: the learning-rate schedule runs over all of them.
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
        handoff_dtype: str = "float32",
        handoff_start: str | None = None,
        model_kwargs: dict[str, Any] | None = None,
        max_sequences: int | None = None,
        phase: tuple[int, int] = (0, 1),
        reward_funcs: Sequence[Callable[..., Sequence[float | None]]] = (),
        **kwargs: Any,
    ):
        self.handoff_dtype = handoff_dtype
        self.start_path = handoff_start or str(getattr(model.config, "_name_or_path", ""))
        self.model_kwargs = model_kwargs or {}
        self.max_sequences = max_sequences
        self.phase = phase
        if reference_path is not None:
            model.config._name_or_path = reference_path
        self._stop_strings = list(stop_strings)
        if self._stop_strings:
            args = kwargs["args"]
            stop = stop_kwargs(self._stop_strings) if args.use_vllm else {"stop_strings": self._stop_strings}
            args.generation_kwargs = {**(args.generation_kwargs or {}), **stop}
        # Ours: TRL's own rule deletes by the files' times, before the new checkpoint is known to be whole.
        self.num_checkpoints = kwargs["args"].save_total_limit
        kwargs["args"].save_total_limit = None
        # Ours: transformers ends the run if a backend's package is missing or its server fails.
        asked, kwargs["args"].report_to = kwargs["args"].report_to, []
        super().__init__(model=model, reward_funcs=[checked_reward(func) for func in reward_funcs], **kwargs)
        used = backends(asked)
        for callback in used.values():
            self.add_callback(callback)
        self.args.report_to = list(used)  # TRL sends tables of completions to those
        masters = handoff_start is not None and not is_peft_model(self.model)
        if masters and handoff_dtype == "float32" and self.is_deepspeed_enabled:
            self.add_callback(RestoreMasterWeights(str(handoff_start)))
        self.stop_callback = StopCallback(updates_per_batch(self.args))
        self.add_callback(self.stop_callback)
        if self._stop_strings and not self.use_vllm:
            # `generate` needs the tokenizer to look for strings, and TRL does not pass it.
            model.generate = _with_tokenizer(model.generate, self.processing_class)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Saves the phase's result, in `handoff_dtype`; checkpoints on the way are left to TRL."""
        if _internal_call:
            super().save_model(output_dir, _internal_call)
            return
        state, dtype = full_state(self), getattr(torch, self.handoff_dtype)

        def write() -> None:
            if is_peft_model(self.model):
                adapter = str(Path(output_dir or self.args.output_dir) / ADAPTER)
                self._save(adapter, state)
                merge_adapter(
                    adapter,
                    start=self.start_path,
                    output_dir=output_dir or self.args.output_dir,
                    dtype=dtype,
                    model_kwargs=self.model_kwargs,
                )
                self.processing_class.save_pretrained(output_dir)
            else:
                self._save(output_dir, cast(state, dtype))

        def write_or_say_why() -> None:
            with one_clear_error(Path(output_dir or self.args.output_dir)):
                write()

        # The others wait, and fail if it fails: they are about to load what is saved here.
        from_main(write_or_say_why, "saving the model")

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        folder = Path(self.args.output_dir)
        with one_clear_error(folder):
            super()._save_checkpoint(model, trial)
        seal(folder / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}")
        prune(folder, keep=self.num_checkpoints)

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """TRL's card, and what the phase really ran with."""
        super().create_model_card(*args, **kwargs)
        if self.is_world_process_zero():
            path = Path(self.args.output_dir) / "README.md"
            facts = [
                f"attention: {self.model.config._attn_implementation}",
                f"weights: {str(self.model.dtype)[6:]}",
                f"bf16 autocast: {str(bool(self.args.bf16)).lower()}",
                f"processes: {self.accelerator.num_processes} ({self.accelerator.distributed_type.value})",
            ]
            text = path.read_text(encoding="utf-8").rstrip() + "\n\n## How it ran\n\n"
            path.write_text(text + "".join(f"- {fact}\n" for fact in facts), encoding="utf-8")

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        # NaN stands for None, which is left out; the sum of the others is what TRL would turn into advantages, and it
        # would take an advantage that is no number for 0.
        total = (rewards * self.reward_weights.to(rewards.device)).nansum(dim=1)  # (completions of all ranks,)
        if not bool(torch.isfinite(total).all()):
            rows = [{"prompt": prompt, "completion": done} for prompt, done in zip(prompts, completions, strict=True)]
            stop_at("reward", step=self.state.global_step, folder=self.args.output_dir, rows=rows)
        return rewards

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)
        self._check("advantage", output["advantages"], output)
        return output

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        loss = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        self._check("loss", loss, inputs)
        return loss

    def _check(self, what: str, value: torch.Tensor, batch: dict[str, Any]) -> None:
        if bool(torch.isfinite(value).all()):
            return
        texts = {
            name: self.processing_class.batch_decode(batch[f"{name}_ids"], skip_special_tokens=True)
            for name in ("prompt", "completion")
        }
        advantages = batch["advantages"].tolist()
        rows = [
            {"prompt": prompt, "completion": completion, "advantage": advantage}
            for prompt, completion, advantage in zip(texts["prompt"], texts["completion"], advantages, strict=True)
        ]
        stop_at(what, step=self.state.global_step, folder=self.args.output_dir, rows=rows)

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """The schedule over all of the role's phases, at the place where this one begins."""
        number, of = self.phase
        created = self.lr_scheduler is None
        scheduler = super().create_scheduler(num_training_steps * of, optimizer)
        if created and number > 0:
            start_schedule_at(scheduler, number * num_training_steps)
        return scheduler

    def _generate_single_turn(
        self, prompt_ids: Any, images: Any, multimodal_fields: Any, num_generations: int, has_tool_images: bool = False
    ) -> Any:
        if self.use_vllm and getattr(self.vllm_generation, "holds", self.model) is not self.model:
            self._last_loaded_step = -1  # the frozen Solver's weights are in the engine: push ours again
        size = len(prompt_ids)
        if self.max_sequences is not None and not self.use_vllm and images is None:
            size = self.max_sequences
        completion_ids, logprobs = [], None
        # Every rank has as many prompts, so all make as many calls.
        for start in range(0, len(prompt_ids), size):
            drawn, logprobs = super()._generate_single_turn(
                prompt_ids[start : start + size], images, multimodal_fields, num_generations, has_tool_images
            )
            completion_ids += drawn
        if self._stop_strings and logprobs is None:
            # TRL cuts after the end token; after a stop string there is none, and padding would be trained on.
            completion_ids = [_without_padding(ids, self._tokenizer.pad_token_id) for ids in completion_ids]
        return completion_ids, logprobs


def start_schedule_at(scheduler: Any, step: int) -> None:
    """Moves a fresh schedule forward, as if so many steps had been taken.

    Raises:
        PrismError: for a schedule that is no function of the step alone.
    """
    if not isinstance(scheduler, LambdaLR):
        raise PrismError(
            f"The schedule {type(scheduler).__name__} cannot run over several phases. Set `lr_schedule: phase`, or "
            "choose another `lr_scheduler_type`, such as cosine or constant_with_warmup."
        )

    def later(of_step: Callable[[int], float]) -> Callable[[int], float]:
        return lambda now: of_step(now + step)

    scheduler.lr_lambdas = [later(of_step) for of_step in scheduler.lr_lambdas]
    for group, base, of_step in zip(
        scheduler.optimizer.param_groups, scheduler.base_lrs, scheduler.lr_lambdas, strict=True
    ):
        group["lr"] = base * of_step(0)
    scheduler._last_lr = [group["lr"] for group in scheduler.optimizer.param_groups]


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
