"""TRL's colocated vLLM engine, shared by a run's trainers and its frozen models. Not yet run on a GPU.

vLLM does not give its memory back when an engine is deleted, so there is one engine for the whole run: the trainer of
a phase has it for its own completions, and the frozen Solver's weights are swapped in for votes.
"""

import importlib.util
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from trl.distributed import DistributedBackend
from trl.generation.vllm_generation import VLLMGeneration

from trl_prism.errors import PrismError
from trl_prism.ports.ranks import state
from trl_prism.ports.samplers import Completion, SamplingParams, encode
from trl_prism.ports.texts import Prompt


if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# What a draw for a frozen model changes of the engine, and puts back.
_BORROWED = (
    "model", "accelerator", "_dist", "temperature", "top_p", "top_k", "min_p", "repetition_penalty",
    "max_completion_length", "logprobs", "generation_kwargs", "structured_outputs_regex",
)  # fmt: skip


class SharedEngine(VLLMGeneration):
    """[`VLLMGeneration`](trl.generation.vllm_generation) in colocated mode, for more than one model of one shape.

    Attributes:
        holds (`PreTrainedModel`, *optional*): The model whose weights were pushed last.
    """

    holds: Any = None

    def sync_weights(self) -> None:
        super().sync_weights()
        self.holds = self.model

    def adopt(self, **settings: Any) -> "SharedEngine":
        """The engine for a trainer's model and sampling settings: takes what `VLLMGeneration` takes.

        What vLLM fixes when it starts (memory, lengths, sequences) stays as it was.
        """
        fixed = {"mode", "tensor_parallel_size", "gpu_memory_utilization", "max_model_length", "max_num_seqs",
                 "enable_sleep_mode", "model_impl", "trust_remote_code"}  # fmt: skip
        for name, value in settings.items():
            if name not in fixed:
                setattr(self, name, value)
        self.generation_kwargs = settings.get("generation_kwargs") or {}
        self._dist = DistributedBackend(self.accelerator)
        self.holds = None
        return self

    def release(self) -> None:
        """Lets go of a trainer whose phase is over, and of its model."""
        self.model = self.holds = None
        self.accelerator, self._dist = _whole(), DistributedBackend(_whole())

    def draw(
        self,
        model: "PreTrainedModel",
        ids: Sequence[list[int]],
        *,
        num_samples: int,
        params: SamplingParams,
        seed: int,
    ) -> list[list[int]]:
        """Token ids of `num_samples` completions for each prompt, in order, under a model that is whole on this rank.

        No collective: ranks may draw more or less often. A trainer that has the engine pushes its own weights again
        before its next completions ([`~trl_prism.trainers.role.RoleTrainer`]).
        """
        # A prompt is given once and answered n times: of repeated prompts with one seed all completions were equal.
        # Greedily vLLM takes n = 1 only.
        n = num_samples if params.temperature > 0 else 1
        before = {name: getattr(self, name) for name in _BORROWED}
        whole = _whole()
        try:
            self.model, self.accelerator, self._dist = model, whole, DistributedBackend(whole)
            self.temperature, self.top_p, self.top_k = params.temperature, params.top_p, params.top_k
            self.min_p, self.repetition_penalty, self.structured_outputs_regex = None, 1.0, None
            self.max_completion_length, self.logprobs = params.max_tokens, None
            self.generation_kwargs = {"n": n, "seed": seed, **stop_kwargs(params.stop)}
            if self.holds is not model and not self._llm_weights_sleeping:  # asleep, `generate` pushes them itself
                self.sync_weights()
            _, drawn, _, _ = self.generate(prompts=list(ids), images=None, num_generations=n)
        finally:
            for name, value in before.items():
                setattr(self, name, value)
        return [row for row in map(list, drawn) for _ in range(num_samples // n)]


def installed() -> bool:
    """Whether vLLM is there."""
    return importlib.util.find_spec("vllm") is not None


def start_engine(
    model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", *, max_model_length: int, **settings: Any
) -> SharedEngine:
    """Starts the run's engine, for models of this shape that are whole on every rank.

    Args:
        model (`PreTrainedModel`): A model of the run.
        tokenizer (`PreTrainedTokenizerBase`): Its tokenizer.
        max_model_length (`int`): Most tokens of a prompt and its completion together, for training and for votes.
        settings: `gpu_memory_utilization`, `enable_sleep_mode`, `model_impl`, `trust_remote_code` of TRL's engine.

    Raises:
        PrismError: if vLLM is not installed.
    """
    try:
        return SharedEngine(
            model=model,
            accelerator=_whole(),
            processing_class=tokenizer,
            mode="colocate",
            max_model_length=max_model_length,
            **settings,
        )
    except ImportError as error:
        raise PrismError("`use_vllm` needs vLLM: pip install 'trl-prism[vllm]'.") from error


class ColocatedSampler:
    """Draws for a frozen model with the run's shared engine.

    Args:
        engine ([`SharedEngine`]): The engine.
        model (`PreTrainedModel`): The frozen model, whole; it may lie on the CPU, it is only pushed from there.
        tokenizer (`PreTrainedTokenizerBase`): Its tokenizer; prompts are encoded here, as for training.
    """

    def __init__(self, engine: SharedEngine, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase"):
        self.engine = engine
        self.model = model
        self.tokenizer = tokenizer

    def sample(
        self,
        prompts: Sequence[Prompt],
        *,
        num_samples: int,
        params: SamplingParams,
        seed: int,
        on_progress: Callable[[int], None] | None = None,
    ) -> list[list[Completion]]:
        if not prompts:
            return []
        rows = self.engine.draw(
            self.model, encode(self.tokenizer, prompts), num_samples=num_samples, params=params, seed=seed
        )
        ends = {self.tokenizer.eos_token_id, *_listed(self.model.generation_config.eos_token_id)}
        texts = self.tokenizer.batch_decode(rows, skip_special_tokens=True)
        drawn = [
            Completion(
                text,
                len(ids) >= params.max_tokens
                and ids[-1] not in ends
                and not (params.stop and text.endswith(params.stop)),
            )
            for ids, text in zip(rows, texts, strict=True)
        ]
        if on_progress:
            on_progress(len(drawn))
        return [drawn[start : start + num_samples] for start in range(0, len(drawn), num_samples)]


class VllmSampler:
    """Draws with an offline engine of its own, as evaluation outside of a run does. Not yet run on a GPU.

    Args:
        path (`str`): Hub id or folder of the model.
        tokenizer (`PreTrainedTokenizerBase`): Its tokenizer; prompts are encoded here, as for training.
        kwargs: Passed to `vllm.LLM`.
    """

    def __init__(self, path: str, tokenizer: "PreTrainedTokenizerBase", **kwargs: Any):
        try:
            from vllm import LLM
        except ImportError as error:
            raise PrismError("The engine `vllm` is not installed: pip install 'trl-prism[vllm]'.") from error
        self.engine = LLM(model=path, **kwargs)
        self.tokenizer = tokenizer

    def sample(
        self,
        prompts: Sequence[Prompt],
        *,
        num_samples: int,
        params: SamplingParams,
        seed: int,
        on_progress: Callable[[int], None] | None = None,
    ) -> list[list[Completion]]:
        from vllm import SamplingParams as VllmParams

        drawn = VllmParams(
            n=num_samples,
            max_tokens=params.max_tokens,
            temperature=params.temperature,
            top_p=params.top_p,
            top_k=params.top_k,
            seed=seed,
            **stop_kwargs(params.stop),
        )
        inputs = [{"prompt_token_ids": ids} for ids in encode(self.tokenizer, prompts)]
        outputs = self.engine.generate(inputs, drawn, use_tqdm=False)
        if on_progress:
            on_progress(len(prompts) * num_samples)
        return [[Completion(o.text, o.finish_reason == "length") for o in output.outputs] for output in outputs]


def stop_kwargs(stop: Sequence[str]) -> dict[str, Any]:
    """Stop strings as vLLM takes them; they stay in the completion, as they do with `model.generate`."""
    return {"stop": list(stop), "include_stop_str_in_output": True} if stop else {}


def _listed(ids: int | list[int] | None) -> list[int]:
    return [ids] if isinstance(ids, int) else list(ids or [])


def _whole() -> Any:
    """accelerate's processes as TRL's engine asks for them, for a model of which no rank holds only a part."""
    found = state()
    names = ("num_processes", "process_index", "local_process_index", "is_main_process", "device", "wait_for_everyone")
    return SimpleNamespace(
        state=SimpleNamespace(deepspeed_plugin=None, fsdp_plugin=None),
        **{name: getattr(found, name) for name in names},
    )
