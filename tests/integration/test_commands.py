"""`trl-prism plan`, `doctor` and `preview`, as a user calls them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from safetensors import safe_open

from tests.integration.conftest import BASE, ROOT, small_settings
from trl_prism import doctor
from trl_prism.cli import main
from trl_prism.errors import PrismError
from trl_prism.plan.command import launch_of, measured_seconds, plan
from trl_prism.plan.sizes import Launch, disk_of, memory_of, shape_of
from trl_prism.recipe import config_from_mapping, parse_config
from trl_prism.self_play import play


RECIPES = sorted((ROOT / "recipes").rglob("*.yaml"))


@pytest.fixture(scope="module")
def qwen(tmp_path_factory) -> str:
    """The shape of Qwen3-4B-Base, as its model card gives it; no weights."""
    from transformers import Qwen3Config

    folder = tmp_path_factory.mktemp("models") / "Qwen3-4B-Base"
    Qwen3Config(
        vocab_size=151936,
        hidden_size=2560,
        intermediate_size=9728,
        num_hidden_layers=36,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=32768,
        tie_word_embeddings=True,
    ).save_pretrained(folder)
    return str(folder)


def on_cpu(recipe: Path, qwen: str) -> list[str]:
    model = ["--model_name_or_path", qwen] if "qwen" in str(recipe) else []
    return ["--config", str(recipe), *model]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_plan_of_every_recipe_reads_well(recipe, qwen, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    many = ["--accelerate_config", "accelerate_configs/zero3.yaml"] if "qwen" in str(recipe) else []
    assert main(["plan", *on_cpu(recipe, qwen), *many]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 100
    for words in ("Questioner phase", "pool and votes", "Solver phase", "Learning rates", "Memory per rank", "Disk: "):
        assert words in shown, words
    assert main(["plan", *on_cpu(recipe, qwen), *many, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["launch"]["num_ranks"] == (8 if many else 1)
    assert [stage["name"] for stage in found["stages"]][:3] == ["Questioner phase", "pool and votes", "Solver phase"]


def test_the_plan_at_full_size(qwen, monkeypatch):
    monkeypatch.chdir(ROOT)
    config = parse_config(on_cpu(ROOT / "recipes" / "qwen3-4b-base" / "prism.yaml", qwen))
    found = plan(config, Launch(8, "zero3"))
    p = 4_022_468_096  # 4.0 B, as the model card says, tied embeddings counted once
    assert found["model"]["num_parameters"] == p
    part = found["memory_per_rank"]["solver"]
    assert part["parameters"]["bytes"] == p * 2 // 8 and part["optimizer"]["bytes"] == p * 8 // 8
    questioner = found["stages"][0]
    assert (questioner["updates"], questioner["prompts"], questioner["completions"]) == (6, 3072, 12288)
    assert questioner["votes"] == 122_880
    assert sum(found["seconds_per_round"].values()) == pytest.approx((38 + 2.4 + 25 + 82) * 60)
    assert "has not been measured" in found["times_from"]
    assert not [doubt for doubt in found["doubts"] if "GiB a rank" in doubt], "the shipped recipe must fit"
    rates = plan(config, Launch(8, "zero3"), generate_rate=1000, train_rate=2000)["seconds_per_round"]
    assert rates["pool and votes"] == pytest.approx((8000 * 1024 + 64000 * 4096) / 8000)


def test_what_is_doubtful_is_said(qwen):
    recipe = ROOT / "recipes" / "qwen3-4b-base" / "prism.yaml"
    changes = ["--sampling_batch_size", "64", "--questioner.prompts_per_step", "2048", "--warmup_steps", "1000"]
    ignored = "\n".join(plan(parse_config([*on_cpu(recipe, qwen), *changes]), Launch(8, "zero3"))["doubts"])
    assert "the schedule `constant` takes no warm-up: the rate is 5.00e-06 from the first update on" in ignored
    changes += ["--lr_scheduler_type", "constant_with_warmup"]
    doubts = "\n".join(plan(parse_config([*on_cpu(recipe, qwen), *changes]), Launch(8, "zero3"))["doubts"])
    assert "questioner needs about 69.9 GiB a rank, 87% of a card" in doubts
    assert "8192 completions: 4 a forward pass x 256 accumulated x 8 ranks" in doubts
    assert "The questioner's warm-up of 1000 updates is longer than the 24 updates of 4 rounds of 6" in doubts
    assert "1.15e-07" in doubts, "23/1000 of 5e-6 is what the last update gets"


def test_launches_are_read(monkeypatch):
    monkeypatch.chdir(ROOT)
    found = {path.stem: launch_of(str(path)) for path in (ROOT / "accelerate_configs").glob("*.yaml")}
    assert found["zero3"] == Launch(8, "zero3") and found["zero2"] == Launch(8, "zero2")
    assert found["fsdp2"] == Launch(8, "fsdp2") and found["multi_gpu"] == Launch(8, "ddp")
    assert found["zero3_cpu"] == Launch(2, "zero3") and found["single_cpu"] == Launch(1, "none")
    with pytest.raises(PrismError, match="cannot be read"):
        launch_of("/no/such.yaml")


def tensor_bytes(folder: Path) -> int:
    total = 0
    for file in folder.glob("*.safetensors"):
        with safe_open(file, framework="pt") as saved:
            total += sum(saved.get_tensor(name).nbytes for name in saved.keys())  # noqa: SIM118
    return total


def check_against_reality(settings: dict, monkeypatch) -> None:
    """Parameter, optimizer and checkpoint bytes, predicted and written, within 5 %."""
    from trl_prism import self_play

    monkeypatch.setattr(self_play, "remove_all", lambda folder: None)  # the checkpoints are what is looked at
    config = config_from_mapping(settings)
    play(config)
    shape = shape_of(config.model_name_or_path)
    disk, memory = disk_of(config, shape, Launch()), memory_of(config, "solver", shape, Launch())
    folder = Path(config.output_dir) / "round-01" / "solver"
    [checkpoint, *_] = folder.glob("checkpoint-*")
    optimizer = (checkpoint / "optimizer.pt").stat().st_size
    weights = [file for file in checkpoint.iterdir() if file.suffix in (".safetensors", ".pt", ".pth", ".bin")]
    assert tensor_bytes(folder) == pytest.approx(disk.model, rel=0.05)
    assert optimizer == pytest.approx(memory.parts["optimizer"][0], rel=0.05)
    assert sum(file.stat().st_size for file in weights) == pytest.approx(disk.checkpoint, rel=0.05)
    if not config.use_peft:
        assert memory.parts["parameters"][0] == pytest.approx(tensor_bytes(checkpoint), rel=0.05)


@pytest.mark.parametrize("peft", [False, True])
def test_predicted_bytes_are_what_a_lab_run_writes(peft, tmp_path, monkeypatch):
    changes = {"use_peft": True, "lora_r": 32} if peft else {}
    check_against_reality(small_settings(tmp_path / "run", num_candidates=32, **changes), monkeypatch)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_predicted_bytes_are_what_a_run_of_a_real_model_writes(smollm2, tmp_path, monkeypatch):
    questions = ["What is 2+3?", "What is 5-1?", "What is 2*4?", "What is 9-3?", "How much is 7+1?"]
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"problem": question}) + "\n" for question in questions))
    settings = small_settings(
        tmp_path / "run",
        model_name_or_path=smollm2,
        domain="maths",
        domain_kwargs={"reference": str(corpus), "prompt_format": "text"},
        num_clusters=2,
        num_candidates=16,
        min_curriculum_size=1,
        curriculum_band=[0.0, 1.0],
        reward_band=[0.0, 1.0],
        max_answer_length=24,
        max_prompt_length=400,
        questioner={"max_steps": 1, "prompts_per_step": 2, "num_generations": 2, "max_completion_length": 24},
        solver={"max_steps": 1, "prompts_per_step": 2, "num_generations": 2, "max_completion_length": 24},
    )
    check_against_reality(settings, monkeypatch)


def test_times_of_a_run_are_read_from_its_journal(tmp_path):
    with pytest.raises(PrismError, match="holds no journal"):
        measured_seconds(tmp_path)
    (tmp_path / "journal").mkdir()
    for number, seconds in ((0, 99.0), (1, 10.0), (2, 20.0)):
        record = {"round": number, "stage": "pool", "facts": {"seconds": seconds}}
        (tmp_path / "journal" / f"{number:02d}-pool.json").write_text(json.dumps(record))
    assert measured_seconds(tmp_path) == {"pool and votes": 15.0}


def test_doctor_of_this_machine(tmp_path, capsys):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(small_settings(tmp_path / "run")))
    assert main(["doctor", "--config", str(recipe), "--json"]) == 0
    found = {row["check"]: row for row in json.loads(capsys.readouterr().out)}
    assert {row["state"] for row in found.values()} <= {"ok", "warning"}
    assert found["TRL and transformers"]["detail"].startswith("trl 1.16")
    assert "frozen, " in found["embedder"]["detail"] and "finite" in found["embedder"]["detail"]
    assert found["generation and vote"]["detail"].startswith("4 answers of at most 22 tokens")
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100 and any("accelerator" in line for line in lines)


def test_doctor_fails_with_an_exit_code(tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(small_settings(tmp_path / "run", model_name_or_path="/no/such/model")))
    ran = subprocess.run(
        [sys.executable, "-m", "trl_prism.cli", "doctor", "--config", str(recipe)],
        capture_output=True, text=True, check=False, env={**os.environ, "CUDA_LAUNCH_BLOCKING": "1"},
    )  # fmt: skip
    assert ran.returncode == 1
    assert "generation and vote" in ran.stdout and "failure" in ran.stdout and "Traceback" not in ran.stderr
    assert "CUDA_LAUNCH_BLOCKING=1 makes every kernel" in ran.stdout.replace("\n", " ")


def test_doctor_sees_an_embedder_that_is_not_finite(monkeypatch, tmp_path):
    import numpy as np

    from trl_prism.ports.embedders import TfidfEmbedder

    monkeypatch.setattr(TfidfEmbedder, "embed", lambda self, texts: np.full((len(texts), 4), np.nan))
    found = {f.check: f for f in doctor.examine(config_from_mapping(small_settings(tmp_path / "run")))}
    assert found["embedder"].state == "failure" and "not finite" in found["embedder"].detail


def test_preview_shows_what_is_encoded(tmp_path, capsys, tokenizer):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(small_settings(tmp_path / "run", model_name_or_path=BASE)))
    question = "tom has 22 apples and buys 14 more then eats 8 and finds 2 how many apples has tom"
    assert main(["preview", "--config", str(recipe), "--question", question, "--sample"]) == 0
    shown = capsys.readouterr().out
    assert "=== Questioner" in shown and "=== Solver" in shown
    ids = " ".join(map(str, tokenizer(text=f"{question} <a>")["input_ids"]))
    assert f"Prompt as token ids:\n{ids}\n" in shown
    assert "ends at the end token '<eos>' (1), at a stop string (none), or after 22 tokens" in shown
    assert "Read as: the question '" in shown and "Read as: the answer '" in shown
