"""What cannot work with the model, the tokenizer and the folders that a recipe names: found before weights are loaded.

What the settings alone show is in [`trl_prism.violations`][].
"""

import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trl_prism.config import ROLES, PrismConfig
from trl_prism.core.partition import Partition
from trl_prism.domains.base import Domain
from trl_prism.errors import PrismError, all_messages, raise_all
from trl_prism.plan.sizes import Launch, Shape, disk_of, shape_of, trained_parameters
from trl_prism.ports import vllm
from trl_prism.ports.files import nearest_existing
from trl_prism.ports.models import load_tokenizer
from trl_prism.ports.samplers import encode
from trl_prism.run_dir import RunDirectory


GIB = 2**30


def check(config: PrismConfig, domain: Domain, launch: Launch) -> Shape:
    """Raises [`PrismError`] with all that cannot work; returns the base model's shape."""
    tokenizer: Any = None
    shape: Shape | None = None

    def load_words() -> None:
        nonlocal tokenizer
        tokenizer = load_tokenizer(config.model_name_or_path, eos_token=config.eos_token, **config.base_kwargs)

    def load_shape() -> None:
        nonlocal shape
        shape = shape_of(config.model_name_or_path, **config.base_kwargs)

    messages = all_messages(load_shape) or all_messages(load_words)
    checks: list[Callable[[], object]] = [
        lambda: RunDirectory(config.output_dir).check(resume=config.resume_from_checkpoint),
        lambda: check_corpus(config, domain),
        lambda: _partition(config),
        lambda: _engine(config),
    ]
    # Without a template that works there are no prompts to measure.
    template = all_messages(lambda: check_template(tokenizer, domain)) if tokenizer is not None else []
    if shape is not None:
        checks.append(lambda: trained_parameters(config, shape))
        checks.append(lambda: check_disk(config, shape, launch))
        if tokenizer is not None and not template:
            checks.append(lambda: check_lengths(config, domain, tokenizer, shape))
    raise_all([*messages, *template, *all_messages(*checks)], what="things cannot work")
    assert shape is not None  # or it would have been said
    return shape


def check_template(tokenizer: Any, domain: Domain) -> None:
    """Raises [`PrismError`] for messages without a template, or a template that ends turns with another token."""
    if isinstance(domain.solver_prompt("1 + 1"), str):
        return
    if not tokenizer.chat_template:
        raise PrismError(
            "The tokenizer has no chat template, and the domain writes messages. For a base model set `domain_kwargs: "
            "{prompt_format: text}`, or start from a model with a template."
        )
    answer = "THE-ANSWER"
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "1 + 1"}, {"role": "assistant", "content": answer}], tokenize=False
    )
    end = text.rpartition(answer)[2]
    if tokenizer.eos_token not in end:
        others = [token for token in (*tokenizer.all_special_tokens, *tokenizer.get_added_vocab()) if token in end]
        way_out = f"set `eos_token: {others[0]!r}`" if others else "set `eos_token` to the token that ends a turn"
        raise PrismError(
            f"The chat template ends a turn with {end.strip()!r}, and the end token is {tokenizer.eos_token!r}: no "
            f"completion would end. If the model ends its turns as the template does, {way_out}."
        )


def check_lengths(config: PrismConfig, domain: Domain, tokenizer: Any, shape: Shape) -> None:
    """Raises [`PrismError`] for prompts and completions that are together longer than the model or the engine."""
    question = len(encode(tokenizer, [domain.questioner_prompt()])[0])
    roles = {role: config.role_settings(role)["max_completion_length"] for role in ("questioner", "solver")}
    needs = {
        "questioner.max_completion_length": (question, roles["questioner"]),
        "solver.max_completion_length": (config.max_prompt_length, roles["solver"]),
        "max_answer_length": (config.max_prompt_length, config.answer_length),
    }
    engine = config.role_settings("solver").get("vllm_max_model_length")
    for limit, name in ((shape.max_positions, "the model knows"), (engine, "`vllm_max_model_length` allows")):
        for name_of_field, (prompt, completion) in needs.items():
            if limit is not None and prompt + completion > limit:
                prompts = (
                    "its prompt has" if name_of_field.startswith("q") else "prompts may have (`max_prompt_length`)"
                )
                raise PrismError(
                    f"`{name_of_field}` is {completion}, and {prompts} {prompt} tokens, {prompt + completion} in all, "
                    f"more than the {limit} that {name}. The nearest that fits is {max(limit - prompt, 0)}."
                )


def check_corpus(config: PrismConfig, domain: Domain) -> None:
    """Raises [`PrismError`] for more clusters than the reference corpus has different questions."""
    if config.partition_path:
        return
    distinct = len(set(domain.reference_questions()))
    if distinct < config.num_clusters:
        raise PrismError(
            f"`num_clusters` is {config.num_clusters}, and the reference corpus has {distinct} different questions; "
            f"at most {distinct} clusters can be made."
        )


def check_disk(config: PrismConfig, shape: Shape, launch: Launch) -> None:
    """Raises [`PrismError`] if the models and checkpoints of the run do not fit on the disk."""
    folder = Path(config.output_dir).absolute()
    place = nearest_existing(folder)
    needed, free = disk_of(config, shape, launch).total, shutil.disk_usage(place).free
    here = sum(file.stat().st_size for file in folder.rglob("*.safetensors")) if folder.is_dir() else 0
    if needed > free + here:
        raise PrismError(
            f"The run keeps up to {needed / GIB:.1f} GiB of models and checkpoints, and {place} has {free / GIB:.1f} "
            "GiB free. Choose another `output_dir`, keep fewer rounds (`keep_rounds: 2`), fewer checkpoints "
            "(`save_total_limit: 2`), or 16-bit hand-overs (`handoff_dtype: bfloat16`)."
        )


def _partition(config: PrismConfig) -> None:
    if config.partition_path:
        Partition.load(config.partition_path).check_num_clusters(config.num_clusters)


def _engine(config: PrismConfig) -> None:
    used = any(config.role_settings(role).get("use_vllm") for role in ROLES)
    if used and not vllm.installed():
        raise PrismError("`use_vllm` needs vLLM, which is not installed: pip install 'trl-prism[vllm]'.")
    if config.vote_engine == "server" and importlib.util.find_spec("openai") is None:
        raise PrismError("`vote_engine: server` needs a client: pip install 'trl-prism[server]'.")
