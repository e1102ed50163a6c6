"""Two real gloo ranks: rewards and visits as on one, the whole loop, and one rank's fault that ends all.

Launches can pretend: every test asserts the number of processes and the kind.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tests.integration.conftest import BASE, ROOT, small_settings


CONFIGS = ROOT / "accelerate_configs"


def launch(config: str, *args: str, timeout: int = 300, **env: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [
            *(str(Path(sys.executable).parent / "accelerate"), "launch"),
            *("--config_file", str(CONFIGS / f"{config}.yaml"), "--main_process_port", "0", *args),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
            # DeepSpeed compiles an operator on its first start, with the ninja that lies beside our python.
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "DS_ACCELERATOR": "cpu",
            "TORCH_EXTENSIONS_DIR": str(Path(sys.prefix) / "torch_extensions"),
            **env,
        },
        timeout=timeout,
        check=False,
    )


def written(folder: Path, num_ranks: int) -> list[dict]:
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(num_ranks)]


def test_rewards_and_visits_are_the_same_on_one_rank_and_on_two(tmp_path):
    program = str(ROOT / "tests" / "distributed" / "programs" / "batch.py")
    results = {}
    for num, config in ((1, "single_cpu"), (2, "ddp_cpu")):
        folder = tmp_path / config
        folder.mkdir()
        done = launch(config, program, str(folder))
        assert done.returncode == 0, done.stderr[-2000:]
        results[num] = written(folder, num)
    [one], two = results[1], results[2]
    assert one["num_processes"] == 1
    assert [r["num_processes"] for r in two] == [2, 2]
    assert {r["distributed_type"] for r in two} == {"MULTI_CPU"}
    for batch in (0, 1):
        assert one["rewards"][batch] == two[0]["rewards"][batch] + two[1]["rewards"][batch]
    assert one["rewards"][1][-1] == -1, "the one that is no question"
    assert len(set(one["rewards"][0] + one["rewards"][1])) > 3, "a batch that says nothing"
    for key in ("visits", "centroids", "thresholds", "few"):
        assert one[key] == two[0][key] == two[1][key], key
    assert one["visits"] != [1.0] * 16


@pytest.fixture
def recipe(tmp_path):
    def write(**changes):
        path = tmp_path / "recipe.yaml"
        path.write_text(yaml.safe_dump(small_settings(tmp_path / "run", **changes)))
        return str(path)

    return write


ENGINES = {
    # accelerate's configuration: the kind of run, whether parameters are sharded, and what the recipe needs
    "ddp_cpu": ("MULTI_CPU", False, {}),
    "zero3_cpu": ("DEEPSPEED", True, {"bf16": True}),
    "fsdp2_cpu": ("FSDP", True, {}),
}


WITHOUT_KL = {("fsdp2_cpu", "full"), ("zero3_cpu", "lora")}


@pytest.mark.timeout(400)
@pytest.mark.parametrize("weights", ["full", "lora"])
@pytest.mark.parametrize("config", ENGINES)
def test_the_whole_loop_on_two_ranks(config, weights, recipe, tmp_path):
    kind, sharded, settings = ENGINES[config]
    if weights == "lora":
        settings = {**settings, "use_peft": True, "lora_r": 4}
    record = tmp_path / "record"
    record.mkdir()
    program = str(ROOT / "tests" / "distributed" / "programs" / "recipe.py")
    # The KL term brings a reference model, or turns the adapter off; two rounds bring every hand-over: Q, S, Q, S.
    beta = 0.0 if (config, weights) in WITHOUT_KL else 0.01
    path = recipe(num_rounds=2, beta=beta, **settings)
    done = launch(config, program, str(record), "--config", path, timeout=380)
    assert done.returncode == 0, done.stderr[-3000:]
    phases = [json.loads(file.read_text()) for file in sorted(record.iterdir())]
    assert len(phases) == 4 * 2
    for phase in phases:
        assert (phase["num_processes"], phase["distributed_type"]) == (2, kind)
        assert phase["num_sharded"] == (phase["num_parameters"] if sharded else 0)

    # Role for role: nothing of an earlier phase is kept. Records lie in the order phase 0 rank 0, phase 0 rank 1, ...
    memory = [phase["num_bytes_at_begin"] for phase in phases[::2]]
    assert memory[2] <= 1.05 * memory[0] and memory[3] <= 1.05 * memory[1], memory

    run = tmp_path / "run"
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == [0, 1, 2], "one process writes the rows"
    environment = json.loads((run / "environment.json").read_text())
    assert (environment["num_processes"], environment["distributed_type"]) == (2, kind)
    assert len(list((run / "round-01" / "evaluation").rglob("completions.jsonl"))) == 1
    visits = json.loads((run / "round-02" / "visits.json").read_text())
    assert visits["num_updates"] == 4
    models = {"base": BASE, "solver 1": run / "round-01" / "solver", "questioner 2": run / "round-02" / "questioner"}
    loaded = {name: AutoModelForCausalLM.from_pretrained(path).state_dict() for name, path in models.items()}
    assert all(tensor.isfinite().all() for tensor in loaded["questioner 2"].values())
    for before, after in (("base", "solver 1"), ("solver 1", "questioner 2")):
        moved = [name for name, tensor in loaded[after].items() if not tensor.equal(loaded[before][name])]
        assert len(moved) > len(loaded[before]) // 2, f"{after} did not train: {moved}"


def test_a_reward_that_fails_on_one_rank_ends_all_with_one_error(recipe):
    name = "tests.distributed.programs.rewards.fails_on_one_rank"
    start = time.monotonic()
    done = launch("ddp_cpu", "recipes/prism.py", "--config", recipe(questioner={"reward_funcs": [name]}), timeout=120)
    assert done.returncode != 0 and time.monotonic() - start < 100
    message = "The reward function fails_on_one_rank failed on rank 1 of 2: KeyError: 'the key that is not there'"
    assert message in done.stderr, done.stderr[-3000:]


@pytest.mark.timeout(300)
def test_zero3_hands_over_its_master_weights(tmp_path):
    program = str(ROOT / "tests" / "distributed" / "programs" / "handoff.py")
    done = launch("zero3_cpu", program, str(tmp_path), "float32")
    assert done.returncode == 0, done.stderr[-3000:]
    kind = json.loads((tmp_path / "kind.json").read_text())
    assert kind == {"num_processes": 2, "distributed_type": "DEEPSPEED"}
    base, first, second = (
        load_file(Path(folder) / "model.safetensors") for folder in (BASE, tmp_path / "phase-0", tmp_path / "phase-1")
    )
    # The second phase had a rate of 0: what it started from is what the first one reached, bit by bit.
    assert all(first[name].equal(second[name]) for name in first)
    moved = {name: (first[name] - base[name]).abs() for name in first}
    assert all(0 < step.max() < 1e-5 for step in moved.values()), "three steps at a rate of 1e-6, and nothing else"
    lost = [name for name in first if first[name].bfloat16().float().equal(first[name])]
    assert lost == [], "bfloat16 would have kept these: the test shows nothing"
