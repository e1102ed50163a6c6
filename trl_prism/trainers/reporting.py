"""What a phase logs: our own lines first, and other backends beside them, none of which can stop a run."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

from trl_prism.errors import first_line
from trl_prism.ports.files import one_clear_error, write_jsonl
from trl_prism.ports.ranks import is_main


logger = logging.getLogger(__name__)

LOG_FILE = "log.jsonl"
_EVENTS = [name for name in dir(TrainerCallback) if name.startswith("on_")]


class JsonlCallback(TrainerCallback):
    """One line per log: the update and TRL's metrics. A phase that goes on drops the lines of updates done again.

    Args:
        path (`Path`): The file.
    """

    def __init__(self, path: Path):
        self.path = path

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_world_process_zero:
            rows = [row for row in _whole_rows(self.path) if row["step"] <= state.global_step]
            write_jsonl(self.path, rows)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        if state.is_world_process_zero and logs:
            row = {"step": state.global_step, **{name: _number(value) for name, value in logs.items()}}
            with one_clear_error(self.path), self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


class Tolerated(TrainerCallback):
    """Passes every event on to a backend's callback. If that fails it is left out from then on, which is said once."""

    def __init__(self, callback: TrainerCallback, name: str):
        self.callback: TrainerCallback | None = callback
        self.name = name

    def _pass(self, event: str, *args: Any, **kwargs: Any) -> None:
        if self.callback is None:
            return
        try:
            getattr(self.callback, event)(*args, **kwargs)
        except Exception as error:  # whatever a backend may raise: no network, a full disk
            logger.warning(
                "The backend %s failed (%s) and is left out; the run goes on, and its own log is complete.",
                self.name,
                first_line(error) or type(error).__name__,
            )
            self.callback = None


def _passing(event: str) -> Callable[..., None]:
    def passed(self: Tolerated, *args: Any, **kwargs: Any) -> None:
        self._pass(event, *args, **kwargs)

    return passed


for _event in _EVENTS:
    setattr(Tolerated, _event, _passing(_event))


def backends(names: list[str]) -> dict[str, Tolerated]:
    """The callbacks of the backends that can be used here; of the others it is said that they cannot."""
    found = {}
    for name in names:
        try:
            found[name] = Tolerated(INTEGRATION_TO_CALLBACK[name](), name)
        except (ImportError, RuntimeError) as error:  # transformers' own, for a package that is missing
            if is_main():
                logger.warning(
                    "`report_to` names %s, which cannot be used here: %s The run goes on without it, and its own log "
                    "is complete.",
                    name,
                    first_line(error),
                )
    return found


def _whole_rows(path: Path) -> list[dict[str, Any]]:
    """The rows so far; a last line that a kill cut short is left out."""
    if not path.exists():
        return []
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(dict(json.loads(line)))
        except ValueError:
            break
    return rows


def _number(value: Any) -> Any:
    try:
        return value if value is None or isinstance(value, str | bool | int) else float(value)
    except (TypeError, ValueError):
        return str(value)
