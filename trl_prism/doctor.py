"""`trl-prism doctor`: whether this machine can do what a recipe asks, one line for each check."""

import argparse
import importlib.util
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from packaging.version import Version

from trl_prism import _compat
from trl_prism.config import PrismConfig, mapping
from trl_prism.console import plain_table, quiet_libraries, say
from trl_prism.domains import load_domain
from trl_prism.errors import PrismError, first_line
from trl_prism.ports.attention import resolve_attention
from trl_prism.ports.embedders import build_embedder
from trl_prism.ports.files import nearest_existing
from trl_prism.ports.models import load_frozen, load_tokenizer
from trl_prism.ports.ranks import state
from trl_prism.ports.samplers import SamplingParams, TransformersSampler
from trl_prism.recipe import parse_config


OK, WARNING, FAILURE = "ok", "warning", "failure"

# Versions that the tests run on. TRL and transformers are refused outside of `_compat`'s ranges.
TESTED = {
    "torch": ("2.13", "2.14"),
    "accelerate": ("1.10", "2"),
    "datasets": ("4.7", "6"),
    "peft": ("0.19", "1"),
    "sentence-transformers": ("5.4", "7"),
    "math-verify": ("0.9", "0.10"),
    "deepspeed": ("0.18", "0.20"),
    "vllm": ("0.22", "0.32"),
}
OPTIONAL = ("deepspeed", "vllm")


@dataclass(frozen=True)
class Finding:
    """What one check came to.

    Attributes:
        check (`str`): What was looked at.
        state (`str`): `ok`, `warning` or `failure`.
        detail (`str`): What was found, and what to do about it.
    """

    check: str
    state: str
    detail: str


def run(args: Sequence[str]) -> None:
    """Prints a line for each check; ends with exit code 1 where one failed."""
    parser = argparse.ArgumentParser(prog="trl-prism doctor", allow_abbrev=False, description=__doc__)
    parser.add_argument("--json", action="store_true", help="as JSON")
    own, rest = parser.parse_known_args(list(args))
    state(cpu=False)
    quiet_libraries()
    found = examine(parse_config(rest) if rest else None)
    if own.json:
        sys.stdout.write(json.dumps([asdict(finding) for finding in found], indent=2) + "\n")
    else:
        table = plain_table("check", "", "", right=0)
        for finding in found:
            table.add_row(finding.check, finding.state, finding.detail)
        say(table, width=100)
    if any(finding.state == FAILURE for finding in found):
        sys.exit(1)


def examine(config: PrismConfig | None = None) -> list[Finding]:
    """All checks of the machine; with a recipe also of what the recipe needs."""
    checks: list[tuple[str, Callable[[], tuple[str, str]]]] = [
        ("Python", _python),
        *((name, lambda name=name: _tested(name)) for name in TESTED),
        ("TRL and transformers", _ranges),
        ("accelerator", _accelerator),
        ("attention", lambda: _attention(config)),
        ("DeepSpeed's compiler", _compiler),
        ("memory", _memory),
        ("disk", lambda: _disk(config)),
        ("Hub", _hub),
        ("environment", _environment),
        ("PCIe", _pcie),
    ]
    if config is not None:
        checks += [
            ("embedder", lambda: _embedder(config)),
            ("generation and vote", lambda: _vote(config)),
        ]
    return [_finding(name, check) for name, check in checks]


def _finding(name: str, check: Callable[[], tuple[str, str]]) -> Finding:
    try:
        return Finding(name, *check())
    except (PrismError, ImportError, OSError, RuntimeError) as error:
        return Finding(name, FAILURE, first_line(error))


def _python() -> tuple[str, str]:
    return OK, f"{platform.python_version()} on {platform.system()} {platform.machine()}"


def _tested(name: str) -> tuple[str, str]:
    low, high = TESTED[name]
    try:
        found = Version(version(name))
    except PackageNotFoundError:
        if name in OPTIONAL:
            return OK, f"not installed; recipes that ask for it need pip install 'trl-prism[{name}]'"
        return FAILURE, f"not installed: pip install '{name}>={low},<{high}'"
    if Version(low) <= found < Version(high):
        return OK, str(found)
    return WARNING, f"{found} has not been tested: pip install '{name}>={low},<{high}' if something fails"


def _ranges() -> tuple[str, str]:
    _compat.check_versions()
    return OK, f"trl {version('trl')}, transformers {version('transformers')}"


def _accelerator() -> tuple[str, str]:
    if not torch.cuda.is_available():
        return WARNING, f"no GPU; torch {torch.__version__} runs on {os.cpu_count()} CPU cores, for the lab alone"
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    free = [torch.cuda.mem_get_info(i)[0] / 2**30 for i in range(len(names))]
    detail = f"{len(names)} x {names[0]}, CUDA {torch.version.cuda}, {min(free):.0f} GiB free on the fullest"
    if not torch.cuda.is_bf16_supported():
        return WARNING, f"{detail}; no bfloat16: set `bf16: false` and `dtype: float32`"
    return OK, detail


def _attention(config: PrismConfig | None) -> tuple[str, str]:
    asked = config.attn_implementation if config else "flash_attention_2"
    found = resolve_attention(asked, dtype=config.dtype if config else "bfloat16", strict=False)
    if found.reason:
        return WARNING, f"{found.asked} cannot run here: {found.reason}; {found.used} runs"
    return OK, f"{found.used or 'the one that transformers chooses'} runs"


