"""One phase of each role with TRL's real trainer on the lab's base model."""

import json

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM

from prism_lab.domain import Lab
from tests.integration.conftest import small_settings
from trl_prism.core.coverage import VisitMemory
from trl_prism.core.curriculum import Candidate
from trl_prism.core.partition import Partition
from trl_prism.errors import PrismError
from trl_prism.ports.embedders import TfidfEmbedder
from trl_prism.ports.models import load_frozen
from trl_prism.ports.samplers import SamplingParams, TransformersSampler
from trl_prism.questions import PlausibilityGate, QuestionJudge, QuestionReward, RewardSettings
from trl_prism.recipe import config_from_mapping
from trl_prism.trainers import QuestionerTrainer, SolverTrainer
from trl_prism.trainers.solver import AnswerReward


def weights(model):
    return {name: tensor.detach().clone() for name, tensor in model.named_parameters()}


def differing(one, two):
    return {name for name in one if not torch.equal(one[name], two[name])}


@pytest.fixture(scope="module")
def lab():
    return Lab(num_held_out=16)


@pytest.fixture(scope="module")
def embedder(lab):
    return TfidfEmbedder(lab.reference_questions())


@pytest.fixture(scope="module")
def partition(lab, embedder):
    z = embedder.embed(lab.reference_questions())
    return Partition.fit(z, 16, embedder=embedder.fingerprint, corpus_hash="", seed=0)


@pytest.fixture
def question_reward(base, tokenizer, lab, embedder, partition):
    def build(solver=None, **settings):
        judge = QuestionJudge(
            domain=lab,
            solver=TransformersSampler(solver or load_frozen(base), tokenizer, batch_size=128),
            params=SamplingParams(max_tokens=24),
            tokenizer=tokenizer,
            max_prompt_length=40,
        )
        return QuestionReward(
            judge=judge,
            embedder=embedder,
            partition=partition,
            memory=VisitMemory(16, decay=0.9),
            settings=RewardSettings(**settings),
            num_votes=4,
            seed=0,
        )

    return build


@pytest.fixture
def questioner_trainer(base, tokenizer, tmp_path, question_reward):
    def build(reward=None, *, path=base, reference_path=base, model=None, reward_funcs=None, **changes):
        settings = {"max_steps": 2, "prompts_per_step": 4, "learning_rate": 1e-2, **changes}
        config = config_from_mapping(small_settings(tmp_path / "run", questioner=settings))
        args = config.role_config("questioner", output_dir=str(tmp_path / "questioner"), seed=0)
        return QuestionerTrainer(
            model=model if model is not None else AutoModelForCausalLM.from_pretrained(path),
            args=args,
            train_dataset=Dataset.from_list([{"prompt": "<q>"}] * 4),
            processing_class=tokenizer,
            reference_path=reference_path,
            question_reward=reward or question_reward(),
            reward_funcs=reward_funcs,
        )

    return build


def test_every_parameter_of_the_questioner_changes_and_nothing_frozen_does(base, question_reward, questioner_trainer):
    solver = load_frozen(base)
    reward = question_reward(solver)
    frozen, centroids = weights(solver), reward.partition.centroids.copy()
    vector = reward.embedder.embed(["tom has 3 apples"])
    trainer = questioner_trainer(reward)
    start = weights(trainer.model)
    trainer.train()
    assert differing(start, weights(trainer.model)) == set(start)
    assert differing(frozen, weights(solver)) == set()
    assert (reward.partition.centroids == centroids).all()
    assert (reward.embedder.embed(["tom has 3 apples"]) == vector).all()
    assert reward.memory.num_updates == 2
    logged = {key for entry in trainer.state.log_history for key in entry}
    assert {"questioner/frac_unusable", "questioner/mean_agreement", "rewards/question_reward/mean"} <= logged


def test_every_parameter_of_the_solver_changes_and_labels_decide(base, tokenizer, lab, tmp_path):
    settings = {"max_steps": 2, "prompts_per_step": 4, "learning_rate": 1e-2}
    config = config_from_mapping(small_settings(tmp_path / "run", solver=settings))
    rows = [{"prompt": lab.solver_prompt(p.question), "answer": p.answer} for p in lab.held_out_problems()]
    trainer = SolverTrainer(
        model=AutoModelForCausalLM.from_pretrained(base),
        args=config.role_config("solver", output_dir=str(tmp_path / "solver"), seed=0),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        answer_reward=AnswerReward(lab),
    )
    start = weights(trainer.model)
    trainer.train()
    assert differing(start, weights(trainer.model)) == set(start)
    rewards = [entry["reward"] for entry in trainer.state.log_history if "reward" in entry]
    assert any(0 < reward < 1 for reward in rewards)


