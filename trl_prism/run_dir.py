"""The folder of a run: where everything lies, and writes that are whole or not there."""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trl_prism.core.curriculum import Candidate
from trl_prism.errors import PrismError
from trl_prism.ports.files import write_parquet, write_text


class RunDirectory:
    """Layout of a run's folder.

    ```txt
    config.yaml              resolved configuration
    environment.json         what it really ran on: versions, processes, attention
    metrics.jsonl            one row per round, round 0 being the base model
    partition/               centroids and their description
    round-01/questioner/     the round's Questioner, loads with AutoModelForCausalLM
    round-01/visits.json     the memory of visits at the end of the Questioner's phase
    round-01/pool.parquet    every candidate: question, answer, agreement, cluster, why it was dropped
    round-01/curriculum/     what the Solver trained on, loads with datasets.load_dataset
    round-01/solver/         the round's Solver
    round-01/evaluation/     its answers to held-out problems and benchmarks, figures, and what it got wrong
    ```
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)

    def check_new(self) -> None:
        """Raises [`PrismError`] if the folder exists already: a run never writes over another one."""
        if self.path.exists():
            raise PrismError(
                f"The output folder {self.path} exists already. Choose another --output_dir, or remove it."
            )

    def create(self) -> None:
        """Makes the folder; see [`check_new`]."""
        try:
            self.path.mkdir(parents=True)
        except FileExistsError:
            self.check_new()
        except OSError as error:
            raise PrismError(f"The output folder {self.path} cannot be made: {error.strerror}.") from error

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

    def append_metrics(self, row: dict[str, Any]) -> None:
        """Adds a round's row. The whole file is written anew, so that it never ends in half a line."""
        lines = self.metrics.read_text(encoding="utf-8") if self.metrics.exists() else ""
        write_text(self.metrics, lines + json.dumps(row) + "\n")

    def read_metrics(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.metrics.read_text(encoding="utf-8").splitlines()]

    def write_pool(self, number: int, pool: Iterable[Candidate]) -> None:
        write_parquet(self.round(number) / "pool.parquet", [asdict(candidate) for candidate in pool])

    def write_curriculum(self, number: int, kept: Sequence[Candidate]) -> None:
        columns = ("question", "answer", "agreement", "margin", "entropy", "cluster")
        rows = [{**{name: getattr(c, name) for name in columns}, "round": number} for c in kept]
        write_parquet(self.round(number) / "curriculum" / "train.parquet", rows)
