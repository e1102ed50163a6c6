"""The Questioner's trainer: GRPO, and a memory of visits that is part of every checkpoint."""

import json
from pathlib import Path
from typing import Any

from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from trl_prism.ports.files import write_text
from trl_prism.questions import QuestionReward
from trl_prism.trainers.role import RoleTrainer


VISITS_FILE = "visits.json"


class QuestionerTrainer(RoleTrainer):
    """Trains the Questioner on a [`~trl_prism.questions.QuestionReward`].

    Args:
        question_reward ([`~trl_prism.questions.QuestionReward`]): The batch-wide reward; its memory of visits is
            written into every checkpoint and restored from it.
        reward_funcs (`list`, *optional*): Further reward functions, weighed by `args.reward_weights` (the question
            reward comes first).
        kwargs: As for [`~trl_prism.trainers.role.RoleTrainer`].
    """

    def __init__(self, *, question_reward: QuestionReward, reward_funcs: list[Any] | None = None, **kwargs: Any):
        self.question_reward = question_reward
        super().__init__(reward_funcs=[question_reward, *(reward_funcs or [])], **kwargs)

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        # Evaluation rewards too, and must leave no trace in the memory.
        self.question_reward.remember = self.model.training
        return super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        # Before TRL's part, which ends by pushing the folder to the Hub.
        if self.args.should_save:
            folder = Path(self.args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
            state = self.question_reward.memory.state_dict()
            write_text(folder / VISITS_FILE, json.dumps({**state, "num_barren": self.question_reward.num_barren}))
        super()._save_checkpoint(model, trial)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            state = json.loads((Path(checkpoint) / VISITS_FILE).read_text())
            self.question_reward.num_barren = state.pop("num_barren")
            self.question_reward.memory.load_state_dict(state)
