"""Judging questions: what the pool and the Questioner's reward have in common, and the reward itself.

A completion of the Questioner becomes a candidate in the same steps wherever it comes from: it is parsed, weighed by
the validity gate, answered several times by the frozen Solver, voted on, embedded and assigned to a cluster.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trl_prism.core.bleu import cluster_share
from trl_prism.core.coverage import VisitMemory
from trl_prism.core.curriculum import Candidate, mark_duplicates
from trl_prism.core.partition import Partition
from trl_prism.core.rewards import in_band, prism_reward, rzero_reward
from trl_prism.core.seeds import derived_seed
from trl_prism.domains.base import Domain, MalformedQuestion
from trl_prism.errors import PrismError
from trl_prism.ports.embedders import Embedder
from trl_prism.ports.ranks import dealt, from_main, gather_list, rank
from trl_prism.ports.samplers import LogprobScorer, Sampler, SamplingParams, encode
from trl_prism.ports.texts import text_of


# Questions that are voted on, and texts that are embedded, by one rank at a time.
VOTES_PER_CHUNK = 32
TEXTS_PER_CHUNK = 256


def embed_all(embedder: Embedder, texts: Sequence[str]) -> np.ndarray:
    """Embeddings of texts that all ranks hold, shape `(n, d)`: each rank makes a share of them. A collective."""
    rows = dealt(texts, TEXTS_PER_CHUNK, lambda _, chunk: list(embedder.embed(chunk)), "embedding")
    return np.stack(rows) if rows else embedder.embed([])


@dataclass
class PlausibilityGate:
    """Rejects questions that the base model itself would hardly write.

    Questioners learn to write what looks like a question and means nothing, with an agreement near the gate's center.
    Such text is unlikely under the base model: a question passes if the mean and the lowest log-probability of its
    tokens are both at least a low quantile of those of the base's own questions. (Ours; neither paper has it.)

    Args:
        scorer ([`~trl_prism.ports.samplers.LogprobScorer`]): Scores under the base model.
        prompt: The Questioner's prompt.
        thresholds (`tuple[float, float]`): Lowest admissible mean and lowest log-probability.
    """

    scorer: LogprobScorer
    prompt: Any
    thresholds: tuple[float, float]

    @classmethod
    def calibrate(
        cls, scorer: LogprobScorer, prompt: Any, own: Sequence[str], *, quantile: float
    ) -> "PlausibilityGate":
        """Takes the thresholds from completions that the base model wrote itself."""
        scores = scorer.score(prompt, own)
        low = np.quantile(scores[np.isfinite(scores).all(axis=1)], quantile, axis=0)
        return cls(scorer, prompt, (float(low[0]), float(low[1])))

    def passes(self, completions: Sequence[str]) -> list[bool]:
        scores = self.scorer.score(self.prompt, completions)
        return [bool((row >= self.thresholds).all()) for row in scores]


@dataclass(kw_only=True)
class QuestionJudge:
    """Turns completions of the Questioner into candidates.

    The work is spread over ranks: all must judge the same list, and all have the same candidates afterwards.

    Args:
        domain ([`~trl_prism.domains.base.Domain`]): Parses, asks, extracts and votes.
        solver ([`~trl_prism.ports.samplers.Sampler`]): The frozen Solver.
        params ([`~trl_prism.ports.samplers.SamplingParams`]): How its votes are drawn.
        tokenizer: Counts the tokens of the Solver's prompt.
        max_prompt_length (`int`): A question whose Solver prompt is longer is malformed.
        plausibility ([`PlausibilityGate`], *optional*): The validity gate.
    """

    domain: Domain
    solver: Sampler
    params: SamplingParams
    tokenizer: Any
    max_prompt_length: int
    plausibility: PlausibilityGate | None = None

    def judge(
        self,
        completions: Sequence[str],
        *,
        num_votes: int,
        seed: int,
        skip_duplicates: bool = False,
        on_progress: Callable[[int], None] | None = None,
    ) -> list[Candidate]:
        """One candidate per completion, in order, voted on unless malformed, implausible or a skipped duplicate."""
        pool = self.parse(completions)
        if skip_duplicates:
            mark_duplicates(pool)
        asked = [candidate for candidate in pool if candidate.dropped is None]
        answers = self.solver.sample(
            [self.domain.solver_prompt(candidate.question) for candidate in asked],
            num_samples=num_votes,
            params=self.params,
            seed=seed,
            on_progress=on_progress,
        )
        given = [[self.domain.extract_answer(sample.text) for sample in samples] for samples in answers]
        votes = dealt(given, VOTES_PER_CHUNK, lambda _, chunk: self.domain.vote_all(chunk), "voting")
        for candidate, result in zip(asked, votes, strict=True):
            candidate.answer = result.answer
            candidate.agreement = result.agreement
            candidate.margin = result.margin
            candidate.entropy = result.entropy
            candidate.frac_unanswered = result.frac_unanswered
            candidate.votes = json.dumps(result.counts)
        return pool

    def parse(self, completions: Sequence[str]) -> list[Candidate]:
        """Candidates without votes: malformed and implausible ones are marked."""
        pool = []
        for completion in completions:
            try:
                candidate = Candidate(question=self.domain.parse_question(completion))
            except MalformedQuestion as error:
                candidate = Candidate(question=completion, dropped="malformed", detail=str(error))
            pool.append(candidate)
        well_formed = [i for i, candidate in enumerate(pool) if candidate.dropped is None]
        prompts = [self.domain.solver_prompt(pool[i].question) for i in well_formed]
        for i, ids in zip(well_formed, encode(self.tokenizer, prompts), strict=True):
            if len(ids) > self.max_prompt_length:
                pool[i].dropped = "malformed"
                pool[i].detail = f"the Solver's prompt has {len(ids)} tokens, more than {self.max_prompt_length}"
        if self.plausibility:
            well_formed = [i for i in well_formed if pool[i].dropped is None]
            for i, ok in zip(
                well_formed, self.plausibility.passes([completions[i] for i in well_formed]), strict=True
            ):
                if not ok:
                    pool[i].dropped = "implausible"
        return pool


@dataclass(kw_only=True)
class RewardSettings:
    """The constants of the Questioner's reward, named as in [`~trl_prism.config.PrismConfig`]."""

    reward: str = "prism"
    gate_center: float = 0.75
    gate_width: float = 0.4
    reward_band: Sequence[float] = field(default_factory=lambda: (0.3, 0.9))
    coverage_weight: float = 5.0
    rzero_uncertainty: str = "code"
    bleu_distance_threshold: float = 0.5
    max_barren_batches: int = 3


