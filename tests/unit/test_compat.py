"""Every private name of TRL and transformers that is relied on, with its signature."""

import importlib.util
import inspect
import re

import pytest
from transformers.integrations import deepspeed
from trl import GRPOTrainer
from trl.generation.vllm_generation import VLLMGeneration

from trl_prism import _compat
from trl_prism.ports import vllm


@pytest.mark.parametrize(("name", "parameters"), _compat.OVERRIDDEN.items())
def test_signatures_of_overridden_methods(name, parameters):
    assert tuple(inspect.signature(getattr(GRPOTrainer, name)).parameters) == parameters


@pytest.mark.parametrize(("name", "parameters"), _compat.VLLM_GENERATION.items())
def test_signatures_of_the_vllm_engine(name, parameters):
    assert tuple(inspect.signature(getattr(VLLMGeneration, name)).parameters) == parameters


def test_what_the_shared_engine_sets_is_what_the_engine_reads():
    source = inspect.getsource(VLLMGeneration)
    for name in (*vllm._BORROWED, "llm", "_llm_weights_sleeping", "processing_class"):
        assert f"self.{name} = " in source and source.count(f"self.{name}") > 1, name
    # `n` of the generation settings stands over the engine's own, and one rank draws all completions of its prompts.
    assert "generation_kwargs.update(self.generation_kwargs)" in source
    assert "[output.token_ids for outputs in all_outputs for output in outputs.outputs]" in source
    assert "self.vllm_generation = VLLMGeneration(" in inspect.getsource(GRPOTrainer.__init__)


def test_names_of_vllm_itself():
    sampling = set(_compat.VLLM_NAMES["SamplingParams"])
    assert set(vllm.stop_kwargs(["x"])) <= sampling
    source = inspect.getsource(VLLMGeneration)
    for name in re.findall(
        r'"(\w+)": (?:1,|repetition_penalty|temperature|top_p|top_k|0\.0 if|max_completion|self\.logprobs)', source
    ):
        assert name in {*sampling, "structured_outputs_regex"}, name
    for name, arguments in _compat.VLLM_NAMES.items():
        if name.startswith("LLM."):
            assert f"self.llm.{name[4:]}(" in source, name
            assert all(f"{argument}=" in source for argument in arguments if argument != "prompts"), name


@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM needs a GPU machine")
def test_the_installed_vllm_has_these_names():
    import vllm as installed

    for name, arguments in _compat.VLLM_NAMES.items():
        owner, _, method = name.partition(".")
        found = getattr(installed, owner)
        found = getattr(found, method) if method else found
        assert set(arguments) <= set(inspect.signature(found).parameters), name


def test_attributes_that_are_used():
    source = inspect.getsource(GRPOTrainer)
    for name in ("self._tokenizer", "get_config_model_id(self.model.config)", "_tag_names", "self.ref_model"):
        assert name in source, name
    assert hasattr(deepspeed, "_hf_deepspeed_config_weak_ref") and callable(deepspeed.unset_hf_deepspeed_config)


def test_loss_types_are_those_that_trl_knows():
    source = inspect.getsource(GRPOTrainer._compute_loss)
    known = {
        word
        for words in re.findall(r"self\.loss_type (?:==|in) (.+?):", source)
        for word in re.findall(r'"(\w+)"', words)
    }
    assert known == set(_compat.LOSS_TYPES)


def test_versions_are_in_range():
    _compat.check_versions()


def test_a_version_out_of_range_is_refused(monkeypatch):
    monkeypatch.setattr(_compat.trl, "__version__", "1.17.0")
    with pytest.raises(ImportError, match=r"trl>=1.16,<1.17, found 1.17.0"):
        _compat.check_versions()