def test_answer_reward_by_hand(lab):
    completions = ["surely <ans> 7", "surely <ans> 8", "surely 7", [{"role": "assistant", "content": "<ans> 7"}]]
    assert AnswerReward(lab)(completions=completions, answer=["7"] * 4) == [1, 0, 0, 1]
    assert AnswerReward(lab, format_weight=0.1)(completions=completions, answer=["7"] * 4) == [1.0, 0.1, 0, 1.0]


def test_visits_are_saved_with_a_checkpoint_and_restored(questioner_trainer, question_reward, tmp_path):
    first = question_reward()
    questioner_trainer(first, save_strategy="steps", save_steps=1, max_steps=2).train()
    checkpoint = tmp_path / "questioner" / "checkpoint-2"
    saved = json.loads((checkpoint / "visits.json").read_text())
    assert saved.pop("num_barren") == 0
    assert saved == first.memory.state_dict() and saved["visits"] != [1.0] * 16

    again = question_reward()
    trainer = questioner_trainer(again, save_strategy="steps", save_steps=1, max_steps=3)
    trainer.train(resume_from_checkpoint=str(checkpoint))
    assert again.memory.num_updates == 3
    at_two = VisitMemory(16, decay=0.9)
    at_two.load_state_dict(saved)
    assert not (again.memory.visits == at_two.visits).all()
    assert again.memory.visits.sum() != pytest.approx(16.0)


def test_evaluation_leaves_no_trace_in_the_memory(questioner_trainer, question_reward):
    reward = question_reward()
    trainer = questioner_trainer(reward, num_generations_eval=2)
    trainer.evaluate(eval_dataset=Dataset.from_list([{"prompt": "<q>"}] * 4))
    assert reward.memory.visits.tolist() == [1.0] * 16 and reward.memory.num_updates == 0


@pytest.mark.parametrize("which", ["phase_start", "base"])
def test_the_kl_reference_is_the_one_that_was_asked_for(which, base, questioner_trainer, tmp_path):
    moved = AutoModelForCausalLM.from_pretrained(base)
    with torch.no_grad():
        for tensor in moved.parameters():
            tensor.mul_(1.1)
    start = str(tmp_path / "start")
    moved.save_pretrained(start)
    # In memory the policy carries the path of the base, as after a hand-over: TRL alone would take that as reference.
    policy = AutoModelForCausalLM.from_pretrained(base)
    policy.load_state_dict(moved.state_dict())
    reference_path = start if which == "phase_start" else base
    trainer = questioner_trainer(model=policy, reference_path=reference_path, beta=0.1)
    expected = weights(AutoModelForCausalLM.from_pretrained(reference_path))
    assert differing(expected, weights(trainer.ref_model)) == set()
    other = weights(AutoModelForCausalLM.from_pretrained(base if which == "phase_start" else start))
    assert differing(other, weights(trainer.ref_model))
    trainer.train()
    kl = [entry["kl"] for entry in trainer.state.log_history if "kl" in entry]
    assert kl[0] == pytest.approx(0, abs=1e-5) if which == "phase_start" else kl[0] > 1e-4
    assert differing(expected, weights(trainer.ref_model)) == set(), "the reference was trained"


def shortness(completions, **_):
    return [-len(completion) / 100 for completion in completions]


def test_a_users_reward_function_stands_beside_ours(questioner_trainer):
    trainer = questioner_trainer(reward_funcs=[shortness], reward_weights=[1.0, 0.0])
    trainer.train()
    entry = next(entry for entry in trainer.state.log_history if "reward" in entry)
    assert "rewards/shortness/mean" in entry
    assert entry["reward"] == pytest.approx(entry["rewards/question_reward/mean"], abs=1e-4)


# Completions as a Questioner might write them.
GOOD = "tom has 22 apples and buys 14 more then eats 8 and finds 2 how many apples has tom"
OTHER = "multiply the larger of 7 and 12 by 3 and subtract 6"


def test_rewards_of_a_batch_against_the_formula(question_reward):
    reward = question_reward(reward_band=(0.0, 1.0))
    given = reward(completions=[GOOD, OTHER, "", "3 = 4"])
    assert given[2:] == [-1.0, -1.0]
    judged = reward.judge.judge([GOOD, OTHER, "", "3 = 4"], num_votes=4, seed=0)
    for value, candidate in zip(given[:2], judged[:2], strict=True):
        gate = max(0.0, 1 - abs(candidate.agreement - 0.75) / 0.4)
        assert value == pytest.approx(gate * (1 + 5 * np.exp(-1)))
    assert reward.memory.num_updates == 1


