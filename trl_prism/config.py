"""The configuration of a run: one YAML file, one dataclass, one order of precedence.

[`trl_prism.recipe`][] reads it from a recipe and the command line.

Every field of TRL's `GRPOConfig` can stand at the top level or in a role's mapping. They are kept as they were given
and each role's `GRPOConfig` is built once, from the merged settings: a finished `GRPOConfig` cannot be changed, since
its batch sizes have been filled in, and the shared level alone may be illegal where each role is legal.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import yaml
from trl import GRPOConfig

from trl_prism.batching import Batching, solve_batching, updates_per_batch
from trl_prism.errors import PrismError, first_line, raise_all
from trl_prism.violations import ROLES, violations


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
    "save_strategy": "steps",
    "ddp_timeout": 1800,
    "save_total_limit": 2,
    "report_to": "none",
}
# What may change when a run goes on: where things lie and how often they are said, not what comes out.
FREE = {
    *("output_dir", "resume_from_checkpoint", "stop_grace", "keep_rounds", "server_urls", "benchmarks_dir"),
    *("save_steps", "save_strategy", "save_total_limit", "logging_steps", "report_to", "run_name", "log_completions"),
    *("per_device_train_batch_size", "gradient_checkpointing", "logging_first_step", "log_level", "disable_tqdm"),
    *("health", "health_kwargs"),
    *("dataloader_num_workers", "dataloader_pin_memory", "ddp_timeout", "attn_strict"),
}

# Updates between two checkpoints, where a recipe does not say.
DEFAULT_SAVE_STEPS = 5


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
    """The loop's own settings. TRL's `GRPOConfig` fields stand beside them, shared or per role.

    Every field states its meaning in its `help`, which `recipes/prism.py --help` prints. The two that have no default:

    Parameters:
        model_name_or_path (`str`): Base model that both roles start from; Hub id or local folder.
        output_dir (`str`): Folder of the run. If it holds one already, with this configuration, that run goes on.
    """

    model_name_or_path: str = field(metadata={"help": "Base model that both roles start from: Hub id or folder."})
    output_dir: str = field(metadata={"help": "Folder of the run, new or of a run that goes on."})
    model_revision: str = field(default="main", metadata={"help": "Revision of the base model on the Hub."})
    trust_remote_code: bool = field(default=False, metadata={"help": "Run the model repository's own code."})
    eos_token: str | None = field(
        default=None,
        metadata={
            "help": "Token that ends a completion, where the tokenizer's own is not the one that its chat template "
            "ends a turn with, as in TRL's SFTConfig."
        },
    )
    dtype: str = field(default="float32", metadata={"help": "Type of the trained weights, for instance bfloat16."})
    attn_implementation: str | None = field(default=None, metadata={"help": "For instance flash_attention_2, sdpa."})
    attn_strict: bool = field(
        default=False, metadata={"help": "Refuse to run with another attention than was asked for, instead of sdpa."}
    )
    seed: int = field(default=42, metadata={"help": "Seed of everything random."})
    num_rounds: int = field(default=4, metadata={"help": "Rounds of Questioner, pool, curation and Solver."})

    resume_from_checkpoint: str | None = field(
        default=None,
        metadata={
            "help": "A run goes on where it was stopped whenever `output_dir` holds one. `true`: it must hold one; "
            "`false`: it must not; a path: of that run or of a checkpoint in it."
        },
    )
    stop_grace: float = field(
        default=120.0,
        metadata={"help": "Seconds that a run told to stop (SIGTERM) may take to save; then it ends at once."},
    )
    keep_rounds: int | None = field(
        default=None,
        metadata={"help": "Models of only the last so many rounds are kept, at least 2. Default: all."},
    )

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
    use_peft: bool = field(
        default=False,
        metadata={
            "help": "Train LoRA adapters. At the end of a phase they are merged into the weights it started from."
        },
    )
    lora_r: int = field(default=16, metadata={"help": "Rank of the adapters."})
    lora_alpha: int = field(default=32, metadata={"help": "Their scale is lora_alpha / lora_r."})
    lora_dropout: float = field(default=0.0, metadata={"help": "Dropout of the adapters."})
    lora_target_modules: list[str] | None = field(
        default=None, metadata={"help": "Modules that get adapters; by default all linear ones but the head."}
    )
    handoff_dtype: Literal["float32", "bfloat16"] = field(
        default="float32",
        metadata={
            "help": "Type of the weights that a phase hands to the next. bfloat16 halves the files and loses the part "
            "of an update that is smaller than bfloat16's spacing: most of it at learning rates of 1e-6."
        },
    )
    lr_schedule: Literal["run", "phase"] = field(
        default="run",
        metadata={"help": "The learning-rate schedule counts a role's steps over the whole run, or anew per phase."},
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
    vote_engine: Literal["transformers", "server", "vllm"] = field(
        default="transformers",
        metadata={
            "help": "Who answers: a copy of the frozen Solver on every rank, servers at `server_urls`, or the "
            "colocated vLLM engine of `use_vllm`, which then writes the pool and the evaluation's answers too."
        },
    )
    server_urls: list[str] | None = field(
        default=None,
        metadata={
            "help": "Addresses, as http://host:8000/v1. Each must hold the model whose folder a request "
            "names; `transformers serve` loads it."
        },
    )
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
    benchmarks: list[str] | None = field(
        default=None, metadata={"help": "Test sets that the Solver is evaluated on after each round, as math500."}
    )
    benchmarks_dir: str | None = field(
        default=None, metadata={"help": "Folder with a NAME.jsonl for each of them; the others come from the Hub."}
    )
    max_eval_problems: int | None = field(default=None, metadata={"help": "Only the first so many held-out problems."})
    sampling_batch_size: int = field(default=64, metadata={"help": "Sequences per rank when votes are drawn."})

    health: Literal["warn", "stop", "off"] = field(
        default="warn",
        metadata={"help": "What happens when a run shows one of the method's known troubles: see health.jsonl."},
    )
    health_kwargs: dict | str | None = field(
        default=None, metadata={"help": "Thresholds other than those of trl_prism.core.health.HealthSettings."}
    )

    shared: dict[str, Any] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for name in ("questioner", "solver", "domain_kwargs", "embedder_kwargs", "health_kwargs"):
            setattr(self, name, mapping(getattr(self, name), name=name))
        if self.benchmarks:  # also as one word with commas, as `trl-prism evaluate` takes them
            self.benchmarks = [part.strip() for item in self.benchmarks for part in item.split(",") if part.strip()]

    def role_settings(self, role: str) -> dict[str, Any]:
        """The merged settings of one role, by precedence: its mapping, the shared ones, the defaults."""
        return {**COMMON_DEFAULTS, **ROLE_DEFAULTS[role], **self.shared, **getattr(self, role)}

    @property
    def base_kwargs(self) -> dict[str, Any]:
        """What the base model, its configuration and its tokenizer are loaded with beside the path."""
        return {"revision": self.model_revision, "trust_remote_code": self.trust_remote_code}

    @property
    def answer_length(self) -> int:
        """Most tokens of a vote."""
        return int(self.max_answer_length or self.role_settings("solver")["max_completion_length"])

    def colocated(self, role: str) -> bool:
        """Whether a role generates with vLLM's colocated engine."""
        settings = self.role_settings(role)
        return bool(settings.get("use_vllm")) and settings.get("vllm_mode", "colocate") == "colocate"

    def role_config(
        self, role: str, *, output_dir: str, seed: int, num_ranks: int = 1, for_this_machine: bool = True
    ) -> GRPOConfig:
        """The `GRPOConfig` of one role, with the global batch sizes solved for the number of ranks.

        With `for_this_machine=False` what TRL refuses on a machine without a GPU is left out, to look at the rest.
        """
        settings = self.role_settings(role)
        if not for_this_machine:
            settings.update(use_cpu=True, bf16=False, fp16=False, tf32=None, use_vllm=False)
        batching = solve_batching(
            prompts_per_step=settings.pop("prompts_per_step"),
            prompts_per_update=settings.pop("prompts_per_update", None),
            num_generations=settings["num_generations"],
            max_per_device=settings.pop("per_device_train_batch_size"),
            num_ranks=num_ranks,
            role=role,
        )
        settings.pop("reward_funcs", None)
        settings["save_steps"] = self._save_steps(role, settings, batching)
        try:
            return GRPOConfig(
                **settings,
                **dataclasses.asdict(batching),
                output_dir=output_dir,
                seed=seed,
                remove_unused_columns=False,
            )
        except (ValueError, TypeError, OSError) as error:
            raise PrismError(f"The settings of the {role} are refused by TRL: {first_line(error)}") from error

    @staticmethod
    def _save_steps(role: str, settings: Mapping[str, Any], batching: Batching) -> int:
        """Updates between two checkpoints: a multiple of those that a generation batch is used for.

        TRL draws new completions after a restart, so a checkpoint elsewhere would not go on as it would have.
        """
        per_batch = updates_per_batch(batching, num_iterations=settings["num_iterations"])
        given = settings.get("save_steps")
        if given is None:
            return -(-DEFAULT_SAVE_STEPS // per_batch) * per_batch
        if given < 1 or given % per_batch:
            below = int(given) // per_batch * per_batch
            near = f"{below} and {below + per_batch}" if below else str(per_batch)
            raise PrismError(
                f"`{role}.save_steps` is {given:g}; a generation batch of the {role} is used for {per_batch} updates, "
                f"and checkpoints lie between batches: it must be a multiple of that, the nearest are {near}."
            )
        return int(given)

    def validate(self, *, num_ranks: int = 1) -> None:
        """Refuses what cannot work on so many ranks, before anything is loaded.

        Raises:
            PrismError: with all that is wrong, see [`trl_prism.violations`][].
        """
        raise_all(violations(self, num_ranks=num_ranks), what="settings cannot work")

    def as_mapping(self) -> dict[str, Any]:
        """The resolved settings as a recipe would write them; reading them again gives the same run."""
        own = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.init}
        for role in ROLES:
            own[role] = dict(sorted(self.role_settings(role).items()))
        return own

    def deciding(self) -> dict[str, Any]:
        """The resolved settings that decide a run's results; a run that goes on must have the same."""
        settings = self.as_mapping()
        for role in ROLES:
            settings[role] = {k: v for k, v in settings[role].items() if k not in FREE}
        if self.lr_schedule == "phase" or all(_constant(settings[role]) for role in ROLES):
            del settings["num_rounds"]  # the rounds so far were the same in a run of fewer or more
        return {key: value for key, value in settings.items() if key not in FREE}

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.as_mapping(), sort_keys=False, allow_unicode=True)


def _constant(settings: Mapping[str, Any]) -> bool:
    return settings["lr_scheduler_type"] in ("constant", "constant_with_warmup")


def mapping(value: Mapping[str, Any] | str | None, *, name: str = "value") -> dict[str, Any]:
    """A setting that is a mapping, also where the command line gave it as text."""
    if isinstance(value, str):
        try:
            value = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise PrismError(f"`{name}` is {value!r}, which is no YAML: {error}") from error
    if value is not None and not isinstance(value, Mapping):
        raise PrismError(f"`{name}` is {value!r}; it must be a mapping of names to values.")
    return dict(value or {})
