"""The whole loop as a user runs it: `accelerate launch recipes/prism.py --config ...` on the lab, made small."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.integration.conftest import ROOT, small_settings
from trl_prism.core.coverage import VisitMemory
from trl_prism.core.curriculum import FILTERS
from trl_prism.core.partition import Partition
from trl_prism.errors import PrismError
from trl_prism.recipe import config_from_mapping
from trl_prism.run_dir import RunDirectory
from trl_prism.self_play import play


ROW_KEYS = {
    "round",
    "coverage/entropy",
    "coverage/gini",
    "coverage/active_clusters",
    "coverage/cumulative_entropy",
    "diversity/semantic",
    "diversity/skill_entropy",
    "pool/num_candidates",
    "pool/num_distinct",
    "pool/num_kept",
    *(f"pool/num_{name}" for name in FILTERS),
    "questioner/frac_malformed",
    "questioner/mean_agreement",
    "labels/accuracy",
    "labels/num_right",
    "solver/accuracy",
    "solver/mean_at_k",
    "solver/maj_at_k",
    "seconds",
}


def launch(recipe: Path, *args: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [
            *(str(Path(sys.executable).parent / "accelerate"), "launch"),
            *("--config_file", str(ROOT / "accelerate_configs" / "single_cpu.yaml")),
            *(str(ROOT / "recipes" / "prism.py"), "--config", str(recipe), *args),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "140"},
        timeout=300,
        check=False,
    )


def digest(folder: Path) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in sorted(folder.glob("*.safetensors")))).hexdigest()


@pytest.fixture(scope="module")
def finished(tmp_path_factory, base):
    folder = tmp_path_factory.mktemp("run")
    settings = small_settings(folder / "run", num_rounds=2, beta=0.01)
    (folder / "recipe.yaml").write_text(yaml.safe_dump(settings))
    before = digest(Path(base))
    done = launch(folder / "recipe.yaml", "--questioner.max_steps", "1")
    assert done.returncode == 0, done.stderr[-3000:]
    assert digest(Path(base)) == before
    return folder / "run", done


def test_a_row_for_the_base_and_for_each_round(finished):
    run, _ = finished
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == [0, 1, 2]
    for row in rows:
        assert set(row) >= ROW_KEYS
        assert row["pool/num_candidates"] == 64
        fallen = sum(row[f"pool/num_{name}"] for name in FILTERS)
        assert fallen + row["pool/num_kept"] == 64
        for name in ("coverage/entropy", "solver/accuracy", "solver/maj_at_k", "labels/accuracy"):
            assert 0 <= row[name] <= 1


def test_everything_lies_where_it_should_and_loads_with_plain_transformers(finished, base):
    run, _ = finished
    for number in (1, 2):
        folder = run / f"round-{number:02d}"
        for role in ("questioner", "solver"):
            AutoModelForCausalLM.from_pretrained(folder / role)
            tokenizer = AutoTokenizer.from_pretrained(folder / role)
            assert tokenizer("<q>")["input_ids"] == AutoTokenizer.from_pretrained(base)("<q>")["input_ids"]
            assert json.loads((folder / role / "trainer_state.json").read_text())["log_history"]
    hashes = [digest(Path(base))] + [
        digest(run / f"round-0{n}" / role) for n in (1, 2) for role in ("questioner", "solver")
    ]
    assert len(set(hashes)) == 5, "a phase did not train"


def test_pool_and_curriculum_tell_the_same_story(finished):
    run, _ = finished
    pool = pq.read_table(run / "round-01" / "pool.parquet").to_pylist()
    assert len(pool) == 64
    assert set(pool[0]) >= {"question", "answer", "agreement", "cluster", "dropped"}
    kept = [row["question"] for row in pool if row["dropped"] is None]
    curriculum = load_dataset(
        "parquet", data_files=str(run / "round-01" / "curriculum" / "train.parquet"), split="train"
    )
    assert list(curriculum["question"]) == kept
    assert all(0.3 <= agreement <= 0.9 for agreement in curriculum["agreement"])


def test_visits_go_on_from_round_to_round(finished):
    run, _ = finished
    states = [json.loads((run / f"round-0{n}" / "visits.json").read_text()) for n in (1, 2)]
    assert [state["num_updates"] for state in states] == [1, 2]
    VisitMemory(16, decay=0.9, update="share").load_state_dict(states[1])
    assert Partition.load(run / "partition").num_clusters == 16


def test_the_resolved_configuration_says_what_ran(finished):
    run, _ = finished
    settings = yaml.safe_load((run / "config.yaml").read_text())
    assert settings["questioner"]["max_steps"] == 1 and settings["solver"]["max_steps"] == 2
    assert settings["solver"]["beta"] == 0.01
    config_from_mapping(settings).validate()


def test_the_attention_that_really_ran_is_in_the_log_the_record_and_the_card(finished):
    run, done = finished
    assert done.stdout.count("attention sdpa, weights float32") == 1
    assert json.loads((run / "journal" / "01-solver.json").read_text())["facts"]["attention"] == "sdpa"
    for role in ("questioner", "solver"):
        card = (run / "round-01" / role / "README.md").read_text()
        assert "- attention: sdpa\n- weights: float32\n- bf16 autocast: false\n- processes: 1 (NO)" in card


def test_what_a_user_sees(finished):
    _, done = finished
    assert "round 1 of 2:" in done.stdout and "Solver accuracy" in done.stdout
    assert "base" in done.stdout and "maj@k" in done.stdout
    assert "round 1: Questioner" in done.stderr and "round 2: votes" in done.stderr
    assert "Traceback" not in done.stderr and "{'loss'" not in done.stdout


def test_a_run_of_another_configuration_is_refused_with_the_difference(finished):
    run, _ = finished
    done = launch(run.parent / "recipe.yaml")
    assert done.returncode != 0
    assert "holds a run of another configuration:\n  questioner.max_steps: was 1, is 2\n" in done.stderr
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 3


def test_a_finished_run_is_not_repeated(finished):
    run, _ = finished
    before = {file: file.stat().st_mtime_ns for file in run.rglob("*.safetensors")}
    done = launch(run.parent / "recipe.yaml", "--questioner.max_steps", "1", "--resume_from_checkpoint", "true")
    assert done.returncode == 0, done.stderr[-2000:]
    assert "round 2 of 2:" in done.stdout and "Questioner:" not in done.stderr
    assert {file: file.stat().st_mtime_ns for file in run.rglob("*.safetensors")} == before


def test_resume_from_checkpoint_means_what_it_says(finished, tmp_path):
    run, _ = finished
    directory = RunDirectory(run)
    directory.check()
    directory.check(resume="true")
    directory.check(resume=str(run / "round-01"))
    with pytest.raises(PrismError, match="holds a run already"):
        directory.check(resume="false")
    with pytest.raises(PrismError, match="is not in `output_dir`"):
        directory.check(resume=str(tmp_path))
    with pytest.raises(PrismError, match="holds no run that could go on"):
        RunDirectory(tmp_path / "new").check(resume="true")
    RunDirectory(tmp_path / "new").check(resume="false")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(PrismError, match=r"holds no run that could go on\. Choose another"):
        RunDirectory(tmp_path).check()


def test_an_unknown_field_is_an_error_with_the_nearest_one(finished):
    run, _ = finished
    done = launch(run.parent / "recipe.yaml", "--solver.max_step", "3")
    assert done.returncode != 0 and "Did you mean `--solver.max_steps`" in done.stderr


def test_a_pool_that_leaves_too_little_ends_the_run_with_the_funnel(small):
    config = small(curriculum_band=[0.0, 0.01])
    with pytest.raises(PrismError, match=r"fewer than `min_curriculum_size` = 4(.|\n)*too_easy(.|\n)*agreement"):
        play(config)


@pytest.mark.parametrize("reward", ["rzero", "gate"])
def test_the_other_rewards_run_in_the_same_recipe(small, reward):
    rows = play(small(reward=reward, questioner_init="questioner", kl_reference="base", beta=0.01))
    assert [row["round"] for row in rows] == [0, 1]


def test_a_continued_questioner_starts_from_the_last_one(small, monkeypatch):
    from trl_prism.parts import Parts

    starts = []
    original = Parts.train

    def noted(self, trainer_class, role, number, folder, *, start, **kwargs):
        starts.append((role, number, Path(start).parts[-2:]))
        return original(self, trainer_class, role, number, folder, start=start, **kwargs)

    monkeypatch.setattr(Parts, "train", noted)
    play(small(num_rounds=2, questioner_init="questioner"))
    assert starts[2] == ("questioner", 2, ("round-01", "questioner"))
    assert starts[3] == ("solver", 2, ("round-01", "solver"))
    starts.clear()
    config = small(num_rounds=2, questioner_init="solver")
    config.output_dir += "-2"
    play(config)
    assert starts[2] == ("questioner", 2, ("round-01", "solver"))
