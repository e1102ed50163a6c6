"""Recipes that cannot work: each ends in one message before a model is loaded, with no trace of ours and no folder."""

import shutil
import sys

import pytest
import yaml
from transformers import AutoTokenizer

from recipes.prism import main
from tests.integration.conftest import BASE, small_settings
from trl_prism.cli import guarded


# What is changed in the lab's recipe (a dot names a role's field), and what the message must say.
BAD = [
    # numbers
    ({"learning_rate": float("nan")}, "`learning_rate` is nan; it must be a finite number"),
    ({"solver.learning_rate": "inf"}, "`solver.learning_rate` is inf; it must be a finite number"),
    ({"solver.learning_rate": 3.0}, "`solver.learning_rate` is 3.0; it must lie between 0 and 1, the nearest is 1"),
    ({"learning_rate": "fast"}, "`learning_rate` is 'fast', which does not fit"),
    ({"num_rounds": 0}, "`num_rounds` is 0; it must be at least 1"),
    ({"num_rounds": 2.5}, "`num_rounds` is 2.5; it must be a whole number"),
    ({"coverage_decay": 1.0}, "`coverage_decay` is 1.0; it must lie in [0, 1)"),
    ({"vote_temperature": 0.0}, "`vote_temperature` is 0.0; it must be at least 1e-06"),
    ({"epsilon_high": -1.0}, "`questioner.epsilon_high` is -1.0; it must be at least 0"),
    ({"save_total_limit": 1}, "`questioner.save_total_limit` is 1; it must be at least 2"),
    # names
    ({"num_round": 3}, "Unknown setting `num_round`. Did you mean `num_rounds`?"),
    ({"solver.max_step": 3}, "Unknown setting `solver.max_step`. Did you mean `solver.max_steps`?"),
    ({"loss_type": "grop"}, "`questioner.loss_type` is 'grop'; it must be one of grpo, dr_grpo"),
    ({"scale_rewards": "some"}, "`questioner.scale_rewards` is 'some'; it must be one of group, batch, none"),
    ({"report_to": "abacus"}, "`questioner.report_to` is 'abacus'; it must be one of all, none"),
    ({"optim": "adamw_bnb_8bit"}, "`questioner.optim` is OptimizerNames.ADAMW_BNB, which cannot be used here"),
    ({"lr_scheduler_type": "cosinus"}, "`lr_scheduler_type` is 'cosinus'; it must be one of linear, cosine"),
    (
        {"lr_scheduler_type": "cosine", "lr_scheduler_kwargs": {"a": 2}},
        "`questioner.lr_scheduler_kwargs` is {'a': 2}, which the schedule",
    ),
    ({"dtype": "float31"}, "`dtype` is 'float31'; it must be 'auto' or a type of torch"),
    # batches, bands, votes
    (
        {"solver.prompts_per_update": 3},
        "`solver.prompts_per_step` is 4, not a multiple of `solver.prompts_per_update`",
    ),
    (
        {"solver.prompts_per_update": 2, "solver.save_steps": 3, "solver.max_steps": 4},
        "`solver.save_steps` is 3; a generation batch of the solver is used for 2 updates, and checkpoints lie "
        "between batches: it must be a multiple of that, the nearest are 2 and 4",
    ),
    ({"reward_band": [0.0, 0.3]}, "`reward_band` is [0.0, 0.3], where the gate is 0 throughout"),
    ({"reward_band": [0.9, 0.3]}, "`reward_band`"),
    ({"num_reward_votes": 1, "reward_band": [0.3, 0.9]}, "no share of 1 votes lies in `reward_band`"),
    (
        {"num_reward_votes": 2, "reward_band": [0.0, 1.0], "gate_center": 0.75, "gate_width": 0.2},
        "every question would",
    ),
    ({"min_curriculum_size": 100}, "`min_curriculum_size` is 100; it must lie between 1 and 64, the nearest is 64"),
    ({"vote_engine": "server"}, "`vote_engine: server` and `server_urls` belong together"),
    ({"vote_engine": "server", "server_urls": ["gpu1:8000"]}, "`server_urls` holds 'gpu1:8000', which is no address"),
    ({"reward_weights": [1.0, 2.0]}, "`questioner.reward_weights` has 2 values; there are 1 reward functions"),
    ({"questioner.reward_funcs": ["no.such.function"]}, "The reward function 'no.such.function' cannot be imported"),
    # what needs the model, the tokenizer, the corpus, the disk
    ({"model_name_or_path": "no/such-model"}, "'no/such-model' cannot be read"),
    ({"num_clusters": 5000}, "`num_clusters` is 5000, and the reference corpus has"),
    ({"max_prompt_length": 500}, "500 tokens, 522 in all, more than the"),
    ({"questioner.max_completion_length": 600}, "`questioner.max_completion_length` is 600"),
    ({"partition_path": "/no/such/folder"}, "`partition_path` is /no/such/folder, which is no folder"),
    ({"benchmarks_dir": "/no/such/folder", "benchmarks": ["gsm8k"]}, "`benchmarks_dir` is /no/such/folder"),
    ({"output_dir": "/proc/run"}, "The output folder /proc/run cannot be made"),
    ({"use_peft": True, "lora_target_modules": ["q_projection"]}, "which names no linear layer of the model; it has"),
    ({"use_vllm": True}, "`use_vllm` needs vLLM, which is not installed"),
    ({"domain": "json:JSONDecoder"}, "which is no subclass of trl_prism.domains.Domain"),
    ({"domain": ":Lab"}, "`domain` is ':Lab'; it must be one of maths"),
    ({"domain_kwargs": {"num_held_uot": 3}}, "num_held_uot"),
    ({"eos_token": "<|end|>"}, "`eos_token` is '<|end|>', which the tokenizer of"),
    ({"domain": "maths", "domain_kwargs": {"reference": "REFERENCE"}}, "has no chat template"),
    ({"embedder": "no/such-embedder"}, "no/such-embedder"),
    ({"resume_from_checkpoint": "true"}, "`resume_from_checkpoint` is true, and"),
]


