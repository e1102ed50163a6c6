"""Every name of TRL and transformers that is not part of their public interface, in one place.

`tests/unit/test_compat.py` checks that each exists and has the signature that is relied on here.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import transformers
import trl
from packaging.version import Version


TRL_RANGE = (Version("1.16"), Version("1.17"))
TRANSFORMERS_RANGE = (Version("5.10.4"), Version("5.25"))

# Methods of `GRPOTrainer` that our trainers override or call, with the parameters that they rely on.
OVERRIDDEN = {
    "_save": ("self", "output_dir", "state_dict"),
    "_save_checkpoint": ("self", "model", "trial"),
    "_load_optimizer_and_scheduler": ("self", "checkpoint"),
    "_generate_single_turn": (
        "self",
        "prompt_ids",
        "images",
        "multimodal_fields",
        "num_generations",
        "has_tool_images",
    ),
    "_generate_and_score_completions": ("self", "inputs"),
    "compute_loss": ("self", "model", "inputs", "return_outputs", "num_items_in_batch"),
    "save_model": ("self", "output_dir", "_internal_call"),
    "create_scheduler": ("self", "num_training_steps", "optimizer"),
    "_calculate_rewards": ("self", "inputs", "prompts", "completions", "completion_ids_list"),
}

# What TRL takes, and finds out about in the first step of a phase.
LOSS_TYPES = ("grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo", "luspo", "vespo")
SCALE_REWARDS = ("group", "batch", "none", True, False)

# What [`~trl_prism.ports.vllm.SharedEngine`] relies on of TRL's `VLLMGeneration`.
VLLM_GENERATION = {
    "_init_vllm": ("self",),
    "sync_weights": ("self",),
    "generate": ("self", "prompts", "images", "num_generations", "profiler"),
}

# What it, TRL's engine and [`~trl_prism.ports.vllm.VllmSampler`] use of vLLM itself, as recorded from vllm 0.31.0
# (the newest that TRL 1.16 takes); the test looks at the installed one where there is one.
VLLM_NAMES = {
    "LLM.generate": ("prompts", "sampling_params", "use_tqdm"),
    "LLM.sleep": ("level",),
    "LLM.wake_up": ("tags",),
    "LLM.reset_prefix_cache": (),
    "SamplingParams": (
        *("n", "repetition_penalty", "temperature", "top_p", "top_k", "min_p", "seed", "stop"),
        *("max_tokens", "logprobs", "include_stop_str_in_output", "structured_outputs"),
    ),
}


def check_versions() -> None:
    """Raises `ImportError` for a TRL or transformers outside of the tested range."""
    for module, (low, high) in ((trl, TRL_RANGE), (transformers, TRANSFORMERS_RANGE)):
        found = Version(module.__version__)
        if not low <= found < high:
            raise ImportError(
                f"trl-prism works with {module.__name__}>={low},<{high}, found {found}: "
                f"pip install '{module.__name__}>={low},<{high}'."
            )


@contextlib.contextmanager
def whole_on_every_rank() -> Iterator[None]:
    """Loads models whole on every rank, also where the process trains under ZeRO-3 or FSDP.

    Under ZeRO-3 transformers would shard every model that is loaded, and an embedder whose weights are empty on this
    rank fails with "'weight' must be 2-D". Under FSDP with `fsdp_cpu_ram_efficient_loading` it may load weights on the
    first rank alone, for FSDP to send them on; a model that FSDP never sees would be empty on the others.
    """
    from transformers.integrations import deepspeed

    flag = "FSDP_CPU_RAM_EFFICIENT_LOADING"
    efficient = os.environ.get(flag)
    reference = deepspeed._hf_deepspeed_config_weak_ref if deepspeed.is_deepspeed_zero3_enabled() else None
    if efficient is not None:
        os.environ[flag] = "false"
    if reference is not None:
        deepspeed.unset_hf_deepspeed_config()
    try:
        yield
    finally:
        if efficient is not None:
            os.environ[flag] = efficient
        if reference is not None:
            deepspeed._hf_deepspeed_config_weak_ref = reference


@contextlib.contextmanager
def vllm_made_by(build: Callable[..., Any]) -> Iterator[None]:
    """While a trainer is made, it gets its vLLM engine from `build`, which is called as `VLLMGeneration` would be.

    `GRPOTrainer` takes no engine: without this every phase would start one more, whose memory is never given back.
    """
    from trl.trainer import grpo_trainer

    made = grpo_trainer.VLLMGeneration
    grpo_trainer.VLLMGeneration = build
    try:
        yield
    finally:
        grpo_trainer.VLLMGeneration = made
