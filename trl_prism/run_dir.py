"""The folder of a run: where everything lies, and writes that are whole or not there."""

import contextlib
import json
import logging
import os
import shlex
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from trl_prism.core.curriculum import Candidate
from trl_prism.errors import PrismError
from trl_prism.ports.files import (
    nearest_existing,
    one_clear_error,
    read_parquet,
    write_jsonl,
    write_parquet,
    write_text,
)


logger = logging.getLogger(__name__)

# In the partition's folder.
PROJECTION = "projection.safetensors"


def round_name(number: int) -> str:
    """What a round is called: round 0 is the base model."""
    return "base model" if number == 0 else f"round {number}"


class RunDirectory:
    """Layout of a run's folder.

    ```txt
    config.yaml              resolved configuration
    environment.json         what it really ran on: versions, processes, attention
    metrics.jsonl            one row per round, round 0 being the base model
    partition/               centroids and their description, and the plane on which questions are shown
    round-01/questioner/     the round's Questioner, loads with AutoModelForCausalLM
    round-01/*/log.jsonl     what each update logged
    round-01/visits.json     the memory of visits at the end of the Questioner's phase
    round-01/pool.parquet    every candidate: question, answer, agreement, cluster, why it was dropped
    round-01/curriculum/     what the Solver trained on, loads with datasets.load_dataset
    round-01/map.parquet     where the pool's usable questions lie on the plane
    round-01/solver/         the round's Solver
    round-01/evaluation/     its answers to held-out problems and benchmarks, figures, and what it got wrong
    journal/                 which stages are done, see [`trl_prism.journal`][]
    owner.json               the process that works here; beside it the lock
    CONTINUE                 there if the run was told to stop: the same command goes on
    ```
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)

    @property
    def begun(self) -> bool:
        """Whether a run has begun here."""
        return (self.path / "journal").is_dir()

    def check(self, *, resume: str | None = None) -> None:
        """Raises [`PrismError`] if the folder holds something else than a run, or cannot be made or written.

        Args:
            resume (`str`, *optional*): What `resume_from_checkpoint` says, see [`~trl_prism.config.PrismConfig`].
        """
        asked = (resume or "").lower()
        if asked in ("false", "no") and self.begun:
            raise PrismError(
                f"The output folder {self.path} holds a run already, and `resume_from_checkpoint` is false. Choose "
                "another --output_dir, or remove it."
            )
        if asked not in ("", "false", "no") and not self.begun:
            raise PrismError(
                f"`resume_from_checkpoint` is {resume}, and {self.path} holds no run that could go on. Correct "
                "`output_dir`, or leave `resume_from_checkpoint` out."
            )
        if asked not in ("", "true", "yes", "false", "no"):
            wanted = Path(resume or "").resolve()
            if not wanted.exists() or self.path.resolve() not in (wanted, *wanted.parents):
                raise PrismError(
                    f"`resume_from_checkpoint` is {resume}, which is not in `output_dir` = {self.path}. A run goes on "
                    f"in its own folder, from its newest whole checkpoint: set `output_dir` to it."
                )
        if self.path.exists() and not self.begun and any(not f.name.startswith(".") for f in _listed(self.path)):
            raise PrismError(
                f"The output folder {self.path} exists already and holds no run that could go on. Choose another "
                "--output_dir, or remove it."
            )
        place = nearest_existing(self.path)
        try:
            with tempfile.TemporaryDirectory(dir=place, prefix=".probe-"):
                pass
        except OSError as error:
            raise PrismError(
                f"The output folder {self.path} cannot be made: {place} cannot be written ({error.strerror})."
            ) from error

    def create(self) -> None:
        """Makes what shows that a run has begun here."""
        with one_clear_error(self.path):
            (self.path / "journal").mkdir(parents=True, exist_ok=True)

    def prepare(self, number: int, stage: str, identity: str) -> None:
        """Makes the folder of a stage that begins or goes on.

        What lies there is kept if it was begun after the same stages, and removed otherwise: a checkpoint of a phase
        that had another curriculum is no checkpoint of this one.
        """
        name = {"questioner": "questioner", "solver": "solver", "report": "evaluation"}.get(stage)
        if name is None:
            return
        folder = self.round(number) / name
        stamp = folder / ".begun"
        with one_clear_error(folder):
            if folder.exists() and (not stamp.exists() or stamp.read_text().strip() != identity):
                logger.warning("%s belongs to a stage that is done again; it is removed.", folder)
                shutil.rmtree(folder)
        if not stamp.exists():
            write_text(stamp, identity + "\n")

    def prune(self, number: int, *, keep: int | None) -> None:
        """Removes the weights of all rounds but the last `keep` up to this one."""
        for old in range(1, number - keep + 1) if keep is not None else ():
            for role in ("questioner", "solver"):
                for file in (self.round(old) / role).rglob("*.safetensors"):
                    file.unlink(missing_ok=True)

    @contextlib.contextmanager
    def owned(self) -> Iterator[None]:
        """The folder for this process alone. The system frees the lock when the process dies, however it dies.

        Raises:
            PrismError: if another process works here; it is named.
        """
        with one_clear_error(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path / ".lock")
        owner = self.path / "owner.json"
        with one_clear_error(self.path):
            try:
                lock.acquire(timeout=0)
            except Timeout:
                raise PrismError(
                    f"Another process works in {self.path}: {_owner(owner)}. Wait for it, stop it, or choose another "
                    "--output_dir."
                ) from None
        try:
            if owner.exists():
                logger.warning("The last run in %s ended without a word (%s).", self.path, _owner(owner))
            me = {"pid": os.getpid(), "host": socket.gethostname(), "command": shlex.join(sys.argv)}
            write_text(owner, json.dumps(me) + "\n")
            yield
        finally:
            with contextlib.suppress(OSError):
                owner.unlink()
            lock.release()
            with contextlib.suppress(OSError):
                if not self.begun and all(file.name == ".lock" for file in self.path.iterdir()):
                    (self.path / ".lock").unlink()
                    self.path.rmdir()  # nothing came of it

    @property
    def stop_file(self) -> Path:
        """By which the ranks of a run tell each other that it was asked to stop."""
        return self.path / ".stop"

    def write_continue(self, position: str) -> None:
        """Says that the run was told to stop, and how it goes on."""
        what = {"reason": "SIGTERM", "stopped_in": position, "continue_with": shlex.join(sys.argv)}
        write_text(self.path / "CONTINUE", json.dumps(what, indent=2) + "\n")

    def clear_requests(self) -> None:
        """Forgets that an earlier launch was told to stop."""
        for path in (self.path / "CONTINUE", self.stop_file):
            path.unlink(missing_ok=True)

    def round(self, number: int) -> Path:
        return self.path / f"round-{number:02d}"

    @property
    def partition(self) -> Path:
        return self.path / "partition"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    def write_config(self, text: str) -> None:
        write_text(self.path / "config.yaml", text)

    def write_environment(self, facts: dict[str, Any]) -> None:
        write_text(self.path / "environment.json", json.dumps(facts, indent=2) + "\n")

    def write_visits(self, number: int, state: dict[str, Any]) -> None:
        write_text(self.round(number) / "visits.json", json.dumps(state, indent=2) + "\n")

    def write_metrics(self, rows: Iterable[dict[str, Any]]) -> None:
        """The rows of all rounds so far."""
        write_jsonl(self.metrics, rows)

    def read_metrics(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.metrics.read_text(encoding="utf-8").splitlines()]

    def read_visits(self, number: int) -> dict[str, Any]:
        return dict(json.loads((self.round(number) / "visits.json").read_text(encoding="utf-8")))

    def read_pool(self, number: int) -> list[Candidate]:
        """The candidates of a round, as they were written."""
        return [Candidate(**row) for row in read_parquet(self.round(number) / "pool.parquet")]

    def write_map(self, number: int, places: Iterable[Sequence[float]]) -> None:
        """Where the usable questions of a round's pool lie, in pool order."""
        rows = [{"x": float(x), "y": float(y)} for x, y in places]
        write_parquet(self.round(number) / "map.parquet", rows)

    def write_pool(self, number: int, pool: Iterable[Candidate], kept: Sequence[Candidate]) -> None:
        """The whole pool, and the curriculum that was kept of it."""
        write_parquet(self.round(number) / "pool.parquet", [asdict(candidate) for candidate in pool])
        columns = ("question", "answer", "agreement", "margin", "entropy", "cluster")
        rows = [{**{name: getattr(c, name) for name in columns}, "round": number} for c in kept]
        write_parquet(self.round(number) / "curriculum" / "train.parquet", rows)


def _listed(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else [folder]


def _owner(path: Path) -> str:
    try:
        owner = json.loads(path.read_text(encoding="utf-8"))
        return f"process {owner['pid']} on {owner['host']}, {owner['command']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "it has not said who it is"
