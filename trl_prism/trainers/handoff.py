"""The weights that one phase hands to the next, without the loss that 16-bit files would bring.

At the learning rates of this method most of a phase's update is smaller than the distance between two neighbouring
bfloat16 numbers. DeepSpeed trains 32-bit master weights beside the 16-bit ones, and saves the latter: a hand-over
through such a file throws most of a phase away (`benchmarks/handoff.py` measures how much). Here the master weights
are saved, and put back after DeepSpeed has made its own from the 16-bit weights.
"""

from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from trl_prism._compat import whole_on_every_rank
from trl_prism.errors import PrismError
from trl_prism.ports.models import load_model


# Where a phase's adapter lies in its folder, beside the merged weights.
ADAPTER = "adapter"


def is_peft_model(model: Any) -> bool:
    from peft import PeftModel

    return isinstance(model, PeftModel)


def merge_adapter(
    adapter: str, *, start: str, output_dir: str, dtype: torch.dtype, model_kwargs: dict[str, Any]
) -> None:
    """Writes the weights that the phase started from with its adapter merged into them, in 32 bits.

    The merge happens on the CPU and on files, so it is the same on every engine. `model_kwargs` are what the
    phase loaded its start with, such as `revision`.
    """
    from peft import PeftModel

    with whole_on_every_rank():
        merged = PeftModel.from_pretrained(
            load_model(start, **{**model_kwargs, "dtype": "float32"}), adapter
        ).merge_and_unload()
    merged.to(dtype).save_pretrained(output_dir)


def full_state(trainer: Any) -> dict[str, Any]:
    """The trained weights in the precision that they are trained in: DeepSpeed's master weights, or as they are.

    Of a model with adapters, the adapters alone under DeepSpeed. A collective.

    Returns:
        `dict[str, torch.Tensor]`: on the CPU, by the unwrapped model's names; complete on the main process only.
    """
    if not trainer.is_deepspeed_enabled:
        return trainer.accelerator.get_state_dict(trainer.model)
    from deepspeed.utils import safe_get_full_fp32_param

    model = trainer.accelerator.unwrap_model(trainer.model_wrapped)
    state = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        master = safe_get_full_fp32_param(parameter)  # all ranks take part
        if master is None:
            raise PrismError(
                f"DeepSpeed holds no 32-bit weights of {name}. Set `handoff_dtype: bfloat16`, which hands 16-bit "
                "weights to the next phase and loses small updates."
            )
        if trainer.args.should_save:
            state[name] = master.detach().cpu().clone()
    return state


def cast(state: dict[str, torch.Tensor], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Floating-point weights in another type; those that share memory, as tied embeddings do, still share it."""
    done: dict[tuple[int, torch.Size], torch.Tensor] = {}
    for tensor in state.values():
        if tensor.is_floating_point():
            done.setdefault((tensor.data_ptr(), tensor.shape), tensor.to(dtype))
    return {name: done.get((tensor.data_ptr(), tensor.shape), tensor) for name, tensor in state.items()}


class RestoreMasterWeights(TrainerCallback):
    """Puts the 32-bit weights of the phase's start into DeepSpeed's master weights, which were made of 16-bit ones.

    Args:
        start (`str`): Folder of the weights that the phase starts from.
    """

    def __init__(self, start: str):
        self.start = Path(start)

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if state.global_step > 0:  # a checkpoint brought its own
            return
        from deepspeed.utils import safe_set_full_fp32_param
        from safetensors import safe_open

        wanted = dict(model.named_parameters())
        for file in sorted(self.start.glob("*.safetensors")):
            with safe_open(file, framework="pt") as saved:
                for name in saved.keys():  # noqa: SIM118 - no mapping
                    if name in wanted:
                        safe_set_full_fp32_param(wanted.pop(name), saved.get_tensor(name).float())
        if wanted:
            raise PrismError(f"{self.start} holds no weights of {next(iter(wanted))}; it belongs to another model.")


def release_engines(trainer: Any) -> None:
    """Lets go of a finished phase's DeepSpeed engines, of the trained model and of the KL reference.

    Hooks in torch's C++ part refer to them, which Python's garbage collector cannot see: without this every phase
    would keep its weights, its optimizer and its reference until the run ends. What they hold is taken from them.
    """
    engines = [trainer.model_wrapped, getattr(trainer, "ref_model", None)]
    trainer.accelerator.free_memory()
    for engine in engines:
        if type(engine).__name__ != "DeepSpeedEngine":
            continue
        optimizer, module = engine.optimizer, engine.module
        engine.destroy()
        for parameter in module.parameters():
            parameter.__dict__.pop("_z3_optimizer", None)
            parameter.grad = None
            if hasattr(parameter, "ds_tensor"):
                parameter.ds_tensor = None
        if hasattr(optimizer, "__dict__"):
            optimizer.__dict__.clear()
        engine.__dict__.clear()
        # Python calls it once more when the shell goes.
        engine.__dict__["destroy"] = lambda: None
