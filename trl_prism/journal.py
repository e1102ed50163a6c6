"""Which stages of which rounds are done, and from what: the memory of a run that can be killed anywhere.

A stage writes its results, and last its record. Each record names the record before it, so the finished stages of a
run are the longest chain from its start whose records can be read and follow each other. What stands after the first
gap is done again.

```txt
journal/start.json           settings that decide the results, base model, partition
journal/00-pool.json         the base model's pool
journal/00-report.json       its evaluation
journal/01-questioner.json   inputs, outputs with size and hash, seconds, processes, versions
...
```
"""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from trl_prism.core.partition import fingerprint
from trl_prism.errors import PrismError
from trl_prism.ports.files import described, fault_of_files, write_text
from trl_prism.run_dir import RunDirectory


logger = logging.getLogger(__name__)

STAGES = ("questioner", "pool", "solver", "report")

Position = tuple[int, str]


@dataclass(frozen=True)
class Record:
    """One finished stage.

    Attributes:
        round (`int`): Its round, 0 for the base model's.
        stage (`str`): One of `STAGES`.
        previous (`str`): Identity of the stage before it, or of the run's start.
        inputs (`dict[str, str]`): What it was made from, as paths.
        outputs (`dict[str, dict]`): Size and SHA-256 of every file that it wrote, by path in the run's folder.
        facts (`dict`): What happened to hold: seconds, processes, versions. It does not count for the identity.
    """

    round: int
    stage: str
    previous: str
    inputs: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        content = [self.round, self.stage, self.previous, sorted((k, v["sha256"]) for k, v in self.outputs.items())]
        return fingerprint([json.dumps(content)])


def positions(num_rounds: int) -> Iterator[Position]:
    """All stages of a run, in their order."""
    yield from ((0, "pool"), (0, "report"))
    for number in range(1, num_rounds + 1):
        yield from ((number, stage) for stage in STAGES)


