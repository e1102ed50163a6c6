"""The Solver's trainer: GRPO on the answers that the votes agreed on."""

from collections.abc import Callable
from typing import Any

from trl_prism.domains.base import Domain
from trl_prism.ports.texts import text_of
from trl_prism.trainers.role import RoleTrainer


class AnswerReward:
    """1 if a completion's answer equals the question's pseudo-label, else 0.

    With a `format_weight` of w it is `(1 - w) * correct + w * answered`, as in the released code (w = 0.1).

    Args:
        domain ([`~trl_prism.domains.base.Domain`]): Reads the answer and decides sameness.
        format_weight (`float`, *optional*, defaults to `0.0`): Share of the reward for giving an answer at all.
    """

    __name__ = "answer_reward"

    def __init__(self, domain: Domain, *, format_weight: float = 0.0):
        self.domain = domain
        self.format_weight = format_weight

    def __call__(
        self,
        *,
        completions: list[Any],
        answer: list[str],
        log_metric: Callable[[str, float], None] | None = None,
        **_: Any,
    ) -> list[float]:
        given = [self.domain.extract_answer(text_of(completion)) for completion in completions]
        if log_metric:
            log_metric("solver/frac_unanswered", sum(a is None for a in given) / len(given))
        w = self.format_weight
        return [
            (1 - w) * (a is not None and self.domain.equivalent(label, a)) + w * (a is not None)
            for a, label in zip(given, answer, strict=True)
        ]


class SolverTrainer(RoleTrainer):
    """Trains the Solver on a curriculum with the columns `prompt` and `answer`.

    Args:
        answer_reward ([`AnswerReward`]): The reward.
        reward_funcs (`list`, *optional*): Further reward functions, weighed by `args.reward_weights` (the answer
            reward comes first).
        kwargs: As for [`~trl_prism.trainers.role.RoleTrainer`].
    """

    def __init__(self, *, answer_reward: AnswerReward, reward_funcs: list[Any] | None = None, **kwargs: Any):
        super().__init__(reward_funcs=[answer_reward, *(reward_funcs or [])], **kwargs)
