from pathlib import Path

import pytest

from trl_prism.errors import PrismError
from trl_prism.recipe import config_from_mapping, parse_config


NEEDED = {"model_name_or_path": "m", "output_dir": "o", "bf16": False, "use_cpu": True}
ROOT = Path(__file__).parents[2]


@pytest.fixture
def recipe(tmp_path):
    def write(text=""):
        path = tmp_path / "recipe.yaml"
        path.write_text("model_name_or_path: m\noutput_dir: o\nbf16: false\nuse_cpu: true\n" + text)
        return ["--config", str(path)]

    return write


def test_a_negative_number_on_the_command_line_is_a_number():
    lab = str(ROOT / "recipes" / "lab" / "prism.yaml")
    config = parse_config(["--config", lab, "--solver.learning_rate", "-1e-3", "--vote_temperature", "-2"])
    with pytest.raises(PrismError) as error:
        config.validate()
    assert "`vote_temperature` is -2.0" in str(error.value)
    assert "`solver.learning_rate` is -0.001; it must lie between 0 and 1" in str(error.value)


def test_precedence(recipe):
    args = recipe("temperature: 0.9\nsolver:\n  temperature: 0.8\n  beta: 0.5\nlearning_rate: 1e-4\n")
    config = parse_config(args)
    assert config.role_settings("questioner")["temperature"] == 0.9  # shared over default
    assert config.role_settings("solver")["temperature"] == 0.8  # role over shared
    assert config.role_settings("solver")["epsilon"] == 0.2  # default
    config = parse_config([*args, "--temperature", "0.7"])
    assert config.role_settings("solver")["temperature"] == 0.7  # command line over role
    assert config.role_settings("solver")["beta"] == 0.5
    config = parse_config([*args, "--temperature", "0.7", "--solver.temperature", "0.6"])
    assert config.role_settings("solver")["temperature"] == 0.6  # a role's over the shared one
    assert config.role_settings("questioner")["temperature"] == 0.7


def test_one_call_does_not_leave_its_recipe_to_the_next(recipe):
    assert parse_config(recipe("num_rounds: 7\nepsilon_high: 0.3\n")).num_rounds == 7
    config = parse_config(recipe())
    assert config.num_rounds == 4 and "epsilon_high" not in config.shared


def test_values_take_their_fields_type_at_every_level(recipe):
    config = parse_config(recipe("learning_rate: 5e-6\ncoverage_weight: 3\nsolver:\n  learning_rate: 1e-5\n"))
    assert config.shared["learning_rate"] == 5e-6
    assert config.solver["learning_rate"] == 1e-5
    assert isinstance(config.coverage_weight, float)


def test_forms_of_the_command_line(recipe):
    config = parse_config([*recipe(), "--reward=gate", "--num-rounds", "2", "--reward_band", "0.5", "0.9"])
    assert (config.reward, config.num_rounds, config.reward_band) == ("gate", 2, [0.5, 0.9])
    config = parse_config([*recipe(), "--solver.max_steps=3", "--domain_kwargs", "{prompt_format: text}"])
    assert config.solver == {"max_steps": 3} and config.domain_kwargs == {"prompt_format": "text"}


