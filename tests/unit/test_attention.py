import pytest
import torch

from trl_prism.errors import PrismError
from trl_prism.ports.attention import Attention, resolve_attention


def test_what_can_run_is_left_alone():
    for asked in (None, "sdpa", "eager"):
        assert resolve_attention(asked, dtype="float32") == Attention(asked, asked)


@pytest.mark.skipif(torch.cuda.is_available(), reason="flash attention may run here")
def test_flash_attention_without_cuda_is_sdpa_and_says_why():
    found = resolve_attention("flash_attention_2", dtype="bfloat16")
    assert found == Attention("flash_attention_2", "sdpa", "there is no CUDA device")
    with pytest.raises(PrismError, match=r"flash_attention_2` cannot run here: there is no CUDA device"):
        resolve_attention("flash_attention_2", dtype="bfloat16", strict=True)


def test_the_reasons_on_a_machine_with_cuda(monkeypatch):
    from transformers.utils import import_utils

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(import_utils, "is_flash_attn_2_available", lambda: False)
    monkeypatch.setattr(import_utils, "is_kernels_available", lambda: False)
    assert "needs float16 or bfloat16" in resolve_attention("flash_attention_2", dtype="float32").reason
    assert "neither the package" in resolve_attention("flash_attention_2", dtype="bfloat16").reason
    monkeypatch.setattr(import_utils, "is_kernels_available", lambda: True)
    assert resolve_attention("flash_attention_2", dtype="bfloat16").used == "flash_attention_2"
