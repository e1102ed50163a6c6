"""The loop. A round, from top to bottom:

1. the Questioner learns to ask at the edge of the last Solver's ability, and where it has seldom asked before;
2. it writes a pool of candidate questions, which the last Solver answers and votes on;
3. curation keeps those with a usable agreement, each with its majority answer as pseudo-label;
4. the Solver learns to give these answers;
5. pool and Solver are measured.

Source: Prism, arXiv:2603.13309. With `reward: rzero` and `questioner_init: questioner` it is R-Zero, arXiv:2508.05004.
"""

import gc
import importlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback
from transformers.trainer_callback import ProgressCallback

from trl_prism import _compat
from trl_prism.config import PrismConfig, mapping
from trl_prism.console import PhaseProgress, progress, round_line, rounds_table, say
from trl_prism.core.coverage import VisitMemory
from trl_prism.core.curriculum import FILTERS, Candidate, curate, funnel
from trl_prism.core.partition import Partition, fingerprint
from trl_prism.domains import load_domain
from trl_prism.errors import PrismError
from trl_prism.evaluation import evaluate_solver, label_accuracy, measure_pool
from trl_prism.ports.embedders import build_embedder
from trl_prism.ports.ranks import is_main, num_ranks
from trl_prism.ports.samplers import LogprobScorer, SamplingParams, TransformersSampler, load_frozen
from trl_prism.questions import PlausibilityGate, QuestionJudge, QuestionReward, RewardSettings
from trl_prism.run_dir import RunDirectory
from trl_prism.trainers import QuestionerTrainer, SolverTrainer
from trl_prism.trainers.solver import AnswerReward


