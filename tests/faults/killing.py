"""Starts real runs and kills them: what the tests of durability share."""

import contextlib
import hashlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import yaml

from tests.integration.conftest import ROOT, small_settings
from trl_prism.journal import positions


NUM_ROUNDS = 2


def write_recipe(folder: Path, run: Path, **changes) -> Path:
    """A recipe whose phases have several generation batches and checkpoints."""
    settings = small_settings(
        run, num_rounds=NUM_ROUNDS, beta=0.01, num_candidates=96, min_curriculum_size=2, **changes
    )
    settings["questioner"].update(max_steps=4, save_steps=1)
    settings["solver"].update(max_steps=6, save_steps=2, prompts_per_update=2)
    path = folder / f"{run.name}.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


def start(recipe: Path, *, config: str = "single_cpu", program: str = "recipes/prism.py", log: Path) -> psutil.Popen:
    """The run's launcher, in a session of its own; what it says is added to `log`."""
    with log.open("ab") as file:
        return psutil.Popen(
            [
                *(str(Path(sys.executable).parent / "accelerate"), "launch"),
                *("--config_file", str(ROOT / "accelerate_configs" / f"{config}.yaml"), "--main_process_port", "0"),
                *(program, "--config", str(recipe)),
            ],
            stdout=file,
            stderr=file,
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
            start_new_session=True,
        )


def finish(recipe: Path, *, log: Path, timeout: float = 240, **how) -> int:
    """Starts a run and waits for its end."""
    process = start(recipe, log=log, **how)
    try:
        return process.wait(timeout)
    except BaseException:
        kill(process, "all")
        raise


def position(run: Path) -> str:
    """The stage that a run is in, by its journal."""
    for number, stage in positions(NUM_ROUNDS):
        if not (run / "journal" / f"{number:02d}-{stage}.json").exists():
            return f"{number}-{stage}"
    return "end"


def ranks(process: psutil.Popen) -> list[psutil.Process]:
    """The processes that do the work, without their helpers."""
    return [
        child
        for child in process.children()
        if "recipes" in " ".join(child.cmdline()) or "programs" in " ".join(child.cmdline())
    ]


def kill(process: psutil.Popen, victim: str, number: int = signal.SIGKILL, *, within: float = 60) -> None:
    """Sends a signal to one rank, to all processes, or to the launcher, and waits until all are gone.

    Raises:
        AssertionError: if a process outlives it.
    """
    family = [process, *process.children(recursive=True)]
    victims = {"all": family, "launcher": [process], "rank": ranks(process)[-1:]}[victim]
    for one in victims:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.send_signal(number)
    process.wait(within)
    _, alive = psutil.wait_procs(family[1:], timeout=within)
    assert not alive, f"{victim} was sent {number}, and these are still there: {[p.cmdline()[:4] for p in alive]}"


def kill_in(
    process: psutil.Popen, run: Path, stage: str | None, delay: float, victim: str, number=signal.SIGKILL
) -> str | None:
    """Kills a run some time after a stage has begun; returns the stage that it was in, `None` if it ended before."""
    order = [*(f"{number}-{stage}" for number, stage in positions(NUM_ROUNDS)), "end"]
    until = time.monotonic() + 200
    while stage is not None and time.monotonic() < until and process.is_running() and process.poll() is None:
        if (run / "journal").exists() and ranks(process) and order.index(position(run)) >= order.index(stage):
            break
        time.sleep(0.02)
    moment = time.monotonic() + delay
    while time.monotonic() < moment and process.poll() is None:
        time.sleep(0.02)
    if process.poll() is not None:
        return None
    where = position(run) if (run / "journal").exists() else "start"
    kill(process, victim, number)
    return where


def results(run: Path) -> dict[str, str]:
    """Everything that a run came to, as one hash for each thing. Times and cards aside."""
    found = {}
    for file in sorted(run.rglob("*")):
        name = str(file.relative_to(run))
        if file.suffix == ".safetensors" or file.name in ("visits.json", "config.json", "tokenizer.json"):
            found[name] = hashlib.sha256(file.read_bytes()).hexdigest()
        elif file.suffix == ".parquet":
            found[name] = digest(pq.read_table(file).to_pylist())
        elif file.name == "metrics.jsonl":
            rows = [json.loads(line) for line in file.read_text().splitlines()]
            found[name] = digest([{k: v for k, v in row.items() if k != "seconds"} for row in rows])
        elif file.name == "completions.jsonl":
            found[name] = digest(sorted(file.read_text().splitlines()))
        elif file.name == "trainer_state.json":
            history = json.loads(file.read_text())["log_history"]
            kept = ("step", "reward", "loss", "grad_norm", "learning_rate", "entropy", "kl", "num_tokens")
            found[name] = digest([{k: row.get(k) for k in kept} for row in history])
    return found


def digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def kill_until_done(
    folder: Path, *, seed: int, num_kills: int, expected: dict[str, str], **how
) -> list[tuple[str, str]]:
    """A run that is killed so often, at random moments of random stages, and goes on; its results must be equal.

    Returns:
        `list[tuple[str, str]]`: the stage and the victim of every kill.
    """
    rng = random.Random(seed)
    run, log = folder / f"run-{seed}", folder / f"run-{seed}.log"
    recipe = write_recipe(folder, run, **how.pop("changes", {}))
    order = [f"{number}-{stage}" for number, stage in positions(NUM_ROUNDS)]
    # In their order, so that every run has something left to be killed in.
    targets = sorted((rng.choice(order) for _ in range(num_kills)), key=order.index)
    hit = []
    for target in targets:
        victim = rng.choice(["rank", "all", "launcher"])
        process = start(recipe, log=log, **how)
        where = kill_in(process, run, target, rng.random() * 2.0, victim)
        if where is None:
            break
        hit.append((where, victim))
    assert finish(recipe, log=log, **how) == 0, log.read_text()[-3000:]
    found = results(run)
    assert found.keys() == expected.keys()
    assert not {name for name in found if found[name] != expected[name]}, (hit, log)
    return hit
