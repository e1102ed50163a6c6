"""Rules of health: each speaks for what it is made for, and all are silent in a healthy run."""

import json
from pathlib import Path

import pytest

from trl_prism.core.health import HealthSettings, of_rounds, of_updates


S = HealthSettings()
HEALTHY = {
    "loss": 0.1,
    "grad_norm": 0.2,
    "kl": 0.01,
    "frac_reward_zero_std": 0.3,
    "completions/clipped_ratio": 0.02,
    "questioner/frac_unusable": 0.1,
    "questioner/frac_unanswered": 0.05,
    "memory": 10**9,
}
ROUND = {
    "coverage/entropy": 0.8,
    "diversity/semantic": 0.8,
    "labels/accuracy": 0.7,
    "labels/mean_margin": 0.5,
    "pool/num_candidates": 600,
    "pool/num_kept": 300,
    "pool/num_duplicate": 20,
    "pool/num_malformed": 5,
    "pool/num_unanswered": 0,
}
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "collapse"


def rules(found):
    return [finding.rule for finding in found]


def test_a_healthy_phase_is_silent():
    assert of_updates([HEALTHY] * 30, S, beta=1e-4) == []
    assert of_updates([], S) == []
    assert of_updates([{"loss": 1.0}] * 5, S, beta=1e-4) == []  # figures that are not logged


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("grad_norm", 1e-8, "vanishing gradient"),
        ("kl", 3.0, "KL out of range"),
        ("kl", 0.0, "KL out of range"),
        ("frac_reward_zero_std", 1.0, "dead groups"),
        ("completions/clipped_ratio", 0.9, "truncated completions"),
        ("questioner/frac_unusable", 0.8, "unusable questions"),
        ("questioner/frac_unanswered", 0.8, "unanswered questions"),
    ],
)
def test_a_rule_speaks_after_its_patience_and_not_before(name, value, rule):
    bad = {**HEALTHY, name: value}
    assert of_updates([HEALTHY, bad, bad], S, beta=1e-4) == []
    [finding] = of_updates([HEALTHY, bad, bad, bad], S, beta=1e-4)
    assert finding.rule == rule and finding.seen and finding.advice
    assert of_updates([bad, bad, bad, HEALTHY], S, beta=1e-4) == []


def test_the_way_out_of_the_kl_range_depends_on_the_side():
    for value, way in ((3.0, "raise it"), (0.0, "lower it")):
        [finding] = of_updates([{**HEALTHY, "kl": value}] * 3, S, beta=1e-4)
        assert way in finding.advice and "1e-5 to 1e-3" in finding.advice
    assert of_updates([{**HEALTHY, "kl": 3.0}] * 3, S, beta=0.0) == []


def test_a_gradient_that_explodes_is_seen_at_once():
    logs = [HEALTHY] * 9
    assert rules(of_updates([*logs, {**HEALTHY, "grad_norm": 50.0}], S)) == ["exploding gradient"]
    assert of_updates([*logs, {**HEALTHY, "grad_norm": 5.0}], S) == []


def test_memory_that_rises_step_by_step_is_told_from_one_that_wavers():
    rising = [{**HEALTHY, "memory": 10**9 + i * 2 * 10**7} for i in range(25)]
    assert rules(of_updates(rising, S)) == ["memory rises"]
    wavering = [{**HEALTHY, "memory": 10**9 + (i % 3) * 10**9} for i in range(25)]
    assert of_updates(wavering, S) == []


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"coverage/entropy": 0.5}, "coverage falls"),
        ({"diversity/semantic": 0.1}, "diversity falls"),
        ({"labels/accuracy": 0.4}, "label accuracy falls"),
        ({"labels/mean_margin": 0.2}, "vote margin falls"),
        ({"pool/num_duplicate": 400}, "duplicate questions"),
        ({"pool/num_malformed": 400}, "malformed questions"),
        ({"pool/num_unanswered": 400}, "unanswered pool"),
    ],
)
def test_a_round_that_is_worse_is_said(change, rule):
    assert of_rounds([ROUND, ROUND], S) == []
    assert rules(of_rounds([ROUND, ROUND, {**ROUND, **change}], S)) == [rule]
    assert of_rounds([{**ROUND, **change}], S) == []  # the base model has nothing to be compared with


def test_a_pool_must_shrink_in_two_rounds_running():
    rows = [{**ROUND, "pool/num_kept": n} for n in (300, 200, 100)]
    assert rules(of_rounds(rows, S)) == ["pool shrinks"]
    assert of_rounds([rows[0], rows[2]], S) == []
    assert of_rounds([rows[0], rows[2], rows[1]], S) == []


def seen_in(arm: str, seed: int) -> set[str]:
    rows = [json.loads(line) for line in (RESULTS / f"{arm}-seed{seed}.jsonl").read_text().splitlines()]
    return {finding.rule for end in range(1, len(rows) + 1) for finding in of_rounds(rows[:end], S)}


def test_every_recorded_run_that_collapsed_is_found_and_no_run_of_prism_is_called_one():
    """The 5 seeds of the collapse benchmark: its healthy arm and its most collapsed one."""
    for seed in range(5):
        assert "diversity falls" in seen_in("gate-continued", seed)
        assert not {"coverage falls", "diversity falls"} & seen_in("prism-from-solver", seed)
