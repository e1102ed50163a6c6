"""`trl-prism evaluate`: a model on test sets, as a command."""

import json
import math
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from trl_prism.checks import check_between, check_dtype
from trl_prism.config import mapping
from trl_prism.console import progress, quiet_libraries, say
from trl_prism.domains import Domain, load_domain
from trl_prism.errors import PrismError
from trl_prism.evaluate.benchmarks import BENCHMARKS, HELD_OUT, ProblemSet, check_names, load_benchmark
from trl_prism.evaluate.results import Results, model_index, parts_table, results_table, summarise, write_results
from trl_prism.evaluate.run import evaluate, model_fingerprint
from trl_prism.ports.files import make_folder, write_text
from trl_prism.ports.models import load_frozen, load_tokenizer
from trl_prism.ports.ranks import from_main, is_main
from trl_prism.ports.samplers import Sampler, SamplingParams, TransformersSampler


# What decides a model's answers beside its files.
LOADING = ("revision", "dtype", "engine", "attn_implementation")


@dataclass
class EvaluateConfig:
    """What `trl-prism evaluate` takes, on the command line or from `--config file.yaml`."""

    model: str = field(metadata={"help": "Hub id or folder of the model."})
    benchmarks: str = field(
        default="math500",
        metadata={
            "help": f"Comma-separated: {', '.join(BENCHMARKS)}, each with @revision to pin the Hub's; `held_out`, the "
            "domain's own problems; the path of a JSONL file; or a Hub id owner/name."
        },
    )
    output_dir: str | None = field(
        default=None,
        metadata={
            "help": "Completions, figures and wrong answers. The same command goes on. By default a folder of the "
            "model's own under runs/evaluation."
        },
    )
    data_dir: str | None = field(default=None, metadata={"help": "Folder with NAME.jsonl; the rest is the Hub's."})
    num_samples: int = field(default=8, metadata={"help": "Sampled answers per problem; 0 for greedy only."})
    max_problems: int | None = field(default=None, metadata={"help": "Only the first so many problems of each set."})
    temperature: float = field(default=1.0, metadata={"help": "Temperature of the sampled answers."})
    top_p: float = field(default=1.0, metadata={"help": "Nucleus of the sampled answers."})
    top_k: int = field(default=0, metadata={"help": "Most likely tokens that they are drawn from; 0: all."})
    max_tokens: int = field(default=4096, metadata={"help": "Most tokens of an answer."})
    seed: int = field(default=0, metadata={"help": "Seed of the sampled answers."})
    engine: str = field(default="transformers", metadata={"help": "transformers or vllm (not yet run on a GPU)."})
    batch_size: int = field(default=64, metadata={"help": "Sequences per batch, about."})
    revision: str = field(default="main", metadata={"help": "Revision of the model on the Hub."})
    dtype: str = field(default="auto", metadata={"help": "Type of the weights."})
    attn_implementation: str | None = field(default=None, metadata={"help": "For instance flash_attention_2."})
    trust_remote_code: bool = field(default=False, metadata={"help": "Run the model repository's own code."})
    domain: str = field(default="maths", metadata={"help": "How problems are asked and answers read."})
    domain_kwargs: str | None = field(default=None, metadata={"help": "Its arguments, as {prompt_format: text}."})
    question_column: str = field(default="question", metadata={"help": "Column of a file or data set of your own."})
    answer_column: str = field(default="answer", metadata={"help": "Column of a file or data set of your own."})
    kind_column: str | None = field(default=None, metadata={"help": "Column with the kind of question, as subject."})
    level_column: str | None = field(default=None, metadata={"help": "Column with the level of difficulty."})


def check(config: EvaluateConfig) -> None:
    """Raises [`PrismError`] for a value that cannot work, before anything is loaded."""
    for name, low, high in (
        ("num_samples", 0, math.inf),
        ("max_problems", 1, math.inf),
        ("temperature", 0, math.inf),
        ("top_p", 1e-6, 1),
        ("top_k", 0, math.inf),
        ("max_tokens", 1, math.inf),
        ("batch_size", 1, math.inf),
        ("seed", 0, 2**31 - 1),
    ):
        value = getattr(config, name)
        if value is not None:
            check_between(name, value, low, high)
    if config.engine not in ("transformers", "vllm"):
        raise PrismError(f"`engine` is {config.engine!r}; it must be 'transformers' or 'vllm'.")
    check_dtype(config.dtype)
    if config.num_samples and config.temperature == 0:
        raise PrismError("`temperature` is 0: all samples would be the same. Use --num_samples 0 for greedy only.")


