"""What one phase hands to the next: weights without loss, and the place in the learning-rate schedule."""

from pathlib import Path

import pytest
import torch
from datasets import Dataset
from transformers import get_scheduler

from prism_lab.domain import Lab
from tests.integration.conftest import small_settings
from trl_prism.errors import PrismError
from trl_prism.ports.models import load_model
from trl_prism.recipe import config_from_mapping
from trl_prism.trainers import SolverTrainer
from trl_prism.trainers.handoff import cast
from trl_prism.trainers.role import start_schedule_at
from trl_prism.trainers.solver import AnswerReward


def rates(name, *, steps, phases, **kwargs):
    """The learning rates of all steps, phase after phase."""
    found = []
    for number in range(phases):
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
        schedule = get_scheduler(name, optimizer, num_training_steps=steps * phases, **kwargs)
        if number:
            start_schedule_at(schedule, number * steps)
        for _ in range(steps):
            found.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            schedule.step()
    return found


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        ("cosine", {"num_warmup_steps": 3}),
        ("constant_with_warmup", {"num_warmup_steps": 7}),
        ("linear", {"num_warmup_steps": 0}),
        ("warmup_stable_decay", {"num_warmup_steps": 2, "scheduler_specific_kwargs": {"num_decay_steps": 4}}),
    ],
)
def test_a_schedule_over_phases_is_the_schedule_of_one_run(name, kwargs):
    whole = rates(name, steps=12, phases=1, **kwargs)
    assert rates(name, steps=4, phases=3, **kwargs) == pytest.approx(whole)
    assert len(set(whole)) > 3


def test_a_schedule_that_looks_at_more_than_the_step_is_refused():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    with pytest.raises(PrismError, match=r"ReduceLROnPlateau cannot run over several phases"):
        start_schedule_at(torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer), 3)


def test_tied_weights_stay_tied_in_another_type():
    shared, alone = torch.ones(3), torch.tensor([1, 2])
    state = cast({"embed": shared, "head": shared, "count": alone}, torch.bfloat16)
    assert state["embed"].dtype == torch.bfloat16 and state["embed"].data_ptr() == state["head"].data_ptr()
    assert state["count"].dtype == torch.int64


def trainer(base, tokenizer, folder, **kwargs):
    lab = Lab(num_held_out=16)
    settings = {"max_steps": 2, "prompts_per_step": 4, "learning_rate": 1e-6, "lr_scheduler_type": "linear"}
    config = config_from_mapping(small_settings(folder / "run", solver=settings))
    rows = [{"prompt": lab.solver_prompt(p.question), "answer": p.answer} for p in lab.held_out_problems()]
    return SolverTrainer(
        model=load_model(base),
        args=config.role_config("solver", output_dir=str(folder / "solver"), seed=0),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        answer_reward=AnswerReward(lab),
        **kwargs,
    )


def test_a_phase_takes_the_schedule_up_where_the_last_one_left_it(base, tokenizer, tmp_path):
    last = trainer(base, tokenizer, tmp_path, phase=(1, 2))
    last.train()
    logged = [entry["learning_rate"] for entry in last.state.log_history if "learning_rate" in entry]
    assert logged == pytest.approx([0.5e-6, 0.25e-6])


@pytest.mark.parametrize(("dtype", "kept"), [("float32", True), ("bfloat16", False)])
def test_what_is_saved_keeps_small_updates_unless_asked_otherwise(base, tokenizer, tmp_path, dtype, kept):
    phase = trainer(base, tokenizer, tmp_path, handoff_dtype=dtype)
    phase.train()
    phase.save_model(str(tmp_path / "out"))
    trained = {name: tensor.clone() for name, tensor in phase.model.state_dict().items()}
    saved = load_model(str(tmp_path / "out"), dtype="float32").state_dict()
    assert all(torch.equal(saved[name], trained[name]) for name in trained) is kept
    assert all(torch.equal(saved[name], trained[name].bfloat16().float()) for name in trained) is not kept


def test_an_adapter_is_merged_into_the_revision_that_it_was_trained_on(small, monkeypatch):
    from trl_prism.self_play import play
    from trl_prism.trainers import handoff

    loaded = []

    def noted(path, **kwargs):
        loaded.append((Path(path).name, kwargs.get("revision"), kwargs["dtype"]))
        return load_model(path, **kwargs)

    monkeypatch.setattr(handoff, "load_model", noted)
    play(small(use_peft=True, lora_r=2, model_revision="a-branch", num_candidates=32))
    # A folder has no revision, so any is taken; both phases of the first round start from the base.
    assert loaded == [("0", "a-branch", "float32")] * 2
