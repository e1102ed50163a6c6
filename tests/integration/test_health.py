"""Health in real runs: what is provoked is said once and kept, a healthy run hears nothing."""

import json

import pytest
import torch

from tests.integration.conftest import small_settings
from trl_prism.errors import PrismError
from trl_prism.recipe import config_from_mapping
from trl_prism.self_play import SelfPlay, play
from trl_prism.trainers.guards import out_of_memory_explained


def said(folder):
    path = folder / "health.jsonl"
    return [json.loads(line)["rule"] for line in path.read_text().splitlines()] if path.exists() else []


def test_a_short_run_of_the_lab_is_healthy(tmp_path):
    play(config_from_mapping(small_settings(tmp_path / "run")))
    assert said(tmp_path / "run") == []


def test_groups_without_a_difference_are_seen_in_a_real_run_once_and_not_again(tmp_path, caplog):
    # At this temperature all completions are the same, and nothing can be learnt; their votes may still differ.
    changes = {
        "questioner": {"max_steps": 3, "temperature": 1e-3},
        "health_kwargs": {"max_dead_groups": 0.25, "min_grad_norm": 1e-5},
    }
    config = config_from_mapping(small_settings(tmp_path / "run", **changes))
    play(config)
    rules = said(tmp_path / "run")
    assert {"vanishing gradient", "dead groups"} <= set(rules)
    assert len(rules) == len(set(rules))
    assert caplog.text.count("dead groups: Their share was over 0.25 in 3 updates.") == 1
    caplog.clear()
    play(config)
    assert "dead groups" not in caplog.text and said(tmp_path / "run") == rules


def test_stop_ends_the_run_with_one_error_and_warn_goes_on(tmp_path):
    settings = small_settings(tmp_path / "run", health="stop", health_kwargs={"max_dead_groups": 0.0, "patience": 1})
    settings["questioner"]["max_completion_length"] = 3
    settings["max_barren_batches"] = 100
    with pytest.raises(PrismError, match=r"dead groups.*`health: warn` the same command goes on"):
        play(config_from_mapping({**settings, "min_curriculum_size": 1}))


def test_off_says_nothing(tmp_path):
    settings = small_settings(tmp_path / "run", health="off", health_kwargs={"max_unusable": 0.0, "patience": 1})
    play(config_from_mapping(settings))
    assert said(tmp_path / "run") == []


def test_an_embedder_that_moves_and_centroids_that_move_are_found(tmp_path):
    run = SelfPlay(config_from_mapping(small_settings(tmp_path / "run")))
    run.run()
    assert run._frozen(1) == []
    embed = run.parts.embedder.embed
    run.parts.embedder.embed = lambda texts: embed(texts)[:, ::-1]
    run.parts.partition.centroids = run.parts.partition.centroids[::-1].copy()
    run.parts.memory.visits[:] = 1.0
    rules = [finding.rule for finding in run._frozen(1)]
    assert rules == ["embedder not frozen", "centroids move", "visits do not move"]


def test_out_of_memory_names_the_knobs_and_keeps_the_summary(tmp_path):
    expected = pytest.raises(PrismError, match=r"Out of memory.*per_device_train_batch_size")
    with expected, out_of_memory_explained(tmp_path):
        torch.empty(2**60)
    assert "allocate memory" in (tmp_path / "out-of-memory-rank-0.txt").read_text()
    with pytest.raises(RuntimeError, match="another"), out_of_memory_explained(tmp_path):
        raise RuntimeError("another fault")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_lk": 1.0}, "`health_kwargs` has `max_lk`; it may have min_grad_norm"),
        ({"max_kl": "much"}, "`health_kwargs.max_kl` is 'much'; it must be a number"),
        ({"patience": 0}, "`health_kwargs.patience` is 0; it must be at least 1"),
    ],
)
def test_a_threshold_that_cannot_be_is_refused(given, message, tmp_path):
    with pytest.raises(PrismError) as error:
        config_from_mapping(small_settings(tmp_path / "run", health_kwargs=given)).validate()
    assert message in str(error.value)
