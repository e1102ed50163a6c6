"""Bytes of a run, by formulas from the model's shape. No weights are loaded.

Symbols: `P` parameters, `T` trained ones, `b` bytes of a weight in `dtype`, `R` ranks, `B` completions per forward
pass, `S` tokens of prompt and completion, `L` layers, `H` hidden size, `V` vocabulary, `E` embeddings' share.
"""

from dataclasses import dataclass, field
from typing import Any

import torch

from trl_prism._compat import whole_on_every_rank
from trl_prism.errors import PrismError, first_line


BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "auto": 2}

# AdamW holds two numbers for every trained weight.
ADAM_STATES = 2


@dataclass(frozen=True)
class Shape:
    """What of a model decides its bytes.

    Attributes:
        num_parameters (`int`): `P`; tied weights count once.
        num_layers, hidden_size, vocab_size (`int`): `L`, `H`, `V`.
        kv_size (`int`): Numbers that the cache keeps for one token in one layer, keys and values together.
        attention (`str`): The one that transformers chooses where none is asked for.
        max_positions (`int`, *optional*): Longest sequence that the model knows; `None` where it does not say.
        linear_sizes (`dict[str, tuple[int, int]]`): Inputs and outputs of every linear layer but the head, by name.
    """

    num_parameters: int
    num_layers: int
    hidden_size: int
    vocab_size: int
    kv_size: int
    max_positions: int | None
    attention: str
    linear_sizes: dict[str, tuple[int, int]] = field(repr=False)


def shape_of(path: str, *, revision: str = "main", trust_remote_code: bool = False) -> Shape:
    """The shape of a model from its configuration, built without memory.

    Raises:
        PrismError: if there is no model at the path.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        config = AutoConfig.from_pretrained(path, revision=revision, trust_remote_code=trust_remote_code)
        with whole_on_every_rank(), torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, trust_remote_code=trust_remote_code)
    except (OSError, ValueError, ImportError) as error:
        raise PrismError(
            f"The configuration of the model {path!r} cannot be read: {first_line(error).rstrip(' .:')}. Give a "
            "folder with a model in it, or an id on the Hub (with a network, and logged in where the repository is "
            "gated)."
        ) from error
    text = config.get_text_config()
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    head_size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    head = model.get_output_embeddings()
    linear = {
        name: (module.in_features, module.out_features)
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and module is not head
    }
    return Shape(
        num_parameters=sum(parameter.numel() for parameter in model.parameters()),
        num_layers=text.num_hidden_layers,
        hidden_size=text.hidden_size,
        vocab_size=text.vocab_size,
        kv_size=2 * heads * head_size,
        max_positions=getattr(text, "max_position_embeddings", None),
        attention=str(model.config._attn_implementation),
        linear_sizes=linear,
    )


def adapter_parameters(shape: Shape, *, rank: int, targets: list[str] | None) -> int:
    """Weights of LoRA adapters: `r (in + out)` for each linear layer that is meant.

    Raises:
        PrismError: if the targets name no layer.
    """
    meant = [
        sizes
        for name, sizes in shape.linear_sizes.items()
        if targets is None or "all-linear" in targets or any(name == t or name.endswith(f".{t}") for t in targets)
    ]
    if not meant:
        known = sorted({name.rsplit(".", 1)[-1] for name in shape.linear_sizes})
        raise PrismError(
            f"`lora_target_modules` is {targets}, which names no linear layer of the model; it has {', '.join(known)}."
        )
    return sum(rank * (n_in + n_out) for n_in, n_out in meant)


@dataclass(frozen=True)
class Launch:
    """How a run is launched: `kind` is `none`, `ddp`, `zero2`, `zero3` or `fsdp2`."""

    num_ranks: int = 1
    kind: str = "none"


@dataclass(frozen=True)
class Memory:
    """Bytes of one rank while a role trains, by part, each with its formula."""

    parts: dict[str, tuple[int, str]]

    @property
    def total(self) -> int:
        """Completions are drawn, votes are drawn, and batches are trained on in turn: the largest of these counts."""
        turns = (("cache of completions",), ("frozen Solver's cache",), ("activations", "logits"))
        largest = max(sum(self.parts[name][0] for name in turn if name in self.parts) for turn in turns)
        passing = {name for turn in turns for name in turn}
        return largest + sum(size for name, (size, _) in self.parts.items() if name not in passing)


def planned_args(config: Any, role: str, *, num_ranks: int) -> Any:
    """A role's `GRPOConfig` on so many ranks, also on a machine that could not run it."""
    return config.role_config(role, output_dir="unused", seed=0, num_ranks=num_ranks, for_this_machine=False)


