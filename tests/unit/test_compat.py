"""Every private name of TRL and transformers that is relied on, with its signature."""

import inspect

import pytest
from transformers.integrations import deepspeed
from trl import GRPOTrainer

from trl_prism import _compat


@pytest.mark.parametrize(("name", "parameters"), _compat.OVERRIDDEN.items())
def test_signatures_of_overridden_methods(name, parameters):
    assert tuple(inspect.signature(getattr(GRPOTrainer, name)).parameters) == parameters


def test_attributes_that_are_used():
    source = inspect.getsource(GRPOTrainer)
    for name in ("self._tokenizer", "get_config_model_id(self.model.config)", "_tag_names", "self.ref_model"):
        assert name in source, name
    assert hasattr(deepspeed, "_hf_deepspeed_config_weak_ref") and callable(deepspeed.unset_hf_deepspeed_config)


def test_versions_are_in_range():
    _compat.check_versions()


def test_a_version_out_of_range_is_refused(monkeypatch):
    monkeypatch.setattr(_compat.trl, "__version__", "1.17.0")
    with pytest.raises(ImportError, match=r"trl>=1.16,<1.17, found 1.17.0"):
        _compat.check_versions()
