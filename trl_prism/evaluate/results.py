"""From marked answers to figures: with intervals, per kind and level, as JSON, as a table and for a model card."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from trl_prism.core.scores import Score, mean_with_interval, pass_at_k
from trl_prism.domains.base import Problem
from trl_prism.evaluate.benchmarks import ProblemSet
from trl_prism.evaluate.run import ProblemResult
from trl_prism.ports.files import write_jsonl, write_text


@dataclass(frozen=True)
class Results:
    """A model on one test set.

    Attributes:
        benchmark (`str`): The test set.
        num_problems (`int`): How many problems it has.
        num_samples (`int`): Sampled answers per problem.
        scores (`dict[str, Score]`): `accuracy` (greedy pass@1), and where answers were sampled `mean@n` and `maj@n`
            for all `n` of them and `pass@k` for `k` = 2, 4, 8, ... and `n`, each with its 95 % bootstrap interval
            over problems.
        frac_unanswered (`float`): Share of all completions without an answer.
        frac_truncated (`float`): Share of all completions that were cut off.
        per_kind, per_level (`dict[str, dict]`): Greedy accuracy, interval and number of problems of each.
        source (`dict`): Where the problems come from: [`~trl_prism.evaluate.benchmarks.ProblemSet`].
        settings (`dict`): The model and how it was asked.
    """

    benchmark: str
    num_problems: int
    num_samples: int
    scores: dict[str, Score]
    frac_unanswered: float
    frac_truncated: float
    per_kind: dict[str, dict[str, Any]] = field(default_factory=dict)
    per_level: dict[str, dict[str, Any]] = field(default_factory=dict)
    source: dict[str, str | None] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)


def summarise(
    problem_set: ProblemSet, results: Sequence[ProblemResult], *, settings: Mapping[str, Any] | None = None
) -> Results:
    """The figures of one test set."""
    problems = problem_set.problems
    k = len(results[0].answers)
    scores = {"accuracy": mean_with_interval([result.greedy_right for result in results])}
    if k:
        scores[f"mean@{k}"] = mean_with_interval([sum(result.right) / k for result in results])
        for few in [*_powers_of_two(k), k]:
            scores[f"pass@{few}"] = mean_with_interval([pass_at_k(sum(r.right), k, few) for r in results])
        scores[f"maj@{k}"] = mean_with_interval([result.majority_right for result in results])
    total = len(results) * (1 + k)
    return Results(
        benchmark=problem_set.name,
        num_problems=len(results),
        num_samples=k,
        scores=scores,
        frac_unanswered=sum((r.greedy is None) + sum(a is None for a in r.answers) for r in results) / total,
        frac_truncated=sum(result.num_truncated for result in results) / total,
        per_kind=_per(results, [problem.kind for problem in problems]),
        per_level=_per(results, [problem.level for problem in problems]),
        source=dict(problem_set.source),
        settings=dict(settings or {}),
    )


def _powers_of_two(below: int) -> list[int]:
    return [2**i for i in range(1, below.bit_length()) if 2**i < below]


def _per(results: Sequence[ProblemResult], names: Sequence[str | None]) -> dict[str, dict[str, Any]]:
    found = {}
    for name in sorted({name for name in names if name is not None}):
        own = [result.greedy_right for result, other in zip(results, names, strict=True) if other == name]
        found[name] = {**asdict(mean_with_interval(own)), "num_problems": len(own)}
    return found


def write_results(
    folder: str | os.PathLike[str], summary: Results, problems: Sequence[Problem], results: Sequence[ProblemResult]
) -> None:
    """Writes `results.json` with all figures, and `wrong.jsonl` with every problem whose greedy answer is wrong."""
    write_text(Path(folder) / "results.json", json.dumps(asdict(summary), indent=2) + "\n")
    wrong = [
        {
            "index": result.index,
            "question": problem.question,
            "right_answer": problem.answer,
            "greedy": result.greedy,
            "completion": result.completion,
            "answers": result.answers,
            "majority": result.majority,
        }
        for problem, result in zip(problems, results, strict=True)
        if not result.greedy_right
    ]
    write_jsonl(Path(folder) / "wrong.jsonl", wrong)


def results_table(summaries: Sequence[Results]) -> Table:
    """One row per test set: every figure with its interval, in percent."""
    # Of pass@k the largest k; all are in results.json.
    kept = [(s, name) for s in summaries for name in s.scores if name in ("accuracy", *_at_all(s.num_samples))]
    names = list(dict.fromkeys(name for _, name in kept))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("benchmark")
    for name in ("problems", *names, "unanswered", "truncated"):
        table.add_column(name, justify="right")
    for summary in summaries:
        shown = [summary.scores.get(name) for name in names]
        table.add_row(
            summary.benchmark,
            str(summary.num_problems),
            *(_percent(s.value, s.low, s.high) if s else "-" for s in shown),
            f"{100 * summary.frac_unanswered:.1f}",
            f"{100 * summary.frac_truncated:.1f}",
        )
    return table


def _at_all(k: int) -> tuple[str, str, str]:
    return f"mean@{k}", f"pass@{k}", f"maj@{k}"


def _percent(value: float, low: float, high: float) -> str:
    return f"{100 * value:.1f} ({100 * low:.0f}-{100 * high:.0f})"


def parts_table(summary: Results) -> Table | None:
    """Greedy accuracy per kind and per level, in percent; `None` where the test set knows neither."""
    if not summary.per_kind and not summary.per_level:
        return None
    table = Table(title=summary.benchmark, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for head in ("kind or level", "problems", "accuracy"):
        table.add_column(head, justify="left" if head.startswith("kind") else "right")
    for name, row in [*summary.per_kind.items(), *((f"level {n}", r) for n, r in summary.per_level.items())]:
        table.add_row(
            name,
            str(row["num_problems"]),
            _percent(row["value"], row["low"], row["high"]),
        )
    return table


def model_index(model_name: str, summaries: Sequence[Results]) -> dict[str, Any]:
    """The Hub's `model-index` metadata, through `huggingface_hub`'s own serialiser."""
    from huggingface_hub import EvalResult
    from huggingface_hub.repocard_data import eval_results_to_model_index

    rows = [
        EvalResult(
            task_type="text-generation",
            task_name="Mathematical reasoning",
            dataset_type=summary.source.get("hub_id") or summary.benchmark,
            dataset_name=summary.benchmark,
            dataset_config=summary.source.get("config"),
            dataset_split=summary.source.get("split"),
            dataset_revision=summary.source.get("revision"),
            metric_type="accuracy" if name == "accuracy" else name,
            metric_name="greedy pass@1" if name == "accuracy" else name,
            metric_value=round(score.value, 4),
            metric_args={"confidence_interval_95": [round(score.low, 4), round(score.high, 4)]},
        )
        for summary in summaries
        for name, score in summary.scores.items()
    ]
    return {"model-index": eval_results_to_model_index(model_name, rows)}
