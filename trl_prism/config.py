"""The configuration of a run: one YAML file, one dataclass, one order of precedence.

From strongest to weakest: the command line (`--questioner.max_steps 2` before `--max_steps 2`), a role's mapping
(`questioner:` and `solver:`), the shared settings at the file's top level, the role's defaults below, TRL's own.

Every field of TRL's `GRPOConfig` can stand at the top level or in a role's mapping. They are kept as they were given
and each role's `GRPOConfig` is built once, from the merged settings: a finished `GRPOConfig` cannot be changed, since
its batch sizes have been filled in, and the shared level alone may be illegal where each role is legal.
"""

import argparse
import dataclasses
import difflib
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_type_hints

import yaml
from trl import GRPOConfig, TrlParser

from trl_prism.batching import solve_batching
from trl_prism.core.rewards import check_band
from trl_prism.errors import PrismError


ROLES = ("questioner", "solver")

# What is always set for a role and therefore cannot be asked for.
_OURS = {
    "output_dir": "it is one folder per round and role under the run's `output_dir`",
    "generation_batch_size": "set `prompts_per_step`, which counts prompts over all ranks",
    "gradient_accumulation_steps": "set `prompts_per_update`, it is derived",
    "steps_per_generation": "set `prompts_per_step` and `prompts_per_update`, it is derived",
    "seed": "set the run's `seed`; each role and round has its own seed derived from it",
    "data_seed": "set the run's `seed`",
    "num_train_epochs": "set `max_steps`",
    "resume_from_checkpoint": "a phase is not resumed by hand",
    "model_init_kwargs": "set `dtype` and `attn_implementation`",
    "trust_remote_code": "set the run's `trust_remote_code`",
    "push_to_hub": "pushing is not part of a phase",
    "eval_strategy": "the Solver is evaluated after each round",
    "remove_unused_columns": "it must stay false: the rewards need the columns",
}

# Stated rather than inherited, since TRL's defaults differ and change. Source: arXiv:2603.13309, where it gives one.
ROLE_DEFAULTS: dict[str, dict[str, Any]] = {
    "questioner": {"max_steps": 6, "num_generations": 4, "prompts_per_step": 512, "max_completion_length": 1024},
    "solver": {"max_steps": 20, "num_generations": 8, "prompts_per_step": 128, "max_completion_length": 4096},
}
COMMON_DEFAULTS: dict[str, Any] = {
    "learning_rate": 5e-6,
    "beta": 1e-4,
    "use_bias_correction_kl": False,
    "scale_rewards": "none",
    "loss_type": "grpo",
    "epsilon": 0.2,
    "num_iterations": 1,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "lr_scheduler_type": "constant",
    "warmup_steps": 0,
    "max_grad_norm": 1.0,
    "per_device_train_batch_size": 8,
    "logging_steps": 1,
    "save_strategy": "no",
    "report_to": "none",
}


@dataclass
class RoleSettings:
    """What a role's mapping may hold beside the fields of `GRPOConfig`."""

    prompts_per_step: int | None = field(
        default=None,
        metadata={"help": "Prompts per generation batch, over all ranks."},
    )
    prompts_per_update: int | None = field(
        default=None,
        metadata={"help": "Prompts per optimizer update, over all ranks. Default: all of the step's."},
    )
    reward_funcs: list[str] | None = field(
        default=None,
        metadata={"help": "Further reward functions beside the role's own, as import paths `package.module.name`."},
    )