def _compiler() -> tuple[str, str]:
    if importlib.util.find_spec("deepspeed") is None:
        return OK, "DeepSpeed is not installed, nothing is compiled"
    missing = [name for name in ("ninja", "g++") if shutil.which(name) is None]
    if missing:
        return WARNING, f"{' and '.join(missing)} not on PATH; ZeRO compiles operators at its first start"
    folder = os.environ.get("TORCH_EXTENSIONS_DIR", "~/.cache/torch_extensions")
    return OK, f"ninja and g++ are there; operators go to {folder}"


def _memory() -> tuple[str, str]:
    memory = psutil.virtual_memory()
    detail = f"{memory.available / 2**30:.1f} of {memory.total / 2**30:.1f} GiB free"
    return (OK, detail) if memory.available > 2 * 2**30 else (WARNING, f"{detail}; loading models may fail")


def _disk(config: PrismConfig | None) -> tuple[str, str]:
    place = nearest_existing(Path(config.output_dir if config else ".").absolute())
    with tempfile.TemporaryFile(dir=place if place.is_dir() else place.parent):
        pass
    free = shutil.disk_usage(place).free
    detail = f"{free / 2**30:.1f} GiB free at {place}"
    return (OK, detail) if free > 2**30 else (WARNING, f"{detail}; `trl-prism plan` says what a recipe needs")


def _hub() -> tuple[str, str]:
    from huggingface_hub import constants, get_token

    token = (
        "with a token" if get_token() else "without a token: gated models and pushes fail, `hf auth login` mends it"
    )
    if constants.HF_HUB_OFFLINE:
        return OK, f"offline (HF_HUB_OFFLINE), {token}"
    return OK, f"online, {token}"


def _environment() -> tuple[str, str]:
    """Launch settings that are known to hurt, or to help."""
    hurts, helps = [], []
    if os.environ.get("CUDA_LAUNCH_BLOCKING") == "1":
        hurts.append("CUDA_LAUNCH_BLOCKING=1 makes every kernel wait; unset it outside of debugging")
    if os.environ.get("NCCL_P2P_DISABLE") == "1" or os.environ.get("NCCL_IB_DISABLE") == "1":
        hurts.append("NCCL_P2P_DISABLE or NCCL_IB_DISABLE is set: ranks talk through the host")
    if os.environ.get("TORCH_DISTRIBUTED_DEBUG") == "DETAIL":
        hurts.append("TORCH_DISTRIBUTED_DEBUG=DETAIL checks every collective")
    if torch.cuda.is_available() and torch.cuda.device_count() > 1 and not os.environ.get("NCCL_IGNORE_CPU_AFFINITY"):
        helps.append("NCCL_IGNORE_CPU_AFFINITY=1 lets NCCL's threads leave the launcher's cores")
    threads = os.environ.get("OMP_NUM_THREADS")
    if threads is None or int(threads) > max(1, (os.cpu_count() or 1) // 2):
        helps.append("OMP_NUM_THREADS=1 keeps several processes from slowing each other down")
    if hurts:
        return WARNING, "; ".join(hurts + helps)
    return OK, "; ".join(helps) or "nothing that hurts is set"


def _pcie() -> tuple[str, str]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return OK, "no NVIDIA tools here, nothing to look at"
    import subprocess

    asked = "--query-gpu=index,pcie.link.width.current,pcie.link.width.max"
    out = subprocess.run(
        [tool, asked, "--format=csv,noheader"], capture_output=True, text=True, timeout=30, check=True
    )
    narrow = [line for line in out.stdout.splitlines() if line.split(",")[1].strip() not in ("16", "[N/A]")]
    if narrow:
        return WARNING, f"link width below x16 (index, now, at most): {'; '.join(narrow)}; look at slot and riser"
    return OK, "every link is x16"


def _embedder(config: PrismConfig) -> tuple[str, str]:
    domain = load_domain(config.domain, **mapping(config.domain_kwargs))
    reference = domain.reference_questions()
    embedder = build_embedder(
        config.embedder, reference=reference, revision=config.embedder_revision, **mapping(config.embedder_kwargs)
    )
    once, again = (embedder.embed(reference[:8]) for _ in range(2))
    if not np.isfinite(once).all():
        return FAILURE, "its embeddings are not finite: try `embedder_kwargs: {dtype: float32}`"
    model: Any = getattr(embedder, "model", None)
    trained = [p for p in model.parameters() if p.requires_grad] if isinstance(model, torch.nn.Module) else []
    if trained or not np.allclose(once, again, atol=1e-3):
        return FAILURE, "it is not frozen: two passes over the same questions differ, or its weights have gradients"
    return OK, f"{embedder.fingerprint}, frozen, {once.shape[1]} dimensions, finite"


def _vote(config: PrismConfig) -> tuple[str, str]:
    """One question, a few answers, one vote, with the recipe's own model."""
    domain = load_domain(config.domain, **mapping(config.domain_kwargs))
    tokenizer = load_tokenizer(config.model_name_or_path, eos_token=config.eos_token, **config.base_kwargs)
    model = load_frozen(config.model_name_or_path, dtype=config.dtype, **config.base_kwargs)
    params = SamplingParams(max_tokens=min(64, config.role_settings("solver")["max_completion_length"]))
    [drawn] = TransformersSampler(model, tokenizer, batch_size=4).sample(
        [domain.solver_prompt(domain.example_question())], num_samples=4, params=params, seed=0
    )
    [vote] = domain.vote_all([[domain.extract_answer(completion.text) for completion in drawn]])
    return OK, f"4 answers of at most {params.max_tokens} tokens: {vote.answer!r} with agreement {vote.agreement:.2f}"
