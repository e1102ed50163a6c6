"""`recipes/prism.py` as a test launches it: with a record of what kind of run it really was.

`recipe.py RECORD_FOLDER ...the recipe's own arguments`. For every phase rank R writes `phase-N-rank-R.json`: the
number of processes, their kind, and how many of the model's parameters are sharded.

FSDP on CPU: accelerate enables it only in a branch for accelerators, so the state that it found is mended here. That
is for tests alone.
"""

import contextlib
import gc
import json
import os
import sys
from pathlib import Path

import torch
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType


def shim_fsdp_on_cpu() -> None:
    found = PartialState.__init__

    def init(self: PartialState, *args: object, **kwargs: object) -> None:
        found(self, *args, **kwargs)
        if os.environ.get("ACCELERATE_USE_FSDP") == "true" and self.distributed_type == DistributedType.MULTI_CPU:
            self._shared_state["distributed_type"] = DistributedType.MULTI_GPU

    PartialState.__init__ = init


def record_phases(folder: Path) -> None:
    from torch.distributed.tensor import DTensor
    from transformers import TrainerCallback
    from transformers import trainer as transformers_trainer

    class Record(TrainerCallback):
        count = 0

        def on_train_begin(self, args, state, control, **kwargs):
            gc.collect()
            tensors = [o for o in gc.get_objects() if isinstance(o, torch.Tensor)]
            storages = {}
            for tensor in tensors:
                with contextlib.suppress(RuntimeError):  # a tensor of FSDP's stands for another one, which is here too
                    storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            type(self).num_bytes = sum(storages.values())

        def on_step_end(self, args, state, control, model=None, **kwargs):
            if state.global_step != 1:
                return
            parameters = list(model.parameters())
            found = PartialState()
            row = {
                "num_processes": found.num_processes,
                "distributed_type": AcceleratorState().distributed_type.value,
                "num_parameters": len(parameters),
                "num_bytes_at_begin": type(self).num_bytes,
                "num_sharded": sum(p.numel() == 0 or isinstance(p, DTensor) for p in parameters),
            }
            name = f"phase-{type(self).count}-rank-{found.process_index}.json"
            (folder / name).write_text(json.dumps(row))
            type(self).count += 1

    transformers_trainer.DEFAULT_CALLBACKS.append(Record)


if __name__ == "__main__":
    record, *rest = sys.argv[1:]
    shim_fsdp_on_cpu()
    record_phases(Path(record))
    sys.argv = [sys.argv[0], *rest]
    sys.path.insert(0, str(Path(__file__).parents[3]))
    from recipes.prism import main
    from trl_prism.cli import guarded

    sys.exit(guarded(main))