def memory_of(config: Any, role: str, shape: Shape, launch: Launch) -> Memory:
    """What one rank holds at the peak of a role's phase.

    Parameters, gradients and optimizer are exact; activations are an upper estimate (every layer's input is kept, and
    one layer's inner values; without checkpointing all layers' are); fragmentation and the libraries' own are not in.
    """
    settings = config.role_settings(role)
    args = planned_args(config, role, num_ranks=launch.num_ranks)
    p, trained = shape.num_parameters, trained_parameters(config, shape)
    weight = BYTES.get(config.dtype, 4)
    deepspeed = launch.kind in ("zero2", "zero3")
    if deepspeed:
        weight = 2 if settings.get("bf16") or settings.get("fp16") else weight
    shards = launch.num_ranks if launch.kind in ("zero3", "fsdp2") else 1
    optimizer_shards = launch.num_ranks if launch.kind in ("zero2", "zero3", "fsdp2") else 1
    state = 4 if deepspeed or config.use_peft else weight
    parts = {"parameters": (p * weight // shards, f"P x {weight} / {shards}")}
    parts["gradients"] = (trained * weight // optimizer_shards, f"T x {weight} / {optimizer_shards}")
    parts["optimizer"] = (ADAM_STATES * trained * state // optimizer_shards, f"2 x T x {state} / {optimizer_shards}")
    if deepspeed:
        parts["32-bit weights"] = (trained * 4 // optimizer_shards, f"T x 4 / {optimizer_shards}")
    if settings["beta"] and not config.use_peft:
        parts["KL reference"] = (p * weight // shards, f"P x {weight} / {shards}")
    if config.vote_engine == "transformers" and role == "questioner":
        frozen = BYTES.get(config.dtype, 4)
        parts["frozen Solver"] = (p * frozen, f"P x {frozen}")
        answer = config.max_prompt_length + config.answer_length
        cache = config.sampling_batch_size * answer * shape.num_layers * shape.kv_size * frozen
        parts["frozen Solver's cache"] = (
            cache,
            f"{config.sampling_batch_size} x {answer} tokens x L x {shape.kv_size} x {frozen}",
        )
    length = _longest(config, role)
    if not settings.get("use_vllm"):
        drawn = min(config.sampling_batch_size, args.per_device_train_batch_size * args.steps_per_generation)
        cache = drawn * length * shape.num_layers * shape.kv_size * weight
        parts["cache of completions"] = (cache, f"{drawn} x {length} tokens x L x {shape.kv_size} x {weight}")
    batch = args.per_device_train_batch_size
    half = 2 if settings.get("bf16") or settings.get("fp16") or weight == 2 else 4
    kept = shape.num_layers if args.gradient_checkpointing else 14 * shape.num_layers
    inner = 34 if args.gradient_checkpointing else 0
    activations = batch * length * shape.hidden_size * half * (kept + inner)
    parts["activations"] = (activations, f"B {batch} x S {length} x H x {half} x {kept + inner}")
    logits = batch * settings["max_completion_length"] * shape.vocab_size * 4
    parts["logits"] = (min(logits, 2**31), f"B {batch} x completion x V x 4, at most 2 GiB")
    if config.colocated(role):
        share = settings.get("vllm_gpu_memory_utilization", 0.3)
        parts["vLLM engine"] = (int(share * 80 * 2**30), f"{share} of an 80 GiB card, less while it sleeps")
    return Memory(parts)


def trained_parameters(config: Any, shape: Shape) -> int:
    """`T`: all, or those of the adapters."""
    if not config.use_peft:
        return shape.num_parameters
    return adapter_parameters(shape, rank=config.lora_r, targets=config.lora_target_modules)


def _longest(config: Any, role: str) -> int:
    settings = config.role_settings(role)
    prompt = config.max_prompt_length if role == "solver" else min(config.max_prompt_length, 512)
    return int(prompt + settings["max_completion_length"])


@dataclass(frozen=True)
class Disk:
    """Bytes in the run's folder.

    Attributes:
        model (`int`): One phase's saved weights.
        checkpoint (`int`): One checkpoint within a phase: weights and optimizer.
        total (`int`): All models that are kept, and the checkpoints of one phase, of which one more than
            `save_total_limit` are there while a new one is written.
    """

    model: int
    checkpoint: int
    total: int


def disk_of(config: Any, shape: Shape, launch: Launch) -> Disk:
    """What a run writes; the pool, the completions and the logs are small beside it and not in."""
    trained = trained_parameters(config, shape)
    model = shape.num_parameters * BYTES[config.handoff_dtype]
    settings = config.role_settings("solver")
    deepspeed = launch.kind in ("zero2", "zero3")
    weight = 2 if deepspeed and settings.get("bf16") else BYTES.get(config.dtype, 4)
    optimizer = (
        trained * 4 * (ADAM_STATES + 1) if deepspeed else trained * ADAM_STATES * (4 if config.use_peft else weight)
    )
    checkpoint = trained * (4 if config.use_peft else weight) + optimizer
    rounds = min(config.num_rounds, config.keep_rounds or config.num_rounds) + bool(config.keep_rounds)
    saved = settings.get("save_strategy") != "no"
    kept = (settings.get("save_total_limit") or -(-settings["max_steps"] // 5)) + 1 if saved else 0
    return Disk(model, checkpoint, 2 * rounds * model + kept * checkpoint)