@dataclass
class PrismConfig:
    r"""The loop's own settings. TRL's `GRPOConfig` fields stand beside them, shared or per role.

    Parameters:
        model_name_or_path (`str`): Base model that both roles start from; Hub id or local folder.
        output_dir (`str`): Folder of the run. It must not exist yet.
        seed (`int`, *optional*, defaults to `42`): Seed of everything random.
        num_rounds (`int`, *optional*, defaults to `4`): Rounds of Questioner, pool, curation and Solver.
        questioner, solver (`dict`, *optional*): Settings of one role, over the shared ones.
    """

    model_name_or_path: str = field(metadata={"help": "Base model that both roles start from: Hub id or folder."})
    output_dir: str = field(metadata={"help": "Folder of the run. It must not exist yet."})
    model_revision: str = field(default="main", metadata={"help": "Revision of the base model on the Hub."})
    trust_remote_code: bool = field(default=False, metadata={"help": "Run the model repository's own code."})
    dtype: str = field(default="float32", metadata={"help": "Type of the trained weights, for instance bfloat16."})
    attn_implementation: str | None = field(default=None, metadata={"help": "For instance flash_attention_2, sdpa."})
    seed: int = field(default=42, metadata={"help": "Seed of everything random."})
    num_rounds: int = field(default=4, metadata={"help": "Rounds of Questioner, pool, curation and Solver."})

    domain: str = field(default="maths", metadata={"help": "What is asked: `maths`, or `package.module:Class`."})
    domain_kwargs: dict | str | None = field(default=None, metadata={"help": "Arguments of the domain."})

    questioner: dict | str | None = field(default=None, metadata={"help": "Settings of the Questioner alone."})
    solver: dict | str | None = field(default=None, metadata={"help": "Settings of the Solver alone."})
    questioner_init: Literal["solver", "questioner"] = field(
        default="solver",
        metadata={"help": "What a round's Questioner starts from: the last Solver (Prism) or Questioner (R-Zero)."},
    )
    kl_reference: Literal["phase_start", "base"] = field(
        default="phase_start",
        metadata={"help": "What the KL term pulls towards: the weights that the phase started from, or the base."},
    )

    reward: Literal["prism", "rzero", "gate"] = field(
        default="prism", metadata={"help": "The Questioner's reward. `gate` is Prism without coverage."}
    )
    gate_center: float = field(default=0.75, metadata={"help": "Agreement that earns most."})
    gate_width: float = field(default=0.4, metadata={"help": "Distance from the center where the gate reaches 0."})
    reward_band: list[float] = field(
        default_factory=lambda: [0.3, 0.9], metadata={"help": "Agreement outside of it earns nothing."}
    )
    coverage_weight: float = field(default=5.0, metadata={"help": "lambda, the weight of rarity."})
    coverage_decay: float = field(default=0.99, metadata={"help": "gamma, how slowly visits are forgotten."})
    count_update: Literal["question", "indicator", "share"] = field(
        default="question", metadata={"help": "What a batch adds to the visits of a cluster."}
    )
    rzero_uncertainty: Literal["code", "paper"] = field(
        default="code", metadata={"help": "R-Zero's uncertainty: min(p, 1-p) or 1 - 2|p - 1/2|."}
    )
    bleu_distance_threshold: float = field(default=0.5, metadata={"help": "Where R-Zero's BLEU clusters are cut."})
    max_barren_batches: int = field(
        default=3,
        metadata={"help": "The phase ends with an error after so many batches without a question that is answered."},
    )

    num_clusters: int = field(default=128, metadata={"help": "K, clusters of the partition."})
    partition_path: str | None = field(default=None, metadata={"help": "A saved partition, instead of a new fit."})
    embedder: str = field(
        default="Qwen/Qwen3-Embedding-0.6B", metadata={"help": "sentence-transformers model, or `tfidf`."}
    )
    embedder_revision: str | None = field(default=None, metadata={"help": "Revision of the embedder on the Hub."})
    embedder_kwargs: dict | str | None = field(default=None, metadata={"help": "Arguments of the embedder."})

    num_reward_votes: int = field(default=10, metadata={"help": "Answers per question in the Questioner's reward."})
    num_label_votes: int = field(default=8, metadata={"help": "Answers per candidate in curation."})
    vote_temperature: float = field(default=1.0, metadata={"help": "Sampling temperature of votes."})
    vote_top_p: float = field(default=1.0, metadata={"help": "Nucleus of votes."})
    vote_top_k: int = field(default=40, metadata={"help": "Most likely tokens that votes draw from; 0: all."})
    max_answer_length: int | None = field(
        default=None, metadata={"help": "Most tokens of a vote. Default: the Solver's max_completion_length."}
    )
    max_prompt_length: int = field(
        default=2048, metadata={"help": "A question whose Solver prompt has more tokens is malformed."}
    )
    min_question_logprob_quantile: float | None = field(
        default=None,
        metadata={
            "help": "Validity gate: a question less likely under the base model than this quantile of the base's own "
            "questions, by mean or by worst token, is treated as malformed. Off by default."
        },
    )

    num_candidates: int = field(default=8000, metadata={"help": "Questions written for the pool of a round."})
    candidate_temperature: float = field(default=1.0, metadata={"help": "Sampling temperature of the pool."})
    curriculum_band: list[float] = field(
        default_factory=lambda: [0.3, 0.9], metadata={"help": "Agreement of questions that the Solver trains on."}
    )
    max_per_cluster: int | None = field(default=None, metadata={"help": "Most curriculum questions per cluster."})
    max_curriculum_size: int | None = field(default=None, metadata={"help": "Most curriculum questions in all."})
    min_curriculum_size: int = field(
        default=16, metadata={"help": "With fewer questions the run ends instead of training."}
    )
    format_weight: float = field(
        default=0.0,
        metadata={"help": "Share of the Solver's reward for giving any answer (0.1 in the released code)."},
    )

    eval_num_samples: int = field(default=10, metadata={"help": "Sampled answers per held-out problem."})
    max_eval_problems: int | None = field(default=None, metadata={"help": "Only the first so many held-out problems."})
    sampling_batch_size: int = field(default=64, metadata={"help": "Sequences per rank when votes are drawn."})

    shared: dict[str, Any] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for name in ("questioner", "solver", "domain_kwargs", "embedder_kwargs"):
            setattr(self, name, mapping(getattr(self, name), name=name))

    @classmethod
    def from_mapping(cls, settings: Mapping[str, Any]) -> "PrismConfig":
        """The configuration of a mapping that holds what a recipe's YAML file holds."""
        return _build(dict(settings), {}, {role: {} for role in ROLES})

    def role_settings(self, role: str) -> dict[str, Any]:
        """The merged settings of one role, by precedence: its mapping, the shared ones, the defaults."""
        return {**COMMON_DEFAULTS, **ROLE_DEFAULTS[role], **self.shared, **getattr(self, role)}

    def role_config(self, role: str, *, output_dir: str, seed: int, num_ranks: int = 1) -> GRPOConfig:
        """The `GRPOConfig` of one role, with the global batch sizes solved for the number of ranks."""
        settings = self.role_settings(role)
        batching = solve_batching(
            prompts_per_step=settings.pop("prompts_per_step"),
            prompts_per_update=settings.pop("prompts_per_update", None),
            num_generations=settings["num_generations"],
            max_per_device=settings.pop("per_device_train_batch_size"),
            num_ranks=num_ranks,
            role=role,
        )
        settings.pop("reward_funcs", None)
        return GRPOConfig(
            **settings,
            **dataclasses.asdict(batching),
            output_dir=output_dir,
            seed=seed,
            remove_unused_columns=False,
        )

    def validate(self, *, num_ranks: int = 1) -> None:
        """Refuses what cannot work on so many ranks, before anything is loaded."""
        positive = (
            "num_rounds",
            "num_clusters",
            "num_reward_votes",
            "num_label_votes",
            "num_candidates",
            "min_curriculum_size",
            "sampling_batch_size",
            "max_barren_batches",
            "max_prompt_length",
        )
        for name in positive:
            if getattr(self, name) < 1:
                raise PrismError(f"`{name}` is {getattr(self, name)}; it must be at least 1.")
        if self.eval_num_samples < 0:
            raise PrismError(f"`eval_num_samples` is {self.eval_num_samples}; it must be 0 or more.")
        for name, low, high in (
            ("gate_center", 0, 1),
            ("coverage_decay", 0, 1),
            ("format_weight", 0, 1),
            ("min_question_logprob_quantile", 0, 1),
            ("vote_temperature", 0, math.inf),
            ("candidate_temperature", 0, math.inf),
        ):
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise PrismError(f"`{name}` is {value}; it must lie between {low} and {high}.")
        if self.gate_width <= 0:
            raise PrismError(f"`gate_width` is {self.gate_width}; it must be above 0.")
        lowest, highest = check_band(self.reward_band, name="reward_band")
        check_band(self.curriculum_band, name="curriculum_band")
        earns = lowest < self.gate_center + self.gate_width and highest > self.gate_center - self.gate_width
        if self.reward != "rzero" and not earns:
            raise PrismError(f"`reward_band` is {self.reward_band}, where the gate is 0 throughout: nothing earns.")
        for role in ROLES:
            self.role_config(role, output_dir=str(Path(self.output_dir) / role), seed=self.seed, num_ranks=num_ranks)

    def as_mapping(self) -> dict[str, Any]:
        """The resolved settings as a recipe would write them; reading them again gives the same run."""
        own = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.init}
        for role in ROLES:
            own[role] = dict(sorted(self.role_settings(role).items()))
        return own

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.as_mapping(), sort_keys=False, allow_unicode=True)


