"""Logs of a phase: our own lines are always there, and no backend can stop a run."""

import json
from types import SimpleNamespace

import pytest
from transformers import TrainerCallback
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

from tests.integration.conftest import small_settings
from trl_prism.recipe import config_from_mapping
from trl_prism.self_play import play
from trl_prism.trainers.reporting import JsonlCallback


class Failing(TrainerCallback):
    """A backend whose server is gone."""

    calls = 0

    def on_log(self, *_, **__):
        Failing.calls += 1
        raise ConnectionError("the server is gone\nand more")


class Missing(TrainerCallback):
    def __init__(self):
        raise RuntimeError("requires a package. Run pip install it.")


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setitem(INTEGRATION_TO_CALLBACK, "failing", Failing)
    monkeypatch.setitem(INTEGRATION_TO_CALLBACK, "missing", Missing)


def test_a_run_with_backends_that_are_missing_or_fail_ends_well(registered, tmp_path, caplog):
    Failing.calls = 0
    config = config_from_mapping(small_settings(tmp_path / "run", report_to=["failing", "missing"]))
    rows = play(config)
    assert len(rows) == 2
    assert Failing.calls == 2, "left out after its first failure in each of the two phases"
    assert caplog.text.count("The backend failing failed (the server is gone)") == 2
    assert "`report_to` names missing, which cannot be used here: requires a package" in caplog.text
    for role in ("questioner", "solver"):
        lines = (tmp_path / "run" / "round-01" / role / "log.jsonl").read_text().splitlines()
        logs = [json.loads(line) for line in lines]
        assert [row["step"] for row in logs if "reward" in row] == [1, 2]
        assert all(isinstance(row["grad_norm"], float) for row in logs if "reward" in row)


def test_tensorboard_gets_what_the_log_gets(tmp_path, monkeypatch):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "tensorboard"))
    play(config_from_mapping(small_settings(tmp_path / "run", report_to=["tensorboard"])))
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    logs = [
        json.loads(line)
        for role in ("questioner", "solver")
        for line in (tmp_path / "run" / "round-01" / role / "log.jsonl").read_text().splitlines()
    ]
    written = sorted(round(event.value, 5) for event in events.Scalars("train/reward"))
    assert written and set(written) <= {round(row["reward"], 5) for row in logs if "reward" in row}


def test_a_phase_that_goes_on_drops_the_lines_of_updates_that_are_done_again(tmp_path):
    path = tmp_path / "log.jsonl"
    callback = JsonlCallback(path)
    state = SimpleNamespace(is_world_process_zero=True, global_step=0)
    callback.on_train_begin(None, state, None)
    for step in (1, 2, 3):
        state.global_step = step
        callback.on_log(None, state, None, logs={"reward": step})
    path.write_text(path.read_text() + '{"step": 4, "rew')  # killed while it wrote
    state.global_step = 2  # of the checkpoint
    callback.on_train_begin(None, state, None)
    state.global_step = 3
    callback.on_log(None, state, None, logs={"reward": 30})
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"step": 1, "reward": 1},
        {"step": 2, "reward": 2},
        {"step": 3, "reward": 30},
    ]


def test_the_completions_table_has_rarity_beside_agreement_and_cluster(tmp_path):
    play(config_from_mapping(small_settings(tmp_path / "run", log_completions=True)))
    [table, *_] = sorted((tmp_path / "run" / "round-01" / "questioner" / "completions").glob("*.parquet"))
    import pyarrow.parquet as pq

    columns = pq.read_table(table).column_names
    assert {"question", "agreement", "cluster", "rarity", "question_reward", "advantage"} <= set(columns)