@pytest.fixture
def told(tmp_path, monkeypatch, capfd):
    """Runs the recipe's front on text and returns what a user is told."""

    def run(text: str | bytes) -> str:
        recipe = tmp_path / "recipe.yaml"
        recipe.write_bytes(text if isinstance(text, bytes) else text.encode())
        monkeypatch.setattr(sys, "argv", ["recipes/prism.py", "--config", str(recipe)])
        capfd.readouterr()
        assert guarded(main) == 2
        return capfd.readouterr().err

    return run


@pytest.mark.parametrize(("changes", "message"), BAD, ids=lambda value: str(value)[:50])
def test_one_message_before_anything_is_loaded(changes, message, told, tmp_path):
    settings = small_settings(tmp_path / "run")
    for key, value in changes.items():
        role, _, name = key.rpartition(".")
        (settings[role] if role else settings)[name] = value
    if settings["domain_kwargs"].get("reference"):
        (tmp_path / "corpus.jsonl").write_text("".join(f'{{"problem": "{i}"}}\n' for i in range(20)))
        settings["domain_kwargs"]["reference"] = str(tmp_path / "corpus.jsonl")
    said = told(yaml.safe_dump(settings))
    assert message in said, said[-1500:]
    assert said.count("error: ") == 1 and "Traceback" not in said
    assert not (tmp_path / "run").exists(), "a folder is left behind"


def test_only_the_first_rank_says_all_of_it(told, tmp_path, monkeypatch):
    recipe = yaml.safe_dump(small_settings(tmp_path / "run", num_rounds=0, vote_temperature=0.0))
    assert "- `vote_temperature` is" in told(recipe)
    monkeypatch.setenv("RANK", "1")
    assert told(recipe).splitlines()[-1] == "[rank 1] 2 settings cannot work: [...]"


def test_keys_that_are_merged_in_may_be_overridden(told, tmp_path):
    said = told(
        "solver: &both {max_steps: 0}\nquestioner:\n  <<: *both\n  max_steps: -1\nmodel_name_or_path: x\noutput_dir: y"
    )
    assert "`questioner.max_steps` is -1" in said and "`solver.max_steps` is 0" in said


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"num_rounds: \xff\xfe", "is no UTF-8 text (byte 12)"),
        ("num_rounds: 1\nnum_rounds: 2\n", "the key 'num_rounds' is given twice\n  in \"<unicode string>\", line 2"),
        ("num_rounds: [1", "is not YAML"),
        ("- a list", "must hold a mapping"),
        ("num_rounds: !!python/object/apply:os.system ['true']", "is not YAML"),
        ("solver: [1, 2]", "`solver` is a list; it must be a mapping of names to values"),
        ("reward_band: 0.3", "`reward_band` is 0.3; it must be a list, as [0.3, 0.9]"),
        ("benchmarks: {a: 1}", "`benchmarks` is a mapping; it must be a list"),
    ],
)
def test_a_file_that_is_no_recipe(text, message, told):
    said = told(text)
    assert message in said, said
    assert "Traceback" not in said


def test_all_that_is_wrong_is_said_at_once(told, tmp_path):
    settings = small_settings(tmp_path / "run", num_rounds=0, vote_temperature=0.0, loss_type="none")
    settings["solver"]["epsilon"] = 7.0
    said = told(yaml.safe_dump(settings))
    assert "error: 5 settings cannot work:" in said
    for name in ("num_rounds", "vote_temperature", "questioner.loss_type", "solver.loss_type", "solver.epsilon"):
        assert f"  - `{name}` is" in said
    said = told("num_round: 1\nlearning_rate: fast\nsolver: {beta: [1]}\n")
    assert "error: 3 settings cannot be read:" in said
    settings = small_settings(tmp_path / "run", num_clusters=5000, max_prompt_length=500, eos_token="<eos>")
    said = told(yaml.safe_dump(settings))
    assert "error: 2 things cannot work:" in said


def test_a_template_that_ends_turns_with_another_token_is_refused_with_the_way_out(told, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(BASE, model)
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_end|>"]})
    tokenizer.chat_template = "{% for m in messages %}{{ m['role'] }} {{ m['content'] }}<|im_end|>\n{% endfor %}"
    tokenizer.save_pretrained(model)
    (tmp_path / "corpus.jsonl").write_text("".join(f'{{"problem": "{i}"}}\n' for i in range(20)))
    settings = small_settings(
        tmp_path / "run",
        model_name_or_path=str(model),
        domain="maths",
        domain_kwargs={"reference": str(tmp_path / "corpus.jsonl")},
        max_prompt_length=20,
    )
    said = told(yaml.safe_dump(settings))
    assert "The chat template ends a turn with '<|im_end|>', and the end token is '<eos>'" in said
    assert "set `eos_token: '<|im_end|>'`" in said


def test_too_little_disk_is_refused_with_the_numbers(told, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10_000))
    said = told(yaml.safe_dump(small_settings(tmp_path / "run")))
    assert "GiB of models and checkpoints, and" in said and "keep_rounds: 2" in said
