"""Every name of TRL and transformers that is not part of their public interface, in one place.

`tests/unit/test_compat.py` checks that each exists and has the signature that is relied on here.
"""

import contextlib
from collections.abc import Iterator

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
    "save_model": ("self", "output_dir", "_internal_call"),
    "create_scheduler": ("self", "num_training_steps", "optimizer"),
    "_calculate_rewards": ("self", "inputs", "prompts", "completions", "completion_ids_list"),
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
def outside_zero3_init() -> Iterator[None]:
    """Loads models whole, also where the process trains under ZeRO-3.

    Otherwise transformers would shard every model that is loaded, and an embedder whose weights are empty on this rank
    fails with "'weight' must be 2-D".
    """
    from transformers.integrations import deepspeed

    if not deepspeed.is_deepspeed_zero3_enabled():
        yield
        return
    reference = deepspeed._hf_deepspeed_config_weak_ref
    deepspeed.unset_hf_deepspeed_config()
    try:
        yield
    finally:
        deepspeed._hf_deepspeed_config_weak_ref = reference
