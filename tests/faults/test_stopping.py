"""A run that is told to stop, and one that is started twice."""

import json
import signal
import time

import pytest

from tests.faults.killing import finish, kill, kill_in, position, results, start, write_recipe


pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("victim", ["launcher", "rank"])
def test_sigterm_saves_and_says_continue_me(victim, tmp_path, expected):
    """Slurm sends it before a job's time is over."""
    run, log = tmp_path / "run", tmp_path / "log"
    recipe = write_recipe(tmp_path, run)
    process = start(recipe, log=log)
    where = kill_in(process, run, "1-questioner", 2.0 if victim == "launcher" else 0.0, victim, signal.SIGTERM)
    assert where is not None, log.read_text()[-2000:]
    marker = json.loads((run / "CONTINUE").read_text())
    assert marker["reason"] == "SIGTERM" and "recipes/prism.py --config" in marker["continue_with"]
    assert "The run was told to stop. All that was done is saved" in log.read_text()
    assert not (run / "owner.json").exists()
    assert finish(recipe, log=log) == 0
    assert not (run / "CONTINUE").exists()
    assert results(run) == expected


def test_two_starts_at_once(tmp_path):
    run, log = tmp_path / "run", tmp_path / "log"
    recipe = write_recipe(tmp_path, run)
    first = start(recipe, log=log)
    until = time.monotonic() + 60
    while not (run / "owner.json").exists() and time.monotonic() < until:
        time.sleep(0.05)
    second = tmp_path / "second.log"
    assert finish(recipe, log=second) != 0
    said = second.read_text()
    assert f"Another process works in {run}: process " in said and "recipes/prism.py" in said
    assert first.poll() is None, "the first one is left alone"
    kill(first, "all")
    assert position(run) != "end"