class Journal:
    """The records of one run.

    Args:
        folder (`Path`): The run's folder.

    Attributes:
        done (`dict[tuple[int, str], Record]`): The finished stages, in their order.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.done: dict[Position, Record] = {}
        self._start = ""

    def begin(self, start: Mapping[str, Any]) -> None:
        """Writes what the run starts from, or checks that it is what the run in this folder started from.

        Raises:
            PrismError: with the difference, if it is something else.
        """
        path = self.folder / "journal" / "start.json"
        text = json.dumps(start, indent=2, sort_keys=True) + "\n"
        self._start = fingerprint([text])
        if path.exists():
            found = self._found_start()
            if found is None:
                self._check_against_first(path)
            else:
                self._refuse(differences(found, json.loads(text)))
        write_text(path, text)

    def refuse_others(self, settings: Mapping[str, Any]) -> None:
        """Raises [`PrismError`] with the difference, if the run in the folder has other settings."""
        found = self._found_start()
        if found is not None:
            self._refuse(differences(found.get("settings", {}), json.loads(json.dumps(settings))))

    def _found_start(self) -> dict[str, Any] | None:
        try:
            return dict(json.loads((self.folder / "journal" / "start.json").read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def _refuse(self, shown: Sequence[str]) -> None:
        if shown:
            raise PrismError(
                f"{self.folder} holds a run of another configuration:\n"
                + "\n".join(f"  {line}" for line in shown)
                + "\nGo on with the old one, or choose another --output_dir."
            )

    def _check_against_first(self, path: Path) -> None:
        """A damaged start is made again, if the first stage says that it was this one."""
        first = self._read((0, "pool"))
        if first is None or first.previous != self._start:
            raise PrismError(
                f"{path} is damaged, and the run in {self.folder} did not start from this configuration, base model "
                "and partition. Restore the file or the configuration, or choose another --output_dir."
            )
        logger.warning("%s is damaged; it is made again from this configuration, which is the run's.", path)

    def load(self, num_rounds: int) -> None:
        """Finds the finished stages. A damaged record among finished ones is restored from its neighbours."""
        self.done = {}
        order = list(positions(num_rounds))
        previous = self._start
        for place, position in enumerate(order):
            path = self._path(position)
            record = self._read(position)
            if record is None and path.exists():
                record = self._restored(position, previous, order[place + 1 :])
                if record is None:
                    logger.warning("%s is damaged; the stage is done again.", path)
            if record is None or record.previous != previous:
                break
            self.done[position] = record
            previous = record.identity
        for position in order[len(self.done) :]:
            if self._path(position).exists():
                logger.warning("%s follows no finished stage and is ignored.", self._path(position))

    def _restored(self, position: Position, previous: str, later: Sequence[Position]) -> Record | None:
        """A record that cannot be read, if the next one names what it must have been."""
        following = self._read(later[0]) if later else None
        if following is None:
            return None
        number, stage = position
        record = Record(number, stage, previous, outputs=self._described(outputs_of(self.folder, position)))
        if record.identity != following.previous:
            return None
        logger.warning("%s is damaged; what it said is restored from the files of the stage.", self._path(position))
        self._write(position, record)
        return record

    def verify(self, questioner_init: str) -> None:
        """Looks at the files that the run needs to go on, and sets back a stage whose files are damaged.

        Files of earlier rounds are not looked at: nothing depends on them any more.
        """
        while self.done:
            fault = next(filter(None, (self._fault(*needed) for needed in self._needed(questioner_init))), None)
            if fault is None:
                return
            position, what = fault
            logger.warning("%s in round-%02d: the %s is done again.", what, *position)
            self._set_back(position)

    def _needed(self, questioner_init: str) -> Iterator[tuple[Position, str]]:
        """The stages whose files are needed to go on, each with the ending of those that are."""
        last_stage = next(reversed(self.done))[1]
        newest = {stage: position for position in self.done for stage in STAGES if position[1] == stage}
        if "questioner" in newest:
            model = last_stage == "questioner" or questioner_init == "questioner"
            yield newest["questioner"], "" if model else "visits.json"
        if "solver" in newest:
            yield newest["solver"], ""
        if last_stage in ("pool", "solver"):
            yield newest["pool"], ""

    def _fault(self, position: Position, ending: str) -> tuple[Position, str] | None:
        outputs = {name: what for name, what in self.done[position].outputs.items() if name.endswith(ending)}
        fault = fault_of_files(self.folder, outputs)
        return None if fault is None else (position, fault)

    def identity_before(self, position: Position, inputs: Mapping[str, str]) -> str:
        """What a stage's own unfinished work belongs to: everything that was done before, and its inputs."""
        return fingerprint([self._last, json.dumps([*position, sorted(inputs.items())])])

    @property
    def _last(self) -> str:
        last = next(reversed(self.done.values()), None)
        return last.identity if last else self._start

    def seconds(self, number: int) -> float:
        """Seconds of a round's finished stages."""
        return float(sum(record.facts.get("seconds", 0) for (n, _), record in self.done.items() if n == number))

    def finish(self, position: Position, *, inputs: Mapping[str, str], facts: Mapping[str, Any]) -> "Journal":
        """Records a stage whose results are all written, and returns the journal."""
        number, stage = position
        record = Record(
            number,
            stage,
            self._last,
            inputs=dict(inputs),
            outputs=self._described(outputs_of(self.folder, position)),
            facts=dict(facts),
        )
        self._write(position, record)
        self.done[position] = record
        return self

    def _set_back(self, position: Position) -> None:
        """Takes a stage and all after it for not done, since its results are damaged."""
        kept = list(self.done)[: list(self.done).index(position)]
        for later in list(self.done)[len(kept) :]:
            self._path(later).unlink(missing_ok=True)
        self.done = {place: self.done[place] for place in kept}

    def _described(self, files: Sequence[Path]) -> dict[str, dict[str, Any]]:
        return {str(file.relative_to(self.folder)): described(file) for file in files}

    def _path(self, position: Position) -> Path:
        number, stage = position
        return self.folder / "journal" / f"{number:02d}-{stage}.json"

    def _read(self, position: Position) -> Record | None:
        try:
            record = Record(**json.loads(self._path(position).read_text(encoding="utf-8")))
            return record if (record.round, record.stage) == position and record.identity else None
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None

    def _write(self, position: Position, record: Record) -> None:
        write_text(self._path(position), json.dumps(asdict(record), indent=2) + "\n")


# What a stage leaves behind that its record vouches for. Logs, cards and evaluation files are no results.
_RESULTS = {
    "questioner": ("questioner/*.safetensors", "questioner/*.json", "visits.json"),
    "pool": ("pool.parquet", "curriculum/train.parquet"),
    "solver": ("solver/*.safetensors", "solver/*.json"),
    "report": (),
}


def outputs_of(folder: Path, position: Position) -> list[Path]:
    """The files that a stage's record vouches for."""
    number, stage = position
    round_folder = RunDirectory(folder).round(number)
    return sorted(file for pattern in _RESULTS[stage] for file in round_folder.glob(pattern) if file.is_file())


def differences(old: Mapping[str, Any], new: Mapping[str, Any], *, where: str = "") -> list[str]:
    """The entries in which two nested mappings differ, one readable line each.

    Example:

    ```python
    >>> differences({"seed": 1, "solver": {"max_steps": 20}}, {"seed": 1, "solver": {"max_steps": 10}})
    ['solver.max_steps: was 20, is 10']

    ```
    """
    lines = []
    for key in sorted({*old, *new}):
        mine, theirs = old.get(key), new.get(key)
        if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
            lines += differences(mine, theirs, where=f"{where}{key}.")
        elif mine != theirs:
            lines.append(f"{where}{key}: was {mine!r}, is {theirs!r}")
    return lines
