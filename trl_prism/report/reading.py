"""A run's folder as the report sees it. What is missing, half written or damaged is noted, and the rest is shown."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import yaml

from trl_prism.core.coverage import Coverage, count, coverage
from trl_prism.core.curriculum import NO_QUESTION
from trl_prism.core.projection import Projection
from trl_prism.core.rewards import DEFAULT_BAND, GATE_CENTER, GATE_WIDTH, prism_reward, rarity, rzero_reward
from trl_prism.errors import PrismError, first_line
from trl_prism.journal import STAGES
from trl_prism.run_dir import PROJECTION, RunDirectory, round_name


T = TypeVar("T")

# What a pool written by an earlier version may lack.
_DEFAULTS = {"cluster": -1, "agreement": 0.0, "detail": "", "votes": "", "answer": None, "dropped": None}


@dataclass
class Pool:
    """The columns of a round's pool, each of length `n`."""

    question: list[str]
    answer: list[str | None]
    dropped: list[str | None]
    detail: list[str]
    votes: list[str]
    agreement: np.ndarray
    cluster: np.ndarray

    def __len__(self) -> int:
        return len(self.question)

    @cached_property
    def usable(self) -> np.ndarray:
        """Which candidates are questions at all, shape `(n,)`."""
        return np.array([reason not in NO_QUESTION for reason in self.dropped], dtype=bool)

    @cached_property
    def voted(self) -> np.ndarray:
        """Which candidates were answered: usable ones, duplicates aside. Shape `(n,)`."""
        return self.usable & np.array([reason != "duplicate" for reason in self.dropped], dtype=bool)

    @cached_property
    def funnel(self) -> Counter[str]:
        """How many fell for each reason, and how many were kept."""
        return Counter(reason or "kept" for reason in self.dropped)


@dataclass
class Round:
    """What is known of a round; `None` and empty where it is not there yet."""

    number: int
    row: dict[str, Any] = field(default_factory=dict)
    pool: Pool | None = None
    visits: np.ndarray | None = None
    places: np.ndarray | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    scores: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return round_name(self.number)


@dataclass
class Run:
    """A run's folder, read."""

    name: str
    path: Path
    config: dict[str, Any]
    environment: dict[str, Any]
    rounds: list[Round]
    num_clusters: int
    projection: Projection | None
    findings: list[dict[str, Any]]
    notes: list[str]

    @property
    def gate(self) -> dict[str, Any]:
        """The settings of [`~trl_prism.core.rewards.gate`]."""
        return {
            "center": self.config.get("gate_center", GATE_CENTER),
            "width": self.config.get("gate_width", GATE_WIDTH),
            "band": self.config.get("reward_band", DEFAULT_BAND),
        }

    @property
    def placed(self) -> dict[int, np.ndarray]:
        """Where questions lie, shape `(n, 2)`, of each round of which it is known."""
        return {r.number: r.places for r in self.rounds if r.places is not None and len(r.places)}

    def counts(self, number: int) -> np.ndarray | None:
        """Questions per cluster in a round's pool, shape `(K,)`."""
        pool = self.rounds[number].pool
        if pool is None:
            return None
        clusters = pool.cluster[pool.usable]
        return count(clusters[(clusters >= 0) & (clusters < self.num_clusters)], num_clusters=self.num_clusters)

    def spread(self, number: int) -> Coverage | None:
        counts = self.counts(number)
        return None if counts is None else coverage(counts)

    def rewards(self, number: int) -> np.ndarray | None:
        """What each candidate of a round would earn after the Questioner's phase, shape `(n,)`.

        With R-Zero's reward its first part alone, the Solver's uncertainty: the second depends on the batch.
        """
        this = self.rounds[number]
        if this.pool is None:
            return None
        pool, config = this.pool, self.config
        if config.get("reward") == "rzero":
            uncertainty = config.get("rzero_uncertainty", "code")
            return rzero_reward(pool.agreement, np.zeros(len(pool)), pool.usable, uncertainty=uncertainty)
        visits = this.visits if this.visits is not None else np.ones(self.num_clusters)
        rare = rarity(visits)[np.clip(pool.cluster, 0, len(visits) - 1)]
        return prism_reward(
            pool.agreement,
            np.where(pool.cluster >= 0, rare, 0.0),
            pool.usable,
            coverage_weight=0.0 if config.get("reward") == "gate" else config.get("coverage_weight", 5.0),
            **self.gate,
        )


