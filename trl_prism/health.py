"""Says what troubles a run, once each, and keeps it in `health.jsonl`. The rules: [`trl_prism.core.health`][]."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import psutil
import torch
from transformers import TrainerCallback

from trl_prism.checks import check_between
from trl_prism.core.health import Finding, HealthSettings, of_updates
from trl_prism.errors import PrismError
from trl_prism.ports.files import write_jsonl
from trl_prism.ports.ranks import from_main, is_main


logger = logging.getLogger(__name__)

HEALTH_FILE = "health.jsonl"


def health_settings(given: Mapping[str, Any]) -> HealthSettings:
    """The thresholds with those that a recipe changes. Raises [`PrismError`] for an unknown or impossible one."""
    known = [f.name for f in fields(HealthSettings)]
    for name, value in given.items():
        if name not in known:
            raise PrismError(f"`health_kwargs` has `{name}`; it may have {', '.join(known)}.")
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise PrismError(f"`health_kwargs.{name}` is {value!r}; it must be a number.")
        check_between(f"health_kwargs.{name}", value, 1 if name == "patience" else 0, float("inf"))
    return HealthSettings(**given)


class Health:
    """The findings of a run.

    Args:
        folder (`Path`): The run's folder.
        mode (`str`): `"warn"`, `"stop"` or `"off"`.
        settings ([`~trl_prism.core.health.HealthSettings`]): Thresholds.
    """

    def __init__(self, folder: Path, *, mode: str, settings: HealthSettings):
        self.path, self.mode, self.settings = folder / HEALTH_FILE, mode, settings
        self.rows: list[dict[str, str]] = []

    def load(self) -> None:
        """What was said by earlier launches is not said again."""
        if self.path.exists():
            try:
                self.rows = [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines()]
            except ValueError:
                logger.warning("%s is damaged; what it held may be said again.", self.path)

    def note(self, findings: Sequence[Finding], when: str) -> None:
        """Says what is new, on the main process; with `stop` the run ends on all of them. A collective with `stop`.

        Raises:
            PrismError: with `stop`, for anything new.
        """
        if self.mode == "stop":
            from_main(lambda: self._note(findings, when), "the run's health")
        elif self.mode == "warn" and is_main():
            self._note(findings, when)

    def _note(self, findings: Sequence[Finding], when: str) -> None:
        said = {row["rule"] for row in self.rows}
        new = [finding for finding in findings if finding.rule not in said]
        if not new:
            return
        for finding in new:
            logger.warning("%s: %s: %s %s", when, finding.rule, finding.seen, finding.advice)
            self.rows.append({"when": when, **asdict(finding)})
        write_jsonl(self.path, self.rows)
        if self.mode == "stop":
            raise PrismError(
                f"{when}: {new[0].rule}: {new[0].seen} {new[0].advice} The run stops because of `health: stop`; with "
                "`health: warn` the same command goes on."
            )


class HealthCallback(TrainerCallback):
    """Asks the rules on updates whenever something is logged."""

    def __init__(self, health: Health, *, when: str, beta: float):
        self.health, self.when, self.beta = health, when, beta
        self.logs: list[dict[str, Any]] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        if not logs or "loss" not in logs:
            return
        # Its own figures are looked at, and those of the last logs: not the whole phase.
        self.logs = [*self.logs[-200:], {**logs, "memory": memory_in_use()}]
        found = of_updates(self.logs, self.health.settings, beta=self.beta)
        self.health.note(found, f"{self.when}, update {state.global_step}")


def memory_in_use() -> int:
    """Bytes that this process holds: of the accelerator, or without one of the machine."""
    if torch.cuda.is_available():
        return int(torch.cuda.memory_allocated())
    return int(psutil.Process().memory_info().rss)
