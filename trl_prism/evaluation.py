"""How well the Solver does on held-out problems, and how wide a pool of questions is. Measuring only."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trl_prism.core.coverage import coverage, entropy_of_labels, semantic_diversity
from trl_prism.core.curriculum import Candidate
from trl_prism.domains.base import Domain, Problem
from trl_prism.ports.samplers import Completion, Sampler, SamplingParams


@dataclass(frozen=True)
class SolverScores:
    """The Solver on held-out problems, each in [0, 1].

    Attributes:
        accuracy (`float`): Share of problems whose greedy answer is right (pass@1, greedy).
        mean_at_k (`float`, *optional*): Share of right answers among the sampled ones; `None` if none were sampled.
        maj_at_k (`float`, *optional*): Share of problems whose majority answer is right: what the votes know, and so
            the ceiling of what a round can teach.
        frac_truncated (`float`, *optional*): Share of sampled answers that were cut off.
        per_kind (`dict[str, float]`): Greedy accuracy per kind of question, where kinds are known.
    """

    accuracy: float
    mean_at_k: float | None
    maj_at_k: float | None
    frac_truncated: float | None
    per_kind: dict[str, float]


def evaluate_solver(
    sampler: Sampler,
    domain: Domain,
    problems: Sequence[Problem],
    *,
    num_samples: int,
    params: SamplingParams,
    seed: int,
    on_progress: Callable[[int], None] | None = None,
) -> SolverScores:
    """Greedy accuracy, mean@k and maj@k. With the same seed the sampled answers of one model are the same."""
    prompts = [domain.solver_prompt(problem.question) for problem in problems]
    greedy_params = SamplingParams(max_tokens=params.max_tokens, temperature=0.0, stop=params.stop)
    greedy = sampler.sample(prompts, num_samples=1, params=greedy_params, seed=seed, on_progress=on_progress)
    right = np.array([is_right(domain, c[0], problem) for c, problem in zip(greedy, problems, strict=True)])
    kinds = sorted({problem.kind for problem in problems if problem.kind is not None})
    per_kind = {
        kind: float(right[[i for i, problem in enumerate(problems) if problem.kind == kind]].mean()) for kind in kinds
    }
    if num_samples == 0:
        return SolverScores(float(right.mean()), None, None, None, per_kind)

    sampled = sampler.sample(prompts, num_samples=num_samples, params=params, seed=seed, on_progress=on_progress)
    votes = domain.vote_all([[domain.extract_answer(completion.text) for completion in row] for row in sampled])
    means, majorities, truncated = [], [], []
    for completions, problem, answer in zip(sampled, problems, [vote.answer for vote in votes], strict=True):
        means.append(np.mean([is_right(domain, completion, problem) for completion in completions]))
        majorities.append(answer is not None and domain.equivalent(problem.answer, answer))
        truncated.append(np.mean([completion.truncated for completion in completions]))
    return SolverScores(
        float(right.mean()), float(np.mean(means)), float(np.mean(majorities)), float(np.mean(truncated)), per_kind
    )


def is_right(domain: Domain, completion: Completion, problem: Problem) -> bool:
    answer = domain.extract_answer(completion.text)
    return answer is not None and domain.equivalent(problem.answer, answer)


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
    usable = [candidate for candidate in pool if candidate.dropped not in ("malformed", "implausible")]
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