@pytest.mark.parametrize(
    ("text", "args", "message"),
    [
        ("num_round: 3", [], "Did you mean `num_rounds`"),
        ("solver:\n  max_step: 3", [], "Did you mean `solver.max_steps`"),
        ("", ["--num_round", "3"], "Did you mean `--num_rounds`"),
        ("", ["--questioner.max_step", "3"], "Did you mean `--questioner.max_steps`"),
        ("", ["--learning_rate", "nan"], "finite"),
        ("learning_rate: .inf", [], "finite"),
        ("solver:\n  learning_rate: .nan", [], "finite"),
        ("", ["--learning_rate", "fast"], "fast"),
        ("learning_rate: fast", [], "fast"),
        ("num_rounds: 2.5", [], "whole number"),
        ("num_rounds: true", [], "must be a number"),
        ("reward: coverage", [], "prism, rzero, gate"),
        ("", ["--reward", "coverage"], "coverage"),
        ("solver:\n  seed: 3", [], "the run's `seed`"),
        ("solver: 3", [], "mapping"),
        ("gradient_accumulation_steps: 2", [], "prompts_per_update"),
        ("", ["--num_rounds", "2", "stray"], "stray"),
        ("reward:", [], "`reward` is empty"),
        ("reward: [prism]", [], "is a list"),
        ("num_rounds: [3]", [], "is a list"),
        ("num_rounds: {a: 1}", [], "is a mapping"),
        ("learning_rate: {a: 1}", [], "is a mapping"),
        ("reward_band: 0.5", [], "must be a list"),
        ("dtype: 16", [], "must be text"),
        ("gradient_checkpointing: 3", [], "true or false"),
        ("num_rounds: 2\nnum_rounds: 3", [], "given twice"),
        ("solver:\n  beta: 0.1\n  beta: 0.2", [], "given twice"),
        ("env: [a]", [], "`env`"),
        ("", ["--questioner", "{max_steps: 2"], "no YAML"),
        ("", ["--questioner", "{max_step: 2}"], "Did you mean `--questioner.max_steps`"),
    ],
)
def test_one_clear_error(recipe, text, args, message):
    with pytest.raises(PrismError, match=message):
        parse_config([*recipe(text), *args])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_rounds": 0}, "at least 1"),
        ({"reward_band": [0.9, 0.3]}, "low < high"),
        ({"reward_band": [0.1, 0.3], "gate_width": 0.2}, "nothing earns"),
        ({"coverage_decay": 1.5}, "must lie in"),
        ({"solver": {"prompts_per_step": 24, "prompts_per_update": 7}}, "multiples are 21 and 28"),
        ({"gate_width": 0}, "above 0"),
        ({"coverage_decay": 1.0}, r"\[0, 1\)"),
        ({"coverage_weight": -5.0}, "at least 0"),
        ({"vote_top_p": 7.0}, "between 1e-06 and 1"),
        ({"num_iterations": 0}, "num_iterations` is 0"),
        ({"epsilon": -1.0}, "epsilon` is -1"),
        ({"num_reward_votes": 1}, "no share of 1 votes lies in `reward_band`"),
        ({"num_label_votes": 2, "curriculum_band": [0.6, 0.9]}, "no share of 2 votes lies in `curriculum_band`"),
        ({"vote_temperature": 0.0}, "vote_temperature` is 0"),
        ({"seed": -1}, "`seed` is -1"),
        ({"num_candidates": 8}, "min_curriculum_size` is 16; it must lie between 1 and 8"),
        ({"dtype": "float99"}, "`dtype` is 'float99'"),
        ({"warmup_steps": -5}, "warmup_steps` is -5"),
        ({"max_curriculum_size": 4}, "at least 16"),
        ({"max_eval_problems": -1}, "at least 1"),
        ({"learning_rate": -1.0}, "questioner.learning_rate"),
        ({"temperature": -1.0}, "questioner.temperature"),
        ({"solver": {"max_steps": -1}}, "solver.max_steps"),
        ({"solver": {"reward_weights": [1.0, 2.0]}}, "reward functions"),
    ],
)
def test_what_cannot_work_is_refused(settings, message):
    with pytest.raises(PrismError, match=message):
        config_from_mapping({**NEEDED, **settings}).validate()


def test_a_whole_mapping_on_the_command_line_stands_over_the_recipes(recipe):
    args = recipe("questioner:\n  prompts_per_step: 32\n  max_steps: 5\n")
    config = parse_config([*args, "--questioner", "{max_steps: 2}"])
    assert config.questioner == {"prompts_per_step": 32, "max_steps": 2}
    config = parse_config([*args, "--benchmarks", "math500,gsm8k"])
    assert config.benchmarks == ["math500", "gsm8k"]


def test_files_that_are_no_recipe(tmp_path):
    with pytest.raises(PrismError, match="cannot be read"):
        parse_config(["--config", str(tmp_path / "absent.yaml")])
    (tmp_path / "list.yaml").write_text("- 1\n")
    with pytest.raises(PrismError, match="mapping"):
        parse_config(["--config", str(tmp_path / "list.yaml")])
    (tmp_path / "code.yaml").write_text("a: !!python/object/apply:os.getcwd []\n")
    with pytest.raises(PrismError, match="not YAML"):
        parse_config(["--config", str(tmp_path / "code.yaml")])
    with pytest.raises(PrismError, match="model_name_or_path"):
        config_from_mapping({"output_dir": "o"})


def test_the_resolved_configuration_reads_back_as_itself(recipe):
    config = parse_config([*recipe("solver:\n  beta: 0.5\n"), "--learning_rate", "1e-4"])
    again = config_from_mapping(config.as_mapping())
    assert again.as_mapping() == config.as_mapping()
    assert again.role_settings("solver") == config.role_settings("solver")


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").rglob("*.yaml")), ids=lambda p: p.stem)
def test_every_recipe_parses_and_states_what_matters(path):
    config = parse_config(["--config", str(path), "--use_cpu", "true", "--bf16", "false"])
    config.validate()
    first = path.read_text().splitlines()
    assert first[0].startswith("#") and any("accelerate launch" in line for line in first[:12])
    for role in ("questioner", "solver"):
        stated = {**config.shared, **getattr(config, role)}
        for name in ("beta", "scale_rewards", "loss_type", "epsilon", "temperature", "top_p", "num_iterations"):
            assert name in stated, f"{name} of the {role} is left to a default"
        for ranks in (1, 2, 8):
            config.role_config(role, output_dir="o", seed=0, num_ranks=ranks)