def mapping(value: Mapping[str, Any] | str | None, *, name: str = "value") -> dict[str, Any]:
    """A setting that is a mapping, also where the command line gave it as text."""
    if isinstance(value, str):
        value = yaml.safe_load(value)
    if value is not None and not isinstance(value, Mapping):
        raise PrismError(f"`{name}` is {value!r}; it must be a mapping of names to values.")
    return dict(value or {})


# Every field of GRPOConfig and RoleSettings, unset unless given.
def _role_fields() -> dict[str, Any]:
    hints = get_type_hints(GRPOConfig)
    fields = {f.name: hints[f.name] for f in dataclasses.fields(GRPOConfig) if f.init and f.name not in _OURS}
    return {**fields, **get_type_hints(RoleSettings)}


def _help_of(name: str) -> str:
    for owner in (RoleSettings, GRPOConfig):
        for f in dataclasses.fields(owner):
            if f.name == name:
                return str(f.metadata.get("help", ""))
    return ""


SharedSettings = dataclasses.make_dataclass(
    "SharedSettings",
    [
        (name, hint, field(default=None, metadata={"help": _help_of(name)}))
        for name, hint in _role_fields().items()
        if name not in {f.name for f in dataclasses.fields(PrismConfig)}
    ],
)


def parse_config(args: Sequence[str]) -> PrismConfig:
    """Reads `--config recipe.yaml [--field value] [--role.field value]`.

    Raises:
        PrismError: for a file that is missing or no mapping, an unknown key anywhere (with the nearest known one), or
            a value that is not of its field's type.
    """
    if "-h" in args or "--help" in args:
        _PARSER.print_help()
        sys.exit(0)
    path, shared, roles = _split_arguments(args)
    settings: dict[str, Any] = {}
    if path is not None:
        try:
            settings = yaml.safe_load(Path(path).read_text(encoding="utf-8")) or {}
        except OSError as error:
            raise PrismError(f"The recipe {path} cannot be read: {error.strerror}.") from error
        except yaml.YAMLError as error:
            raise PrismError(f"The recipe {path} is not YAML: {error}") from error
        if not isinstance(settings, dict):
            raise PrismError(f"The recipe {path} must hold a mapping of names to values.")
        for key, value in (settings.pop("env", None) or {}).items():
            os.environ[key] = str(value)
    return _build(settings, shared, roles)


