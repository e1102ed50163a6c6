"""Files that are cut short or damaged, a full disk, a disk that may not be written: nothing finished is lost."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.killing import results
from tests.integration.conftest import ROOT, small_settings
from trl_prism.errors import PrismError
from trl_prism.journal import Journal, differences
from trl_prism.recipe import config_from_mapping
from trl_prism.self_play import play
from trl_prism.trainers import checkpoints


def settings_of(run: Path) -> dict:
    return small_settings(run, num_candidates=48, min_curriculum_size=2, eval_num_samples=1, solver={"save_steps": 1})


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A finished run of one round, and what it came to."""
    run = tmp_path_factory.mktemp("done") / "run"
    play(config_from_mapping(settings_of(run)))
    return run, results(run)


@pytest.fixture
def copied(done, tmp_path):
    """A copy of the run; `undo` takes stages back, as if it had been killed in the first of them."""
    run = tmp_path / "run"
    shutil.copytree(done[0], run)

    def undo(*stages: str) -> Path:
        for stage in stages:
            (run / "journal" / f"01-{stage}.json").unlink()
            shutil.rmtree(run / "round-01" / stage, ignore_errors=True)
        return run

    return undo


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("damage", [cut, flip])
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("round-01/pool.parquet", "in round-01: the pool is done again"),
        ("round-01/curriculum/train.parquet", "in round-01: the pool is done again"),
        ("round-01/visits.json", "in round-01: the questioner is done again"),
        ("journal/01-questioner.json", "what it said is restored"),
        ("journal/01-pool.json", "the stage is done again"),
        ("journal/start.json", "it is made again from this configuration"),
        ("partition/centroids.safetensors", "It is fitted once more"),
        ("metrics.jsonl", None),
    ],
)
def test_a_damaged_file_costs_its_own_stage_at_most(damage, name, said, copied, done, caplog):
    run = copied("solver", "report")
    damage(run / name)
    if damage is flip and name.startswith("journal"):
        (run / name).write_text((run / name).read_text(errors="replace").replace('"', "'", 3))
    caplog.clear()
    rows = play(config_from_mapping(settings_of(run)))
    assert [row["round"] for row in rows] == [0, 1]
    assert results(run) == done[1]
    if said is not None:
        assert sum(said in record.getMessage() for record in caplog.records) == 1, caplog.text


def test_a_damaged_model_is_trained_again(copied, done, caplog):
    run = copied("report")
    flip(run / "round-01" / "solver" / "model.safetensors")
    play(config_from_mapping(settings_of(run)))
    assert results(run) == done[1]
    assert "solver/model.safetensors is damaged in round-01: the solver is done again" in caplog.text


def test_another_base_model_is_refused(copied, tmp_path):
    run = copied("solver", "report")
    other = tmp_path / "base"
    shutil.copytree(ROOT / "prism_lab" / "weights" / "1", other)
    settings = {**settings_of(run), "model_name_or_path": str(other)}
    with pytest.raises(PrismError, match=r"another configuration:\n  model_name_or_path: was '"):
        play(config_from_mapping(settings))
    start = json.loads((run / "journal" / "start.json").read_text())
    start["base_model"] = "0123"
    (run / "journal" / "start.json").write_text(json.dumps(start))
    with pytest.raises(PrismError, match=r"base_model: was '0123'"):
        play(config_from_mapping(settings_of(run)))


def test_more_rounds_go_on_where_the_run_ended(copied, done):
    run = copied()
    rows = play(config_from_mapping({**settings_of(run), "num_rounds": 2, "keep_rounds": 2}))
    assert [row["round"] for row in rows] == [0, 1, 2]
    found = results(run)
    first = {name: value for name, value in done[1].items() if name != "metrics.jsonl"}
    assert {name: found[name] for name in first} == first


def checkpoint(folder: Path, step: int) -> Path:
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    (path / "model.safetensors").write_bytes(os.urandom(1000))
    (path / "trainer_state.json").write_text("{}")
    checkpoints.seal(path)
    return path


def test_only_a_whole_checkpoint_is_gone_on_from(tmp_path, caplog):
    whole, short, flipped, unsealed, damaged = (checkpoint(tmp_path, step) for step in (5, 10, 15, 20, 100))
    cut(short / "model.safetensors")
    flip(flipped / "model.safetensors")
    (unsealed / checkpoints.COMPLETE).unlink()
    cut(damaged / checkpoints.COMPLETE)
    assert checkpoints.latest(tmp_path) == whole
    for path, why in (
        (short, "model.safetensors has 500 bytes, not 1000"),
        (flipped, "model.safetensors is damaged"),
        (unsealed, "it is incomplete"),
        (damaged, "its complete.json is damaged"),
    ):
        assert f"{path} is not used: {why}" in caplog.text
    assert checkpoints.latest(tmp_path / "none") is None


def test_a_checkpoint_of_more_processes_is_not_gone_on_from(tmp_path, caplog):
    path = checkpoint(tmp_path, 5)
    content = json.loads((path / checkpoints.COMPLETE).read_text())
    (path / checkpoints.COMPLETE).write_text(json.dumps({**content, "num_processes": 8}))
    assert checkpoints.latest(tmp_path) is None
    assert "8 processes (NO) wrote it, these are 1 (NO)" in caplog.text


def test_a_clock_that_jumps_back_keeps_the_newest_by_step(tmp_path):
    paths = [checkpoint(tmp_path, step) for step in (9, 10, 11)]
    for age, path in enumerate(paths):
        os.utime(path, (10**9 - age * 10**6,) * 2)
    checkpoints.prune(tmp_path, keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-10", "checkpoint-11"]
    assert checkpoints.latest(tmp_path) == paths[2]


def test_a_journal_of_other_stages_is_not_taken_over(tmp_path):
    journal = Journal(tmp_path)
    journal.begin({"settings": {"seed": 1}})
    (tmp_path / "round-00").mkdir()
    for stage in ("pool", "report"):
        journal.finish((0, stage), inputs={}, facts={})
    again = Journal(tmp_path)
    again.begin({"settings": {"seed": 1}})
    again.load(1)
    assert list(again.done) == [(0, "pool"), (0, "report")]
    with pytest.raises(PrismError, match="seed: was 1, is 2"):
        Journal(tmp_path).begin({"settings": {"seed": 2}})
    assert differences({"a": {"b": 1}}, {"a": {"b": 1}}) == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("fault", ["full", "read_only"])
def test_a_disk_that_cannot_be_written_in_the_middle(fault, tmp_path, done):
    """On a real small disk of its own. The run ends with one clear error; when it may write again it goes on."""
    program = ROOT / "tests" / "faults" / "programs" / "disk.py"
    command = [sys.executable, str(program), fault, str(tmp_path / "disk")]
    own_mounts = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    ran = subprocess.run(
        [*own_mounts, *command],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    told = json.loads(ran.stdout.strip().splitlines()[-1])
    reason = {"full": "No space left on device", "read_only": "Read-only file system"}[fault]
    assert reason in told["error"] and told["error"].count("error:") == 1, told["error"]
    assert told["results"] == done[1]
