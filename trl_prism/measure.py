"""What is measured after a round: how wide its pool is, how many labels are right, what its Solver can do."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trl_prism.console import progress
from trl_prism.core.coverage import coverage, entropy_of_labels, semantic_diversity
from trl_prism.core.curriculum import Candidate
from trl_prism.domains.base import Domain
from trl_prism.evaluate.benchmarks import HELD_OUT
from trl_prism.evaluate.results import summarise, write_results
from trl_prism.evaluate.run import evaluate, model_fingerprint
from trl_prism.parts import Parts
from trl_prism.ports.ranks import from_main, is_main


def measure_pool(
    pool: Sequence[Candidate], embeddings: np.ndarray, *, num_clusters: int, domain: Domain, past: np.ndarray
) -> tuple[dict[str, Any], np.ndarray]:
    """How wide the pool's usable questions are spread, and the counts per cluster over all rounds so far.

    Usable is every candidate that is neither malformed nor implausible, whether or not it was kept.

    Args:
        pool (`Sequence[Candidate]`): Candidates with their clusters.
        embeddings (`numpy.ndarray` of shape `(num_usable, d)`): Embeddings of the usable ones, in pool order.
        num_clusters (`int`): `K`.
        domain ([`~trl_prism.domains.base.Domain`]): Names the true kind of a question where it can.
        past (`numpy.ndarray` of shape `(K,)`): Questions per cluster in earlier rounds.
    """
    usable = [candidate for candidate in pool if candidate.usable]
    counts = np.bincount([candidate.cluster for candidate in usable], minlength=num_clusters).astype(float)
    now, cumulative = coverage(counts), coverage(past + counts)
    kinds = None
    if domain.num_kinds is not None:
        truths = [domain.truth(candidate.question) for candidate in usable]
        kinds = entropy_of_labels(
            [truth.kind for truth in truths if truth is not None and truth.kind is not None],
            num_kinds=domain.num_kinds,
        )
    metrics = {
        "coverage/entropy": now.entropy,
        "coverage/gini": now.gini,
        "coverage/active_clusters": now.active_clusters,
        "coverage/top_share": now.top_share,
        "coverage/cumulative_entropy": cumulative.entropy,
        "diversity/semantic": semantic_diversity(embeddings),
        "diversity/skill_entropy": kinds,
    }
    return metrics, past + counts


def label_accuracy(kept: Sequence[Candidate], domain: Domain) -> dict[str, Any]:
    """How many pseudo-labels are right, where the domain knows; a question without an answer has no right label."""
    if not domain.knows_truth:
        return {"labels/accuracy": None, "labels/num_right": None}
    right = 0
    for candidate in kept:
        truth = domain.truth(candidate.question)
        right += (
            truth is not None and candidate.answer is not None and domain.equivalent(truth.answer, candidate.answer)
        )
    return {"labels/accuracy": right / len(kept) if kept else None, "labels/num_right": right}


def evaluate_solver(parts: Parts, number: int, solver: str, *, folder: Path) -> dict[str, Any]:
    """The Solver on the domain's held-out problems and on the benchmarks that the recipe names.

    Args:
        parts ([`~trl_prism.parts.Parts`]): The run's parts.
        number (`int`): The round.
        solver (`str`): Where the Solver lies.
        folder (`Path`): Where completions and figures are written; completions that are there are not drawn again.
    """
    config = parts.config
    row: dict[str, Any] = dict.fromkeys(("solver/accuracy", "solver/mean_at_k", "solver/maj_at_k"))
    sampler = parts.sampler(solver)
    model = from_main(lambda: model_fingerprint(solver))
    k = config.eval_num_samples
    for problem_set in parts.problem_sets:
        name, problems = problem_set.name, problem_set.problems
        own = folder / name.replace("/", "--")
        title = f"{'base' if number == 0 else f'round {number}'}: {name.replace('_', ' ')}"
        with progress(title, len(problems) * (1 + k), "answer") as advance:
            results = evaluate(
                sampler,
                parts.domain,
                problems,
                num_samples=k,
                params=parts.vote_params(),
                # The same in every round: two rounds differ by the Solver, not by the draw.
                seed=parts.seed(0, "evaluation"),
                tokenizer=parts.tokenizer,
                batch_size=config.sampling_batch_size,
                folder=own,
                model=model,
                on_progress=advance,
            )
        summary = summarise(problem_set, results)
        if is_main():
            write_results(own, summary, problems, results)
        prefix = "solver" if name == HELD_OUT else f"eval/{name}"
        row[f"{prefix}/accuracy"] = summary.scores["accuracy"].value
        row[f"{prefix}/mean_at_k"] = summary.scores[f"mean@{k}"].value if k else None
        row[f"{prefix}/maj_at_k"] = summary.scores[f"maj@{k}"].value if k else None
        row[f"{prefix}/frac_truncated"] = summary.frac_truncated
        row[f"{prefix}/per_kind"] = {kind: figures["value"] for kind, figures in summary.per_kind.items()}
    return row


def mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None
