"""Troubles of this method, and what to try: rules on what an update logs and on the rows of the rounds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Finding:
    """What a rule saw, and what to try. Each rule speaks once in a run."""

    rule: str
    seen: str
    advice: str


@dataclass(kw_only=True)
class HealthSettings:
    """Thresholds. Ours from lab runs, healthy and collapsed, where no other source is named.

    Args:
        min_grad_norm (`float`): Below it for `patience` updates nothing is learnt any more (practitioners' figure).
        grad_norm_factor (`float`): A gradient norm so many times the median of the phase so far has exploded.
        max_kl, min_kl (`float`): Range of the KL divergence from the reference, in nats a token, if `beta` is not 0.
        max_dead_groups (`float`): Share of prompts whose completions all earn the same: they teach nothing.
        max_truncated, max_unusable, max_unanswered, max_duplicate (`float`): Shares that waste the compute.
        max_fall (`float`): Share of the base model's coverage or diversity that may be lost.
        max_label_fall (`float`): Fall of label accuracy or margin since the best round.
        max_pool_fall (`float`): Share of the first curriculum that may be lost, falling in two rounds running.
        memory_growth (`float`): Growth of memory within a phase, rising in nearly every update.
        patience (`int`): Updates running before a rule on updates speaks.
    """

    min_grad_norm: float = 1e-7
    grad_norm_factor: float = 100.0
    max_kl: float = 1.0
    min_kl: float = 1e-9
    max_dead_groups: float = 0.9
    max_truncated: float = 0.5
    max_unusable: float = 0.5
    max_unanswered: float = 0.5
    max_duplicate: float = 0.5
    max_fall: float = 0.25
    max_label_fall: float = 0.2
    max_pool_fall: float = 0.5
    memory_growth: float = 0.2
    patience: int = 3


def of_updates(logs: Sequence[Mapping[str, Any]], settings: HealthSettings, *, beta: float = 0.0) -> list[Finding]:
    """What is wrong at the last of a phase's updates.

    Args:
        logs (`Sequence[Mapping]`): What each update logged so far, by TRL's names; `memory` is in bytes.
        settings ([`HealthSettings`]): Thresholds.
        beta (`float`, *optional*): Weight of the KL term.
    """
    s, found = settings, []
    last = logs[-s.patience :]

    def all_of(name: str, low: float = -math.inf, high: float = math.inf) -> bool:
        """Whether a figure lies beyond `low` or `high` in the last updates, in all of them."""
        values = [row.get(name) for row in last]
        return len(values) == s.patience and all(v is not None and (v < low or v > high) for v in values)

    if all_of("grad_norm", low=s.min_grad_norm):
        found.append(
            Finding(
                "vanishing gradient",
                f"The gradient norm was under {s.min_grad_norm:g} in {s.patience} updates.",
                "Look for groups whose rewards are all equal, and for a reward that is the same for everything.",
            )
        )
    norms = [row["grad_norm"] for row in logs if row.get("grad_norm") is not None]
    if len(norms) > 5 and norms[-1] > s.grad_norm_factor * max(median(norms[:-1]), s.min_grad_norm):
        found.append(
            Finding(
                "exploding gradient",
                f"The gradient norm is {norms[-1]:.3g}, and was {median(norms[:-1]):.3g} in the median before.",
                "Lower the learning rate, or clip at a `max_grad_norm` of 1.0 to 2.0.",
            )
        )
    if beta > 0 and all_of("kl", s.min_kl, s.max_kl):
        value = last[-1]["kl"]
        way = "raise" if value > s.max_kl else "lower"
        found.append(
            Finding(
                "KL out of range",
                f"The KL divergence is {value:.3g}, outside {s.min_kl:g} to {s.max_kl:g}.",
                f"`beta` is {beta:g}: {way} it; 1e-5 to 1e-3 is the range that is searched.",
            )
        )
    for rule, name, limit, advice in (
        (
            "dead groups",
            "frac_reward_zero_std",
            s.max_dead_groups,
            "All completions of such a prompt earn the same. Use more `num_generations`, a higher temperature, or "
            "questions that are neither too easy nor too hard.",
        ),
        (
            "truncated completions",
            "completions/clipped_ratio",
            s.max_truncated,
            "Raise `max_completion_length`, or check that the model ends its turns (`trl-prism preview`).",
        ),
        (
            "unusable questions",
            "questioner/frac_unusable",
            s.max_unusable,
            "Look at the completions, the prompt and the stop strings, or start from a model that can follow it.",
        ),
        (
            "unanswered questions",
            "questioner/frac_unanswered",
            s.max_unanswered,
            "Raise `max_answer_length`, or check that answers can be read (`trl-prism preview --sample`).",
        ),
    ):
        if all_of(name, high=limit):
            found.append(Finding(rule, f"Their share was over {limit:g} in {s.patience} updates.", advice))
    memory = [row["memory"] for row in logs if row.get("memory")]
    if len(memory) >= 20:
        rises = sum(b > a for a, b in zip(memory[-20:], memory[-19:], strict=False))
        if rises >= 17 and memory[-1] > (1 + s.memory_growth) * memory[-20]:
            found.append(
                Finding(
                    "memory rises",
                    f"Memory rose in {rises} of 19 updates, from {memory[-20] / 2**20:.0f} to "
                    f"{memory[-1] / 2**20:.0f} MB.",
                    "A reward function of your own may keep tensors: detach them, and keep numbers only.",
                )
            )
    return found


def of_rounds(rows: Sequence[Mapping[str, Any]], settings: HealthSettings) -> list[Finding]:
    """What is wrong after the last of a run's rounds; the first row is the base model's."""
    s, found = settings, []
    first, last = rows[0], rows[-1]
    if len(rows) < 2:
        return []
    for rule, name in (("coverage falls", "coverage/entropy"), ("diversity falls", "diversity/semantic")):
        if last.get(name) is not None and first.get(name) and last[name] < (1 - s.max_fall) * first[name]:
            found.append(
                Finding(
                    rule,
                    f"{name} is {last[name]:.2f}; the base model's was {first[name]:.2f}.",
                    "The curriculum narrows. Raise `coverage_weight` up to 10, start the Questioner from the solver "
                    "(`questioner_init`), and check that the visits move (`count_update: share`).",
                )
            )
    for rule, name in (("label accuracy falls", "labels/accuracy"), ("vote margin falls", "labels/mean_margin")):
        values = [row[name] for row in rows if row.get(name) is not None]
        if last.get(name) is not None and values and last[name] < max(values) - s.max_label_fall:
            found.append(
                Finding(
                    rule,
                    f"{name} is {last[name]:.2f}; it was {max(values):.2f}.",
                    "The Solver begins to train on its own errors. Narrow `curriculum_band` from below, draw more "
                    "`num_label_votes`, or stop after the best round.",
                )
            )
    kept = [row["pool/num_kept"] for row in rows if row.get("pool/num_kept") is not None]
    if len(kept) >= 3 and kept[-1] < kept[-2] < kept[-3] and kept[-1] < (1 - s.max_pool_fall) * max(kept):
        found.append(
            Finding(
                "pool shrinks",
                f"{kept[-1]} questions were kept; {max(kept)} once were.",
                "Write more `num_candidates`, widen `curriculum_band`, or look at the funnel in `trl-prism report`.",
            )
        )
    total = last.get("pool/num_candidates")
    for rule, name, limit in (
        ("duplicate questions", "pool/num_duplicate", s.max_duplicate),
        ("malformed questions", "pool/num_malformed", s.max_unusable),
        ("unanswered pool", "pool/num_unanswered", s.max_unanswered),
    ):
        if total and last.get(name, 0) > limit * total:
            found.append(
                Finding(
                    rule,
                    f"{last[name]} of {total} candidates of the pool were dropped for it.",
                    "Look at the questions in `trl-prism report`, and at the prompts in `trl-prism preview`.",
                )
            )
    return found