def test_a_rare_cluster_earns_more_and_only_questions_in_the_band_are_remembered(question_reward, partition, embedder):
    reward = question_reward()
    cluster_good, cluster_other = partition.assign(embedder.embed([GOOD, OTHER]))
    assert cluster_good != cluster_other
    reward.memory.update([cluster_good] * 100)
    before = reward.memory.visits.copy()
    batch = [
        Candidate(question=GOOD, answer="1", agreement=0.7),
        Candidate(question=OTHER, answer="1", agreement=0.7),
        Candidate(question=OTHER, answer="1", agreement=1.0),
    ]
    r = reward.score(batch, embedder.embed([candidate.question for candidate in batch]))
    assert r[1] > 2 * r[0] > 0 and r[2] == 0
    expected = before * 0.9
    expected[[cluster_good, cluster_other]] += 0.1
    assert reward.memory.visits == pytest.approx(expected)


def test_rzero_in_the_same_place(question_reward, embedder):
    reward = question_reward(reward="rzero")
    batch = [Candidate(question=GOOD, answer="1", agreement=0.6) for _ in range(3)]
    batch.append(Candidate(question="x", dropped="malformed"))
    assert reward.score(batch, embedder.embed([GOOD] * 3)).tolist() == pytest.approx([0.4 - 0.75] * 3 + [-1 - 0.25])


@pytest.mark.parametrize(
    ("completions", "message"),
    [(["", "3 = 4"], r"without a usable question(.|\n)*empty question(.|\n)*own answer")],
)
def test_a_barren_phase_ends_with_what_was_seen(question_reward, completions, message):
    reward = question_reward(max_barren_batches=2)
    reward(completions=completions)
    with pytest.raises(PrismError, match=message):
        reward(completions=completions)


def test_questions_that_nobody_answers_end_the_phase(question_reward, lab):
    reward = question_reward(max_barren_batches=1)
    reward.judge.params = SamplingParams(max_tokens=1)
    with pytest.raises(PrismError, match=r"none of which the Solver answered in any of 4 votes(.|\n)*tom has"):
        reward(completions=[GOOD])


def test_over_long_questions_are_malformed(question_reward):
    judge = question_reward().judge
    [candidate] = judge.parse(["tom has 22 apples " * 20])
    assert candidate.dropped == "malformed" and "tokens, more than 40" in candidate.detail


def test_the_plausibility_gate_rejects_word_salad_and_keeps_the_bases_own(base, tokenizer, lab, question_reward):
    from trl_prism.ports.samplers import LogprobScorer

    model = load_frozen(base)
    sampler = TransformersSampler(model, tokenizer, batch_size=128)
    [own] = sampler.sample(["<q>"], num_samples=200, params=SamplingParams(max_tokens=28), seed=1)
    [fresh] = sampler.sample(["<q>"], num_samples=200, params=SamplingParams(max_tokens=28), seed=2)
    gate = PlausibilityGate.calibrate(
        LogprobScorer(model, tokenizer), "<q>", [completion.text for completion in own], quantile=0.03
    )
    passed = np.mean(gate.passes([completion.text for completion in fresh]))
    assert passed > 0.88
    salad = "apples 7 fence tom 12 by shirts older 3 what cards"
    assert gate.passes([GOOD, salad]) == [True, False]
    judge = question_reward().judge
    judge.plausibility = gate
    assert [c.dropped for c in judge.parse([GOOD, salad])] == [None, "implausible"]


def inf_for_one(completions, **_):
    return [0.0] * (len(completions) - 1) + [float("inf")]


def too_large_for_the_sum(completions, **_):
    return [1e300] * len(completions)


def none_for_all(completions, **_):
    return [None] * len(completions)


def test_a_reward_that_is_no_number_ends_the_phase_and_names_the_function(questioner_trainer):
    trainer = questioner_trainer(reward_funcs=[inf_for_one])
    with pytest.raises(PrismError, match=r"The reward function inf_for_one gave inf for the completion '"):
        trainer.train()
    questioner_trainer(reward_funcs=[none_for_all], max_steps=1).train()


def test_a_sum_of_rewards_that_is_no_number_ends_the_phase_with_the_batch_kept(questioner_trainer, tmp_path):
    with pytest.raises(PrismError, match=r"The reward at step 0 is not finite. The batch is in") as error:
        questioner_trainer(reward_funcs=[too_large_for_the_sum]).train()
    [kept] = (tmp_path / "questioner").glob("not-finite-step-0-rank-0.json")
    assert str(kept) in str(error.value)
    rows = json.loads(kept.read_text())
    assert len(rows) == 16 and all({"prompt", "completion"} == set(row) for row in rows)


def test_a_loss_that_is_no_number_ends_the_phase_with_the_batch_kept(base, questioner_trainer, tmp_path):
    broken = AutoModelForCausalLM.from_pretrained(base)
    with torch.no_grad():
        broken.model.norm.weight.fill_(float("nan"))
    broken.save_pretrained(tmp_path / "broken")
    trainer = questioner_trainer(reference_path=str(tmp_path / "broken"), beta=0.1)
    with pytest.raises(PrismError, match=r"The loss at step 0 is not finite"):
        trainer.train()
    assert list((tmp_path / "questioner").glob("not-finite-*.json"))
