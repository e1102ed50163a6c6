"""Every recipe, on every accelerate configuration that it names."""

import re
import subprocess

import pytest
import yaml

from tests.integration.conftest import ROOT
from trl_prism.recipe import parse_config


RECIPES = sorted((ROOT / "recipes").rglob("*.yaml"))
NAMED = [
    (recipe, name)
    for recipe in RECIPES
    for name in sorted(set(re.findall(r"accelerate_configs/(\w+)\.yaml", recipe.read_text()))) or ["single_cpu"]
]
# Beyond what recipes name: every launch configuration for GPUs with the main recipe, and the Slurm script's.
MAIN = ROOT / "recipes" / "qwen3-4b-base" / "prism.yaml"
NAMED += [(MAIN, name) for name in ("zero2", "multi_gpu", "zero3_multinode")]


def test_there_are_recipes():
    names = {str(recipe.relative_to(ROOT / "recipes")) for recipe in RECIPES}
    assert names == {
        "lab/prism.yaml", "lab/rzero.yaml", "qwen3-4b-base/prism.yaml", "qwen3-4b-base/prism-released-code.yaml",
        "qwen3-4b-base/rzero.yaml", "qwen3-4b-base/prism-lora.yaml",
    }  # fmt: skip


@pytest.mark.parametrize(("recipe", "name"), NAMED, ids=lambda value: getattr(value, "stem", value))
def test_a_recipe_resolves_on_the_configurations_that_it_names(recipe, name, monkeypatch):
    monkeypatch.chdir(ROOT)
    launch = yaml.safe_load((ROOT / "accelerate_configs" / f"{name}.yaml").read_text())
    config = parse_config(["--config", str(recipe)])
    num_ranks = launch["num_processes"]
    # bf16 asks for a GPU when its arguments are made, which here is nobody's business
    for role in ("questioner", "solver"):
        getattr(config, role).update(bf16=False, use_cpu=True)
    config.validate(num_ranks=num_ranks)
    for role in ("questioner", "solver"):
        args = config.role_config(role, output_dir="unused", seed=0, num_ranks=num_ranks)
        settings = config.role_settings(role)
        completions = settings["prompts_per_step"] * settings["num_generations"]
        assert args.per_device_train_batch_size * args.steps_per_generation * num_ranks == completions
        updates = settings["prompts_per_step"] // (settings.get("prompts_per_update") or settings["prompts_per_step"])
        assert args.steps_per_generation == args.gradient_accumulation_steps * updates
        assert settings["max_steps"] % (updates * settings["num_iterations"]) == 0, "the last batch would be cut short"
    if config.dtype == "bfloat16" and launch["distributed_type"] == "FSDP":
        assert "--dtype float32" in recipe.read_text()


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_opens_with_what_it_is_and_how_it_is_run(recipe):
    head = recipe.read_text().split("\nmodel_name_or_path")[0]
    assert f"--config {recipe.relative_to(ROOT)}" in head
    if "qwen" in str(recipe):
        assert re.search(r"H100|GPU", head) and "not measured" in head and "pip install" in head


def test_the_slurm_script_is_a_shell_script():
    script = ROOT / "recipes" / "slurm" / "two_nodes.sh"
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0
    assert "zero3_multinode.yaml" in script.read_text()