def _split_arguments(args: Sequence[str]) -> tuple[str | None, dict[str, list[str]], dict[str, dict[str, list[str]]]]:
    """The recipe's path, and the words given for each field: of the run, and of each role."""
    path: str | None = None
    shared: dict[str, list[str]] = {}
    roles: dict[str, dict[str, list[str]]] = {role: {} for role in ROLES}
    values: list[str] | None = None
    for word in args:
        if not word.startswith("--"):
            if values is None:
                raise PrismError(f"Unexpected {word!r} on the command line; fields are given as --name value.")
            values.append(word)
            continue
        name, equals, value = word[2:].partition("=")
        name = name.replace("-", "_")
        values = [value] if equals else []
        role, dot, key = name.partition(".")
        if dot and role in ROLES:
            _check_key(key, _role_names(), where=f"--{role}.")
            roles[role][key] = values
        else:
            _check_key(name, [*_top_names(), "config"], where="--")
            shared[name] = values
    if "config" in shared:
        found = shared.pop("config")
        if len(found) != 1:
            raise PrismError(f"`--config` takes one path, got {len(found)}.")
        path = found[0]
    return path, shared, roles


def _top_names() -> list[str]:
    own = [f.name for f in dataclasses.fields(PrismConfig) if f.init]
    return own + [f.name for f in dataclasses.fields(SharedSettings)]


def _role_names() -> list[str]:
    return list(_role_fields())


def _check_key(key: str, known: Sequence[str], *, where: str) -> None:
    if key in known:
        return
    if key in _OURS:
        raise PrismError(f"`{where}{key}` cannot be set: {_OURS[key]}.")
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    raise PrismError(f"Unknown setting `{where}{key}`." + (f" Did you mean `{where}{near[0]}`?" if near else ""))