def run(config: EvaluateConfig) -> list[Results]:
    """Evaluates a model, writes everything to the output folder and shows the tables."""
    quiet_libraries()
    check(config)
    names = [name.strip() for name in config.benchmarks.split(",") if name.strip()]
    if not names:
        raise PrismError(f"`benchmarks` names none; known are {', '.join(BENCHMARKS)} and {HELD_OUT}.")
    domain = load_domain(config.domain, **mapping(config.domain_kwargs, name="domain_kwargs"))
    # All sets first: a misspelt name costs nothing.
    sets = [_problems(name, config, domain) for name in names]
    check_names(sets)
    output_dir = output_folder(config)
    # Before the folder: a model that is missing leaves none behind.
    tokenizer = load_tokenizer(config.model, revision=config.revision, trust_remote_code=config.trust_remote_code)
    from_main(lambda: make_folder(output_dir), "making the output folder")
    sampler = _sampler(config, tokenizer)
    params = SamplingParams(
        max_tokens=config.max_tokens,
        temperature=config.temperature,
        top_p=config.top_p,
        top_k=config.top_k,
        stop=tuple(domain.solver_stop),
    )
    # Hashing a model's files takes as long as reading them, so one rank does it.
    loading = {name: getattr(config, name) for name in LOADING}
    model = from_main(lambda: model_fingerprint(config.model, **loading), "reading the model's files")
    summaries = []
    for problem_set in sets:
        problems = problem_set.problems
        folder = output_dir / problem_set.name.replace("/", "--")
        with progress(problem_set.name, len(problems) * (1 + config.num_samples), "answer") as advance:
            results = evaluate(
                sampler,
                domain,
                problems,
                num_samples=config.num_samples,
                params=params,
                seed=config.seed,
                tokenizer=tokenizer,
                batch_size=config.batch_size,
                folder=folder,
                model=model,
                on_progress=advance,
            )
        summary = summarise(problem_set, results, settings=_settings(config, params))
        summaries.append(summary)
        if is_main():
            write_results(folder, summary, problems, results)
    if is_main():
        write_text(
            output_dir / "model_index.yaml",
            yaml.safe_dump(json.loads(json.dumps(model_index(Path(config.model).name, summaries))), sort_keys=False),
        )
    say(results_table(summaries))
    for summary in summaries:
        parts = parts_table(summary)
        if parts is not None:
            say(parts)
    say(f"Figures in percent, with 95 % bootstrap intervals over problems. Everything is in {output_dir}.")
    return summaries


def output_folder(config: EvaluateConfig) -> Path:
    """Where everything is written: by default a folder of the model's own."""
    return Path(config.output_dir or f"runs/evaluation/{config.model.strip('./').replace('/', '--')}")


def _settings(config: EvaluateConfig, params: SamplingParams) -> dict[str, Any]:
    """What the figures depend on. Of a folder only its name: figures are shared, paths of this machine are not."""
    return {
        "model": Path(config.model).name if Path(config.model).is_dir() else config.model,
        **{name: getattr(config, name) for name in LOADING},
        "domain": config.domain,
        "domain_kwargs": config.domain_kwargs,
        "seed": config.seed,
        "batch_size": config.batch_size,
        "max_problems": config.max_problems,
        **asdict(params),
        "versions": {name: version(name) for name in ("trl-prism", "transformers", "torch", "math-verify")},
    }


def _problems(name: str, config: EvaluateConfig, domain: Domain) -> ProblemSet:
    if name == HELD_OUT:
        problems = domain.held_out_problems()
        if not problems:
            raise PrismError(f"The domain {config.domain!r} has no held-out problems.")
        return ProblemSet(name, tuple(problems[: config.max_problems]), {"domain": config.domain})
    return load_benchmark(
        name,
        data_dir=config.data_dir,
        question_column=config.question_column,
        answer_column=config.answer_column,
        kind_column=config.kind_column,
        level_column=config.level_column,
        max_problems=config.max_problems,
    )


def _sampler(config: EvaluateConfig, tokenizer: Any) -> Sampler:
    if config.engine == "vllm":
        from trl_prism.ports.vllm import VllmSampler

        return VllmSampler(config.model, tokenizer, revision=config.revision, dtype=config.dtype)
    kwargs: dict[str, Any] = {"attn_implementation": config.attn_implementation} if config.attn_implementation else {}
    model = load_frozen(
        config.model,
        revision=config.revision,
        dtype=config.dtype,
        trust_remote_code=config.trust_remote_code,
        **kwargs,
    )
    return TransformersSampler(model, tokenizer, batch_size=config.batch_size)