class SelfPlay:
    """A run of Prism.

    Args:
        config ([`~trl_prism.config.PrismConfig`]): The whole configuration; it is validated before anything is loaded.
    """

    def __init__(self, config: PrismConfig):
        _compat.check_versions()
        config.validate(num_ranks=num_ranks())
        self.config = config
        self.run_dir = RunDirectory(config.output_dir)
        self.domain = load_domain(config.domain, **mapping(config.domain_kwargs))
        for role in ("questioner", "solver"):
            load_functions(config.role_settings(role).get("reward_funcs"))

    def run(self) -> list[dict[str, Any]]:
        """Plays all rounds and returns the rows of `metrics.jsonl`."""
        config = self.config
        if is_main():
            self.run_dir.create()
            self.run_dir.write_config(config.to_yaml())
        self._prepare()

        solver = questioner = config.model_name_or_path
        started = time.monotonic()
        pool, kept = self._write_pool(0, questioner=questioner, solver=solver)
        self._report(0, pool, kept, solver=solver, started=started)
        for number in range(1, config.num_rounds + 1):
            started = time.monotonic()
            start = solver if config.questioner_init == "solver" else questioner
            questioner, seen = self._train_questioner(number, start=start, solver=solver)
            pool, kept = self._write_pool(number, questioner=questioner, solver=solver)
            self._check_curriculum(pool, kept)
            solver = self._train_solver(number, start=solver, curriculum=kept)
            self._report(number, pool, kept, solver=solver, started=started, seen=seen)
        say(rounds_table(self.rows))
        say(f"The trained Solver is {solver}; all rounds are in {self.run_dir.path}.")
        return self.rows

    # The parts of a round, in order.

    def _prepare(self) -> None:
        """Everything that lasts over all rounds: tokenizer, embedder, partition, visits, the validity gate."""
        config = self.config
        self.rows: list[dict[str, Any]] = []
        self.tokenizer = AutoTokenizer.from_pretrained(
            config.model_name_or_path,
            revision=config.model_revision,
            trust_remote_code=config.trust_remote_code,
            padding_side="left",
        )
        self.problems = self.domain.held_out_problems()[: config.max_eval_problems]
        reference = self.domain.reference_questions()
        self.embedder = build_embedder(
            config.embedder, reference=reference, revision=config.embedder_revision, **mapping(config.embedder_kwargs)
        )
        if config.partition_path:
            self.partition = Partition.load(config.partition_path)
            self.partition.check_embedder(self.embedder.fingerprint)
        else:
            self.partition = Partition.fit(
                self.embedder.embed(reference),
                config.num_clusters,
                embedder=self.embedder.fingerprint,
                corpus_hash=fingerprint(reference),
                seed=config.seed,
            )
        if is_main():
            self.partition.save(self.run_dir.partition)
        self.memory = VisitMemory(self.partition.num_clusters, decay=config.coverage_decay, update=config.count_update)
        self.asked_so_far = np.zeros(self.partition.num_clusters)
        self.plausibility: PlausibilityGate | None = None
        if config.min_question_logprob_quantile is not None:
            self.plausibility = self._calibrate_plausibility(config.min_question_logprob_quantile)

    def _train_questioner(self, number: int, *, start: str, solver: str) -> tuple[str, dict[str, list[float]]]:
        """The Questioner's phase. Returns where the trained Questioner lies, and what its batches held."""
        config = self.config
        settings = {name: getattr(config, name) for name in RewardSettings.__dataclass_fields__}
        reward = QuestionReward(
            judge=self._judge(solver),
            embedder=self.embedder,
            partition=self.partition,
            memory=self.memory,
            settings=RewardSettings(**settings),
            num_votes=config.num_reward_votes,
            seed=self._seed(number, "reward votes"),
        )
        prompts_per_step = config.role_settings("questioner")["prompts_per_step"]
        prompt = self.domain.questioner_prompt()
        folder = self._train(
            QuestionerTrainer,
            "questioner",
            number,
            start=start,
            # Every prompt is the same; TRL's sampler needs one row for each prompt of a generation batch.
            rows=[{"prompt": prompt}] * prompts_per_step,
            stop_strings=self.domain.questioner_stop,
            question_reward=reward,
        )
        if is_main():
            self.run_dir.write_visits(number, self.memory.state_dict())
        return folder, reward.seen

    def _write_pool(self, number: int, *, questioner: str, solver: str) -> tuple[list[Candidate], list[Candidate]]:
        """The Questioner's candidates, voted on by the frozen Solver, and those of them that were kept."""
        config = self.config
        name = "base" if number == 0 else f"round {number}"
        writer = self._sampler(questioner)
        with progress(f"{name}: pool", config.num_candidates, "question") as advance:
            [written] = writer.sample(
                [self.domain.questioner_prompt()],
                num_samples=config.num_candidates,
                params=SamplingParams(
                    max_tokens=config.role_settings("questioner")["max_completion_length"],
                    temperature=config.candidate_temperature,
                    stop=tuple(self.domain.questioner_stop),
                ),
                seed=self._seed(number, "pool"),
                on_progress=advance,
            )
        del writer
        judge = self._judge(solver)
        with progress(f"{name}: votes", config.num_candidates * config.num_label_votes, "answer") as advance:
            pool = judge.judge(
                [completion.text for completion in written],
                num_votes=config.num_label_votes,
                seed=self._seed(number, "label votes"),
                skip_duplicates=True,
                on_progress=advance,
            )
        usable = [candidate for candidate in pool if candidate.dropped not in ("malformed", "implausible")]
        self.embeddings = self.embedder.embed([candidate.question for candidate in usable])
        for candidate, cluster in zip(usable, self.partition.assign(self.embeddings), strict=True):
            candidate.cluster = int(cluster)
        kept = curate(
            pool,
            band=config.curriculum_band,
            max_per_cluster=config.max_per_cluster,
            max_questions=config.max_curriculum_size,
        )
        if is_main():
            self.run_dir.write_pool(number, pool)
            self.run_dir.write_curriculum(number, kept)
        return pool, kept

    def _check_curriculum(self, pool: Sequence[Candidate], kept: Sequence[Candidate]) -> None:
        """Ends the run rather than train on scraps."""
        if len(kept) >= self.config.min_curriculum_size:
            return
        fell = ", ".join(f"{count} {reason}" for reason, count in funnel(pool).items() if count and reason != "kept")
        examples = "\n".join(
            f"  {c.question[:200]!r}: {c.dropped}, {c.detail or f'answer {c.answer}, agreement {c.agreement:.2f}'}"
            for c in [c for c in pool if c.dropped is not None][:3]
        )
        raise PrismError(
            f"The pool of {len(pool)} candidates left {len(kept)} questions, fewer than `min_curriculum_size` = "
            f"{self.config.min_curriculum_size}: {fell}. Write more candidates (`num_candidates`), widen "
            f"`curriculum_band`, or look at what the Questioner writes. Examples:\n{examples}"
        )

    def _train_solver(self, number: int, *, start: str, curriculum: Sequence[Candidate]) -> str:
        """The Solver's phase. Returns where the trained Solver lies."""
        rows = [
            {"prompt": self.domain.solver_prompt(candidate.question), "answer": candidate.answer}
            for candidate in curriculum
        ]
        # TRL's sampler drops an incomplete generation batch, and with it a curriculum that is smaller than one.
        prompts_per_step = self.config.role_settings("solver")["prompts_per_step"]
        rows = (rows * -(-prompts_per_step // len(rows)))[: max(len(rows), prompts_per_step)]
        return self._train(
            SolverTrainer,
            "solver",
            number,
            start=start,
            rows=rows,
            stop_strings=self.domain.solver_stop,
            answer_reward=AnswerReward(self.domain, format_weight=self.config.format_weight),
        )

    def _report(
        self,
        number: int,
        pool: Sequence[Candidate],
        kept: Sequence[Candidate],
        *,
        solver: str,
        started: float,
        seen: dict[str, list[float]] | None = None,
    ) -> None:
        """Measures the round, writes its row and shows its line."""
        counts = funnel(pool)
        usable = [candidate for candidate in pool if candidate.dropped not in ("malformed", "implausible")]
        asked = [candidate.agreement for candidate in usable if candidate.dropped != "duplicate"]
        widths, self.asked_so_far = measure_pool(
            pool,
            self.embeddings,
            num_clusters=self.partition.num_clusters,
            domain=self.domain,
            past=self.asked_so_far,
        )
        row: dict[str, Any] = {
            "round": number,
            **widths,
            "pool/num_candidates": len(pool),
            "pool/num_distinct": len(asked),
            "pool/num_kept": len(kept),
            **{f"pool/num_{name}": counts[name] for name in FILTERS},
            "questioner/frac_malformed": _mean(seen["frac_malformed"]) if seen else counts["malformed"] / len(pool),
            "questioner/mean_agreement": _mean(seen["mean_agreement"]) if seen else _mean(asked),
            **label_accuracy(kept, self.domain),
            **self._evaluate(number, solver),
            "seconds": round(time.monotonic() - started, 1),
        }
        self.rows.append(row)
        if is_main():
            self.run_dir.append_metrics(row)
        say(round_line(row, self.config.num_rounds))

    def _evaluate(self, number: int, solver: str) -> dict[str, Any]:
        if not self.problems:
            return dict.fromkeys(("solver/accuracy", "solver/mean_at_k", "solver/maj_at_k"))
        name = "base" if number == 0 else f"round {number}"
        total = len(self.problems) * (1 + self.config.eval_num_samples)
        with progress(f"{name}: evaluation", total, "answer") as advance:
            scores = evaluate_solver(
                self._sampler(solver),
                self.domain,
                self.problems,
                num_samples=self.config.eval_num_samples,
                params=self._vote_params(),
                # The same in every round: two rounds differ by the Solver, not by the draw.
                seed=self._seed(0, "evaluation"),
                on_progress=advance,
            )
        return {
            "solver/accuracy": scores.accuracy,
            "solver/mean_at_k": scores.mean_at_k,
            "solver/maj_at_k": scores.maj_at_k,
            "solver/frac_truncated": scores.frac_truncated,
            "solver/per_kind": scores.per_kind,
        }

    # What the parts are made of.

    def _train(
        self, trainer_class: type, role: str, number: int, *, start: str, rows: list[dict], **kwargs: Any
    ) -> str:
        """One phase of one role: from the weights at `start` to a folder that loads like any model."""
        config = self.config
        folder = self.run_dir.round(number) / role
        args = config.role_config(role, output_dir=str(folder), seed=self._seed(number, role), num_ranks=num_ranks())
        args.disable_tqdm = True  # our bar carries the phase's name
        reference = start if config.kl_reference == "phase_start" else config.model_name_or_path
        trainer = trainer_class(
            model=AutoModelForCausalLM.from_pretrained(start, **self._model_kwargs(start)),
            args=args,
            train_dataset=Dataset.from_list(rows),
            processing_class=self.tokenizer,
            reference_path=reference,
            reward_funcs=load_functions(config.role_settings(role).get("reward_funcs")),
            **kwargs,
        )
        trainer.remove_callback(PrinterCallback)
        trainer.remove_callback(ProgressCallback)
        trainer.add_callback(PhaseProgress(f"round {number}: {role.capitalize()}"))
        trainer.train()
        trainer.save_model(str(folder))
        trainer.save_state()
        trainer.accelerator.free_memory()
        del trainer
        gc.collect()
        return str(folder)

    def _judge(self, solver: str) -> QuestionJudge:
        return QuestionJudge(
            domain=self.domain,
            solver=self._sampler(solver),
            params=self._vote_params(),
            tokenizer=self.tokenizer,
            max_prompt_length=self.config.max_prompt_length,
            plausibility=self.plausibility,
        )

    def _sampler(self, path: str) -> TransformersSampler:
        model = load_frozen(path, **self._model_kwargs(path))
        return TransformersSampler(model, self.tokenizer, batch_size=self.config.sampling_batch_size)

    def _vote_params(self) -> SamplingParams:
        config = self.config
        return SamplingParams(
            max_tokens=config.max_answer_length or config.role_settings("solver")["max_completion_length"],
            temperature=config.vote_temperature,
            top_p=config.vote_top_p,
            top_k=config.vote_top_k,
            stop=tuple(self.domain.solver_stop),
        )

    def _calibrate_plausibility(self, quantile: float) -> PlausibilityGate:
        """The validity gate, its thresholds taken from questions that the base model writes itself."""
        base = self._sampler(self.config.model_name_or_path)
        prompt = self.domain.questioner_prompt()
        [own] = base.sample(
            [prompt],
            num_samples=min(self.config.num_candidates, 1000),
            params=SamplingParams(
                max_tokens=self.config.role_settings("questioner")["max_completion_length"],
                stop=tuple(self.domain.questioner_stop),
            ),
            seed=self._seed(0, "plausibility"),
        )
        scorer = LogprobScorer(base.model, self.tokenizer, batch_size=self.config.sampling_batch_size)
        return PlausibilityGate.calibrate(scorer, prompt, [c.text for c in own], quantile=quantile)

    def _model_kwargs(self, path: str) -> dict[str, Any]:
        config = self.config
        kwargs: dict[str, Any] = {"dtype": config.dtype, "trust_remote_code": config.trust_remote_code}
        if config.attn_implementation:
            kwargs["attn_implementation"] = config.attn_implementation
        if path == config.model_name_or_path:
            kwargs["revision"] = config.model_revision
        return kwargs

    def _seed(self, number: int, stage: str) -> int:
        """A seed of its own for every stage of every round."""
        words = [self.config.seed, number, *stage.encode()]
        return int(np.random.SeedSequence(words).generate_state(1)[0] & 0x7FFFFFFF)


def load_functions(paths: Sequence[str] | None) -> list[Callable[..., Any]]:
    """Functions by import path `package.module.name`, as TRL's own scripts take reward functions."""
    functions = []
    for path in paths or ():
        module, _, name = path.rpartition(".")
        try:
            functions.append(getattr(importlib.import_module(module), name))
        except (ImportError, AttributeError, ValueError) as error:
            raise PrismError(f"The reward function {path!r} cannot be imported: {error}.") from error
    return functions


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def play(config: PrismConfig) -> list[dict[str, Any]]:
    """Runs Prism with a configuration and returns the rows of `metrics.jsonl`."""
    return SelfPlay(config).run()
