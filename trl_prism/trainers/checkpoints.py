"""Checkpoints within a phase: which are whole, which one to go on from, and when old ones go.

transformers writes a checkpoint's files in place, so one that a kill cut short looks like any other. Here a checkpoint
is whole when `complete.json` stands in it, written last, with the size and hash of every file.
"""

import json
import logging
import shutil
from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from trl_prism.ports import stopping
from trl_prism.ports.files import described, fault_of_files, flush, write_text
from trl_prism.ports.ranks import dealt, distributed_type, from_main, gather_list, is_main, num_ranks


logger = logging.getLogger(__name__)

COMPLETE = "complete.json"


def seal(folder: Path) -> None:
    """Marks a checkpoint that all ranks have written as whole. A collective.

    Raises:
        PrismError: if it cannot be written.
    """
    gather_list([None])  # every rank has written its part
    names = from_main(lambda: sorted(str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file()), "sealing")
    names = [name for name in names if name != COMPLETE]

    def flushed(_: int, chunk: list[str]) -> list[dict[str, Any]]:
        for name in chunk:
            flush(folder / name)
        return [described(folder / name) for name in chunk]

    files = dict(zip(names, dealt(names, 1, flushed, "sealing the checkpoint"), strict=True))
    content = {"num_processes": num_ranks(), "distributed_type": distributed_type(), "files": files}
    from_main(lambda: write_text(folder / COMPLETE, json.dumps(content, indent=2) + "\n"), "sealing the checkpoint")


def latest(folder: Path) -> Path | None:
    """The newest whole checkpoint of a phase that this launch can go on from. A collective.

    Those that are cut short, damaged, or of another number of processes are named and left alone.
    """
    return from_main(lambda: _latest(folder), "looking for checkpoints")


def _latest(folder: Path) -> Path | None:
    for checkpoint in reversed(_by_step(folder)):
        fault = _fault(checkpoint)
        if fault is None:
            return checkpoint
        logger.warning("%s is not used: %s.", checkpoint, fault)
    return None


def _fault(checkpoint: Path) -> str | None:
    if not (checkpoint / COMPLETE).exists():
        return "it is incomplete"
    try:
        content = json.loads((checkpoint / COMPLETE).read_text())
        files, launched = dict(content["files"]), (content["num_processes"], content["distributed_type"])
    except (OSError, ValueError, KeyError, TypeError):
        return f"its {COMPLETE} is damaged"
    if launched != (num_ranks(), distributed_type()):
        now = f"{num_ranks()} ({distributed_type()})"
        return f"{launched[0]} processes ({launched[1]}) wrote it, these are {now}"
    return fault_of_files(checkpoint, files)


def prune(folder: Path, *, keep: int | None) -> None:
    """Removes all but the `keep` newest whole checkpoints; by their steps, since clocks jump."""
    if keep is None or not is_main():
        return
    whole = [path for path in _by_step(folder) if (path / COMPLETE).exists()]
    for path in whole[: len(whole) - keep]:
        # The mark first: a removal that is cut short leaves nothing that looks whole.
        (path / COMPLETE).unlink()
        shutil.rmtree(path, ignore_errors=True)


def remove_all(folder: Path) -> None:
    """Removes a finished phase's checkpoints; its model is saved."""
    if is_main():
        for path in _by_step(folder):
            shutil.rmtree(path, ignore_errors=True)


def _by_step(folder: Path) -> list[Path]:
    found = []
    for path in folder.glob(f"{PREFIX_CHECKPOINT_DIR}-*"):
        step = path.name.removeprefix(f"{PREFIX_CHECKPOINT_DIR}-")
        if path.is_dir() and step.isdigit():
            found.append((int(step), path))
    return [path for _, path in sorted(found)]


class StopCallback(TrainerCallback):
    """Ends a phase with a checkpoint when the run was told to stop.

    It ends where a generation batch is used up: TRL draws the next one after a restart, so a checkpoint elsewhere
    would not go on as an uninterrupted run.

    Args:
        updates_per_batch (`int`): Optimizer updates that a generation batch is used for.

    Attributes:
        stopped (`bool`): Whether the phase ended for that reason.
    """

    def __init__(self, updates_per_batch: int):
        self.updates_per_batch = updates_per_batch
        self.stopped = False

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step % self.updates_per_batch or state.global_step >= state.max_steps:
            return
        if any(gather_list([stopping.requested()])):  # all ranks, or none
            control.should_save = control.should_training_stop = self.stopped = True