def _build(
    settings: dict[str, Any], command_line: Mapping[str, list[str]], roles: Mapping[str, Mapping[str, list[str]]]
) -> PrismConfig:
    """One configuration out of a recipe's mapping and the command line, by precedence."""
    for key in settings:
        _check_key(str(key), _top_names(), where="")
    top = {key: _convert(key, value, _PARSER) for key, value in settings.items()}
    words = [word for key, values in command_line.items() for word in (f"--{key}", *values)]
    try:
        _PARSER.set_defaults_with_config(**dict.fromkeys(_top_names()))  # forget an earlier call's recipe
        for own in dataclasses.fields(PrismConfig):
            if own.init and own.name not in top:
                default = own.default_factory() if own.default_factory is not dataclasses.MISSING else own.default
                top[own.name] = None if default is dataclasses.MISSING else default
        _PARSER.set_defaults_with_config(**top)
        config, shared = _PARSER.parse_args_into_dataclasses(args=words, look_for_args_file=False)
    except (_ArgumentError, ValueError) as error:  # TRL's parser raises ValueError for words that fit nowhere
        raise PrismError(str(error)) from None
    for name in ("model_name_or_path", "output_dir"):
        if getattr(config, name) is None:
            raise PrismError(f"`{name}` is missing; give it in the recipe or as --{name}.")

    config.shared = {key: value for key, value in dataclasses.asdict(shared).items() if value is not None}
    for role in ROLES:
        merged = {}
        for key, value in getattr(config, role).items():
            _check_key(str(key), _role_names(), where=f"{role}.")
            # What the command line says for both roles is stronger than what the recipe says for one.
            if key not in command_line:
                merged[key] = _convert(key, value, _ROLE_PARSER, where=f"{role}.")
        for key, words_of_key in roles[role].items():
            try:
                parsed = _ROLE_PARSER.parse_args_into_dataclasses(
                    args=[f"--{key}", *words_of_key], look_for_args_file=False
                )[0]
            except (_ArgumentError, ValueError) as error:
                raise PrismError(f"{error} (for `--{role}.{key}`)") from None
            merged[key] = getattr(parsed, key)
        setattr(config, role, merged)
    for holder in (vars(config), config.shared, config.questioner, config.solver):
        for key, value in holder.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise PrismError(f"`{key}` is {value}; it must be a finite number.")
    return config


class _ArgumentError(Exception):
    pass


class _Parser(TrlParser):
    """TRL's parser; a wrong value raises instead of ending the process, and names may not be abbreviated."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, allow_abbrev=False, **kwargs)

    def error(self, message: str) -> Any:
        raise _ArgumentError(message)


def _parser() -> _Parser:
    return _Parser((PrismConfig, SharedSettings), prog="recipes/prism.py")


def _role_parser() -> _Parser:
    fields = [(name, hint, field(default=None)) for name, hint in _role_fields().items()]
    return _Parser(dataclasses.make_dataclass("RoleArguments", fields))


_PARSER = _parser()
_ROLE_PARSER = _role_parser()


def _convert(key: str, value: Any, parser: TrlParser, *, where: str = "") -> Any:
    """A YAML value as its field's type: YAML 1.1 reads `5e-6` as text, and `1` stands for 1.0 as well."""
    if value is None or isinstance(value, dict):
        return value
    action = next(action for action in parser._actions if action.dest == key)
    if isinstance(value, list):
        return [_convert(key, item, parser, where=where) for item in value]
    wanted = action.type
    if wanted in (int, float) and isinstance(value, bool):
        raise PrismError(f"`{where}{key}` is {value}; it must be a number.")
    try:
        if wanted is not None and (isinstance(value, str) or wanted is float):
            value = wanted(value)
    except (ValueError, TypeError, argparse.ArgumentTypeError) as error:
        raise PrismError(f"`{where}{key}` is {value!r}, which does not fit: {error}.") from error
    if wanted is int and not isinstance(value, int):
        raise PrismError(f"`{where}{key}` is {value!r}; it must be a whole number.")
    if action.choices is not None and value not in action.choices:
        raise PrismError(f"`{where}{key}` is {value!r}; it must be one of {', '.join(map(str, action.choices))}.")
    return value
