"""The stages of a run in their order, with what each of them generates and trains."""

from dataclasses import dataclass
from typing import Any

from trl_prism.batching import updates_per_batch
from trl_prism.config import ROLES, PrismConfig
from trl_prism.evaluate.benchmarks import HELD_OUT
from trl_prism.plan.sizes import planned_args
from trl_prism.rates import scheduled_rates


@dataclass(frozen=True)
class Stage:
    """One stage of every round. Tokens are upper bounds: every completion as long as it may be.

    Attributes:
        name (`str`): What it is.
        updates (`int`): Optimizer updates.
        prompts, completions (`int`): Of the role that is trained, or of the pool.
        votes (`int`): Answers of the frozen Solver.
        tokens (`int`): Generated tokens at most.
        trained_tokens (`int`): Tokens of prompts and completions that are trained on, at most.
    """

    name: str
    updates: int
    prompts: int
    completions: int
    votes: int
    tokens: int
    trained_tokens: int


def stages_of(config: PrismConfig, *, num_held_out: int | None, num_ranks: int) -> list[Stage]:
    """The stages of one round; the base model's round 0 has the pool and the evaluation alone."""
    questioner, solver = (config.role_settings(role) for role in ROLES)
    answer = config.answer_length
    stages = []
    for role, settings in (("questioner", questioner), ("solver", solver)):
        args = planned_args(config, role, num_ranks=num_ranks)
        batches = -(-args.max_steps // updates_per_batch(args))
        prompts = batches * settings["prompts_per_step"]
        completions = prompts * settings["num_generations"]
        votes = completions * config.num_reward_votes if role == "questioner" else 0
        written = completions * settings["max_completion_length"]
        asked = config.max_prompt_length if role == "solver" else 512
        stages.append(
            Stage(
                f"{role.capitalize()} phase",
                args.max_steps,
                prompts,
                completions,
                votes,
                written + votes * answer,
                args.num_iterations * (written + completions * asked),
            )
        )
    votes = config.num_candidates * config.num_label_votes
    written = config.num_candidates * questioner["max_completion_length"] + votes * answer
    stages.insert(1, Stage("pool and votes", 0, 1, config.num_candidates, votes, written, 0))
    if num_held_out:
        answers = num_held_out * (1 + config.eval_num_samples)
        stages.append(Stage(f"evaluation ({HELD_OUT})", 0, num_held_out, answers, 0, answers * answer, 0))
    return stages


def rates_of(config: PrismConfig, role: str, *, num_ranks: int) -> dict[str, Any]:
    """The learning rates that a role really gets: first, highest and last of all its updates, and after each round."""
    args = planned_args(config, role, num_ranks=num_ranks)
    rounds = config.num_rounds if config.lr_schedule == "run" else 1
    rates = scheduled_rates(args, args.max_steps * rounds)
    return {
        "asked": args.learning_rate,
        "first": rates[0],
        "highest": max(rates),
        "last": rates[-1],
        "updates": args.max_steps * config.num_rounds,
    }


def batches_of(config: PrismConfig, role: str, *, num_ranks: int) -> dict[str, int]:
    """How a generation batch becomes optimizer updates on so many ranks."""
    args = planned_args(config, role, num_ranks=num_ranks)
    per_update = args.per_device_train_batch_size * args.gradient_accumulation_steps * num_ranks
    return {
        "completions_per_generation_batch": args.per_device_train_batch_size * args.steps_per_generation * num_ranks,
        "completions_per_update": per_update,
        "updates_per_generation_batch": updates_per_batch(args),
        "completions_per_forward_pass": args.per_device_train_batch_size,
        "forward_passes_per_update_and_rank": args.gradient_accumulation_steps,
        "num_ranks": num_ranks,
        "save_steps": int(args.save_steps),
    }