def read_run(folder: str | Path) -> Run:
    """Reads a run's folder.

    Raises:
        PrismError: if it holds no run.
    """
    run_dir = RunDirectory(folder)
    path = run_dir.path
    if not path.is_dir():
        raise PrismError(f"{path} is no folder; `trl-prism report` takes the `output_dir` of a run.")
    if not (path / "config.yaml").is_file():
        raise PrismError(f"{path} holds no run: config.yaml is missing. Name the `output_dir` of a run.")
    notes: list[str] = []

    def attempt(what: str, read: Callable[[], T], default: T, *, expected: bool = True) -> T:
        try:
            return read()
        except FileNotFoundError:
            if expected:
                notes.append(f"{what} is not there.")
        except PrismError as error:
            notes.append(str(error))
        except Exception as error:  # a file may hold anything: the page shows the rest
            notes.append(f"{what} cannot be read ({first_line(error)}).")
        return default

    config: dict[str, Any] = attempt("config.yaml", lambda: dict(yaml.safe_load(_text(path / "config.yaml"))), {})
    environment: dict[str, Any] = attempt(
        "environment.json", lambda: dict(json.loads(_text(path / "environment.json"))), {}
    )
    rows: list[dict[str, Any]] = attempt("metrics.jsonl", lambda: _rows(path / "metrics.jsonl"), [])
    by_number = {row["round"]: row for row in rows if isinstance(row.get("round"), int)}
    last = max([*by_number, *(int(p.name[6:]) for p in path.glob("round-*") if p.name[6:].isdigit())], default=0)
    rounds = []
    for number in range(last + 1):
        here, name = run_dir.round(number), f"round-{number:02d}"
        # A stage that is not done has no results yet; that is no fault.
        done = number in by_number
        this = Round(number, by_number.get(number, {}))
        this.pool = attempt(f"{name}/pool.parquet", lambda: _pool(here / "pool.parquet"), None, expected=done)  # noqa: B023
        this.visits = attempt(
            f"{name}/visits.json",
            lambda: np.asarray(run_dir.read_visits(number)["visits"], dtype=float),  # noqa: B023
            None,
            expected=done and number > 0,
        )
        this.places = attempt(f"{name}/map.parquet", lambda: _places(here / "map.parquet"), None, expected=done)  # noqa: B023
        for stage in STAGES:
            record = path / "journal" / f"{number:02d}-{stage}.json"
            seconds = attempt(
                f"journal/{record.name}",
                lambda: float(json.loads(_text(record))["facts"]["seconds"]),  # noqa: B023
                None,
                expected=False,
            )
            if seconds is not None:
                this.seconds[stage] = seconds
        for results in sorted(here.glob("evaluation/*/results.json")):
            scores: dict[str, Any] = attempt(
                str(results.relative_to(path)),
                lambda: dict(json.loads(_text(results))["scores"]),  # noqa: B023
                {},
            )
            this.scores[results.parent.name] = scores
        rounds.append(this)
    num_clusters = int(config.get("num_clusters") or 1)
    for this in rounds:
        if this.visits is not None and len(this.visits) != num_clusters:
            notes.append(f"The visits of {this.name} count {len(this.visits)} clusters, not {num_clusters}.")
            this.visits = None
    return Run(
        name=path.name or str(path),
        path=path,
        config=config,
        environment=environment,
        rounds=rounds,
        num_clusters=num_clusters,
        projection=attempt(f"partition/{PROJECTION}", lambda: _projection(run_dir.partition / PROJECTION), None),
        findings=attempt("health.jsonl", lambda: _rows(path / "health.jsonl"), [], expected=False),
        notes=notes,
    )


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSONL file; a last line that is being written is left out."""
    lines = _text(path).split("\n")
    rows = []
    for i, line in enumerate(lines):
        try:
            if line.strip():
                rows.append(dict(json.loads(line)))
        except ValueError:
            if i < len(lines) - 1:
                raise
    return rows


def _pool(path: Path) -> Pool:
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    found: dict[str, Any] = {"question": table["question"].to_pylist()}
    for name, default in _DEFAULTS.items():
        known = name in table.column_names
        found[name] = table[name].to_pylist() if known else [default] * table.num_rows
    for name in ("agreement", "cluster"):
        found[name] = np.asarray(found[name])
    return Pool(**found)


def _projection(path: Path) -> Projection:
    path.stat()  # one that is missing is told from one that is damaged
    return Projection.load(path)


def _places(path: Path) -> np.ndarray:
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    if not table.num_rows:  # without rows it has no columns
        return np.zeros((0, 2))
    return np.stack([table["x"].to_numpy(), table["y"].to_numpy()], axis=1)