class QuestionReward:
    """The Questioner's reward as TRL calls it: once per rank and generation batch, over the batch of all ranks.

    The completions of all ranks are gathered in rank order. Answering, voting and embedding them is spread over the
    ranks; the rewards and the memory's new state are computed on the main one, sent to all, and every rank returns its
    own slice. So one rank and eight give the same rewards and visits for the same batch, bit by bit.

    Args:
        judge ([`QuestionJudge`]): Turns completions into candidates.
        embedder ([`~trl_prism.ports.embedders.Embedder`]): Embeds questions.
        partition ([`~trl_prism.core.partition.Partition`]): Assigns embeddings to clusters.
        memory ([`~trl_prism.core.coverage.VisitMemory`]): The visits so far; updated in place.
        settings ([`RewardSettings`]): Which reward, and its constants.
        num_votes (`int`): Answers per question.
        seed (`int`): Seed of the votes. Every batch has its own from it and the trainer's step, so a run that goes on
            from a checkpoint draws as one that was not stopped.

    Attributes:
        remember (`bool`): Whether batches change the memory. The trainer turns it off during evaluation.
    """

    __name__ = "question_reward"

    def __init__(
        self,
        *,
        judge: QuestionJudge,
        embedder: Embedder,
        partition: Partition,
        memory: VisitMemory,
        settings: RewardSettings,
        num_votes: int,
        seed: int,
    ):
        partition.check_embedder(embedder.fingerprint)
        if partition.num_clusters != len(memory.visits):
            raise PrismError(
                f"The visits count {len(memory.visits)} clusters, the partition has {partition.num_clusters}."
            )
        self.judge = judge
        self.embedder = embedder
        self.partition = partition
        self.memory = memory
        self.settings = settings
        self.num_votes = num_votes
        self.seed = seed
        self.remember = True
        self._step, self._calls_of_step = -1, 0
        self.num_barren = 0

    def __call__(
        self,
        *,
        completions: list[Any],
        trainer_state: Any = None,
        log_extra: Callable[[str, list[Any]], None] | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        **_: Any,
    ) -> list[float]:
        texts = gather_list([text_of(completion) for completion in completions])
        batch = self.judge.judge(texts, num_votes=self.num_votes, seed=self._batch_seed(trainer_state))
        usable = [candidate for candidate in batch if candidate.dropped is None]
        embeddings = embed_all(self.embedder, [candidate.question for candidate in usable])
        before = self.memory.rarity
        rewards, clusters, state, self.num_barren = from_main(
            lambda: (
                self.score(batch, embeddings),
                [candidate.cluster for candidate in batch],
                self.memory.state_dict(),
                self.num_barren,
            ),
            self.__name__,
        )
        self.memory.load_state_dict(state)
        for candidate, cluster in zip(batch, clusters, strict=True):
            candidate.cluster = cluster
        own = slice(rank() * len(completions), (rank() + 1) * len(completions))
        if log_metric:
            for name, value in self._metrics(batch).items():
                log_metric(name, value)
        if log_extra:
            log_extra("question", [candidate.question for candidate in batch[own]])
            log_extra("agreement", [candidate.agreement for candidate in batch[own]])
            log_extra("cluster", clusters[own])
            log_extra("rarity", [float(before[cluster]) if cluster >= 0 else None for cluster in clusters[own]])
        return [float(reward) for reward in rewards[own]]

    def _batch_seed(self, trainer_state: Any) -> int:
        """Of the trainer's step; evaluation and a second batch within a step have their own."""
        step = trainer_state.global_step if trainer_state is not None else 0
        self._calls_of_step = self._calls_of_step + 1 if step == self._step else 0
        self._step = step
        words = [self.seed, step, self._calls_of_step, int(self.remember)]
        return derived_seed(words)

    def score(self, batch: Sequence[Candidate], embeddings: np.ndarray) -> np.ndarray:
        """Rewards of the whole batch; assigns clusters and updates the memory and the counts.

        Args:
            batch (`Sequence[Candidate]`): `n` candidates, of which `m` were not dropped.
            embeddings (`numpy.ndarray` of shape `(m, d)`): Embeddings of these, in order.

        Returns:
            `numpy.ndarray` of shape `(n,)`
        """
        s = self.settings
        well_formed = np.array([candidate.dropped is None for candidate in batch])
        agreement = np.array([candidate.agreement for candidate in batch])
        clusters = np.full(len(batch), -1)
        if well_formed.any():
            clusters[well_formed] = self.partition.assign(embeddings)
            for i in map(int, np.flatnonzero(well_formed)):
                batch[i].cluster = int(clusters[i])

        if s.reward == "rzero":
            share = cluster_share(
                [candidate.question if candidate.dropped is None else "" for candidate in batch],
                distance_threshold=s.bleu_distance_threshold,
            )
            rewards = rzero_reward(agreement, share, well_formed, uncertainty=s.rzero_uncertainty)
        else:
            rewards = prism_reward(
                agreement,
                np.where(well_formed, self.memory.rarity[clusters], 0.0),
                well_formed,
                coverage_weight=s.coverage_weight if s.reward == "prism" else 0.0,
                center=s.gate_center,
                width=s.gate_width,
                band=s.reward_band,
            )
        if not np.isfinite(rewards).all():
            raise PrismError("The Questioner's reward is not finite; agreement or visits are damaged.")
        if self.remember:
            # Only questions that the Solver can learn from count as a visit.
            self.memory.update(clusters[well_formed & in_band(agreement, s.reward_band)])
            self._count(batch)
        return rewards

    def _count(self, batch: Sequence[Candidate]) -> None:
        """Notes what the batch held, and ends the phase where nothing usable has been seen for too long."""
        asked = [candidate for candidate in batch if candidate.dropped is None]
        answered = [candidate for candidate in asked if candidate.answer is not None]
        self.num_barren = 0 if answered else self.num_barren + 1
        if self.num_barren >= self.settings.max_barren_batches:
            if asked:
                what = f"{len(asked)} questions, none of which the Solver answered in any of {self.num_votes} votes"
                examples = [repr(candidate.question) for candidate in asked[:3]]
            else:
                what = f"{len(batch)} completions without a usable question"
                examples = [f"{c.question!r} ({c.detail or c.dropped})" for c in batch[:3]]
            shown = "\n".join(f"  {text[:300]}" for text in examples)
            raise PrismError(
                f"The Questioner's last {self.num_barren} batches were barren: the last one had {what}. There is "
                "nothing to learn from. Look at the prompt, the completion length and the stop strings, or start from "
                f"a model that can follow the format. Examples:\n{shown}"
            )

    def _metrics(self, batch: Sequence[Candidate]) -> dict[str, float]:
        asked = [candidate for candidate in batch if candidate.dropped is None]
        metrics = {
            "questioner/frac_unusable": 1 - len(asked) / len(batch),
            "coverage/active_in_batch": float(len({candidate.cluster for candidate in asked})),
        }
        if asked:
            metrics["questioner/mean_agreement"] = float(np.mean([candidate.agreement for candidate in asked]))
            metrics["questioner/frac_unanswered"] = float(np.mean([candidate.frac_unanswered for candidate in asked]))
            metrics["questioner/frac_in_band"] = float(
                np.mean(in_band([candidate.agreement for candidate in asked], self.settings.reward_band))
            )
        return metrics
