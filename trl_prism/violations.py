"""What in a configuration cannot work, found from the settings alone, all of it at once.

What needs files, such as the tokenizer, is looked at in [`trl_prism.preflight`][].
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from transformers import Trainer
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

from trl_prism._compat import LOSS_TYPES, SCALE_REWARDS
from trl_prism.checks import check_between, check_dtype
from trl_prism.core.rewards import check_band, gate
from trl_prism.errors import PrismError, all_messages, first_line
from trl_prism.health import health_settings
from trl_prism.rates import scheduled_rates


ROLES = ("questioner", "solver")

# Bounds of the run's own numbers; None stands for "not given" where a field may be left out.
BOUNDS: tuple[tuple[str, float, float], ...] = (
    ("num_rounds", 1, math.inf),
    ("num_clusters", 1, math.inf),
    ("num_reward_votes", 1, math.inf),
    ("num_label_votes", 1, math.inf),
    ("num_candidates", 1, math.inf),
    ("sampling_batch_size", 1, math.inf),
    ("max_barren_batches", 1, math.inf),
    ("max_prompt_length", 1, math.inf),
    ("eval_num_samples", 0, math.inf),
    ("gate_center", 0, 1),
    ("coverage_weight", 0, math.inf),
    ("bleu_distance_threshold", 0, 1),
    ("vote_top_p", 1e-6, 1),
    ("vote_top_k", 0, math.inf),
    ("max_per_cluster", 1, math.inf),
    ("max_eval_problems", 1, math.inf),
    ("max_answer_length", 1, math.inf),
    ("format_weight", 0, 1),
    ("lora_r", 1, math.inf),
    ("lora_alpha", 1, math.inf),
    ("lora_dropout", 0, 0.99),
    ("min_question_logprob_quantile", 0, 0.99),
    ("vote_temperature", 1e-6, math.inf),
    ("candidate_temperature", 1e-6, math.inf),
    ("stop_grace", 0, math.inf),
    ("keep_rounds", 2, math.inf),
    ("seed", 0, 2**31 - 1),
)

# Bounds of a role's fields of `GRPOConfig`. TRL itself does not look at most of them.
ROLE_BOUNDS: tuple[tuple[str, float, float], ...] = (
    ("learning_rate", 0, 1),
    ("beta", 0, math.inf),
    ("temperature", 1e-6, math.inf),
    ("top_p", 1e-6, 1),
    ("top_k", 0, math.inf),
    ("max_steps", 1, math.inf),
    ("max_completion_length", 1, math.inf),
    ("num_iterations", 1, math.inf),
    ("epsilon", 0, 1),
    ("epsilon_high", 0, math.inf),
    ("delta", 1e-6, math.inf),
    ("logging_steps", 1e-9, math.inf),
    ("warmup_steps", 0, math.inf),
    ("weight_decay", 0, math.inf),
    ("max_grad_norm", 0, math.inf),
    # With one, a kill while the next is written would leave none.
    ("save_total_limit", 2, math.inf),
    ("repetition_penalty", 1e-6, math.inf),
    ("min_p", 0, 1),
)

# Fields that may be left out, where TRL has a default of its own or `None` switches something off.
_MAY_BE_MISSING = {"epsilon_high", "delta", "save_total_limit", "repetition_penalty", "min_p", "weight_decay"}


def violations(config: Any, *, num_ranks: int) -> list[str]:
    """All that cannot work on so many ranks in a [`~trl_prism.config.PrismConfig`]: value, bound and way out."""
    checks: list[Callable[[], object]] = [_bound(config, *bound) for bound in BOUNDS]
    checks += [
        lambda: check_between("min_curriculum_size", config.min_curriculum_size, 1, config.num_candidates),
        lambda: _open_bounds(config),
        lambda: _surplus(config),
        lambda: check_band(config.reward_band, name="reward_band"),
        lambda: check_band(config.curriculum_band, name="curriculum_band"),
        lambda: check_dtype(config.dtype),
        lambda: _servers(config),
        lambda: health_settings(config.health_kwargs or {}),
        lambda: _vllm(config),
        lambda: _base_reference(config),
        lambda: _paths(config),
    ]
    messages = all_messages(*checks)
    if not any("_band`" in message for message in messages):
        messages += all_messages(
            lambda: _votes(config, "num_reward_votes", "reward_band"),
            lambda: _votes(config, "num_label_votes", "curriculum_band"),
            lambda: _reward_says_something(config),
        )
    for role in ROLES:
        own = all_messages(*_of_role(config, role))
        # TRL's own checks last: they stop at the first, and often repeat what was said.
        messages += own or all_messages(lambda role=role: _by_trl(config, role, num_ranks))  # type: ignore[misc]
    return list(dict.fromkeys(messages))


def _bound(config: Any, name: str, low: float, high: float) -> Callable[[], None]:
    def check() -> None:
        if getattr(config, name) is not None:
            check_between(name, getattr(config, name), low, high)

    return check


def _of_role(config: Any, role: str) -> list[Callable[[], object]]:
    settings = config.role_settings(role)

    def bound(name: str, low: float, high: float) -> None:
        if settings.get(name) is not None or name not in _MAY_BE_MISSING:
            check_between(f"{role}.{name}", settings.get(name), low, high)

    def one_of(name: str, known: tuple[Any, ...]) -> None:
        if name in settings and settings[name] not in known:
            listed = ", ".join(str(value).lower() if isinstance(value, bool) else str(value) for value in known)
            raise PrismError(f"`{role}.{name}` is {settings[name]!r}; it must be one of {listed}.")

    def backends() -> None:
        asked = settings.get("report_to") or []
        known = ("all", "none", *sorted(INTEGRATION_TO_CALLBACK))
        for name in [asked] if isinstance(asked, str) else asked:
            if name not in known:
                raise PrismError(f"`{role}.report_to` is {name!r}; it must be one of {', '.join(known)}.")

    def weights() -> None:
        expected = 1 + len(settings.get("reward_funcs") or ())
        given = settings.get("reward_weights")
        if given is not None and len(given) != expected:
            raise PrismError(
                f"`{role}.reward_weights` has {len(given)} values; there are {expected} reward functions, the role's "
                "own first."
            )

    bounds = [lambda bounds=bounds: bound(*bounds) for bounds in ROLE_BOUNDS]
    return [
        *bounds,
        lambda: one_of("loss_type", LOSS_TYPES),
        lambda: one_of("scale_rewards", SCALE_REWARDS),
        lambda: one_of("vllm_mode", ("colocate", "server")),
        backends,
        weights,
    ]


def _by_trl(config: Any, role: str, num_ranks: int) -> None:
    """What TRL and transformers refuse when a phase begins, asked before anything is loaded."""
    folder = str(Path(config.output_dir) / role)
    args = config.role_config(role, output_dir=folder, seed=config.seed, num_ranks=num_ranks)
    try:
        Trainer.get_optimizer_cls_and_kwargs(args)
    except (ImportError, ValueError) as error:
        raise PrismError(f"`{role}.optim` is {args.optim}, which cannot be used here: {first_line(error)}") from error
    try:
        scheduled_rates(args, args.max_steps)
    except (TypeError, ValueError) as error:
        raise PrismError(
            f"`{role}.lr_scheduler_kwargs` is {args.lr_scheduler_kwargs}, which the schedule {args.lr_scheduler_type} "
            f"does not take: {first_line(error)}"
        ) from error


def _open_bounds(config: Any) -> None:
    if not 0 <= config.coverage_decay < 1:
        raise PrismError(f"`coverage_decay` is {config.coverage_decay}; it must lie in [0, 1), as 0.99.")
    if config.gate_width <= 0:
        raise PrismError(f"`gate_width` is {config.gate_width}; it must be above 0.")


def _surplus(config: Any) -> None:
    if config.max_curriculum_size is not None:
        check_between("max_curriculum_size", config.max_curriculum_size, config.min_curriculum_size, math.inf)


def _votes(config: Any, votes: str, name: str) -> None:
    number, (low, high) = getattr(config, votes), getattr(config, name)
    if number < 1 or (name == "reward_band" and config.reward == "rzero"):
        return
    if not any(low <= k / number <= high for k in range(number + 1)):
        raise PrismError(
            f"`{votes}` is {number}: no share of {number} votes lies in `{name}` = [{low}, {high}], so no question "
            f"could be used. Ask for more votes or widen `{name}`."
        )


def _reward_says_something(config: Any) -> None:
    """A reward that is 0 for every question, or the same for all of them, teaches nothing."""
    if config.reward == "rzero" or config.num_reward_votes < 1 or config.gate_width <= 0:
        return
    low, high = config.reward_band
    if not (low < config.gate_center + config.gate_width and high > config.gate_center - config.gate_width):
        raise PrismError(
            f"`reward_band` is {config.reward_band}, where the gate is 0 throughout: nothing earns. The gate is above "
            f"0 between {config.gate_center - config.gate_width:.2f} and {config.gate_center + config.gate_width:.2f}."
        )
    number = config.num_reward_votes
    shares = [k / number for k in range(number + 1)]
    given = gate(shares, center=config.gate_center, width=config.gate_width, band=config.reward_band)
    if len(set(map(float, given))) < 2:
        raise PrismError(
            f"With `num_reward_votes` = {number} every question would earn {float(given[0]):.2f}, whatever the Solver "
            f"answers: `reward_band` = {config.reward_band} and the gate tell no two shares apart. Ask for more "
            "votes, or widen the band."
        )


def _servers(config: Any) -> None:
    if (config.vote_engine == "server") != bool(config.server_urls):
        raise PrismError("`vote_engine: server` and `server_urls` belong together; one of them is missing.")
    for url in config.server_urls or ():
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise PrismError(f"`server_urls` holds {url!r}, which is no address; it must be as http://host:8000/v1.")


# What vLLM fixes when it starts; one engine serves both roles.
_ENGINE_FIELDS = (
    *("vllm_gpu_memory_utilization", "vllm_enable_sleep_mode", "vllm_model_impl", "vllm_max_model_length"),
    "vllm_tensor_parallel_size",
)


def _vllm(config: Any) -> None:
    users = [(role, config.role_settings(role)) for role in ROLES if config.colocated(role)]
    if config.vote_engine == "vllm" and len(users) < len(ROLES):
        missing = next(role for role in ROLES if role not in dict(users))
        raise PrismError(
            "`vote_engine: vllm` answers with the engine that the roles generate with: set `use_vllm: true` and "
            f"`vllm_mode: colocate` for both; the {missing} has not."
        )
    for role, settings in users:
        size = settings.get("vllm_tensor_parallel_size", 1)
        if size != 1:
            raise PrismError(
                f"`{role}.vllm_tensor_parallel_size` is {size}; it must be 1: every rank has an engine of its own, "
                "and ranks answer different numbers of questions. A model that needs more takes `vote_engine: server`."
            )
    if len(users) == len(ROLES):
        (_, one), (_, two) = users
        for name in _ENGINE_FIELDS:
            if one.get(name) != two.get(name):
                raise PrismError(
                    f"`{name}` is {one.get(name)} for the questioner and {two.get(name)} for the solver; one engine "
                    "serves both. Set it at the top level."
                )


def _base_reference(config: Any) -> None:
    if config.use_peft and config.kl_reference == "base" and config.num_rounds > 1:
        raise PrismError(
            "`kl_reference: base` needs a reference model of its own, and with `use_peft` TRL takes the weights "
            "without adapter, that is the phase's start. Use `kl_reference: phase_start`, or full weights."
        )


def _paths(config: Any) -> None:
    for name in ("benchmarks_dir", "partition_path"):
        path = getattr(config, name)
        if path is not None and not Path(path).is_dir():
            raise PrismError(f"`{name}` is {path}, which is no folder. Correct it.")
