"""The loop. A round, from top to bottom:

1. the Questioner learns to ask at the edge of the last Solver's ability, and where it has seldom asked before;
2. it writes a pool of candidate questions, which the last Solver answers and votes on;
3. curation keeps those with a usable agreement, each with its majority answer as pseudo-label;
4. the Solver learns to give these answers;
5. pool and Solver are measured.

Source: Prism, arXiv:2603.13309. With `reward: rzero` and `questioner_init: questioner` it is R-Zero, arXiv:2508.05004.
"""

import logging
import time
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from trl_prism import _compat
from trl_prism.config import ROLES, PrismConfig, mapping
from trl_prism.console import progress, round_line, rounds_table, say
from trl_prism.core.curriculum import FILTERS, Candidate, curate, funnel
from trl_prism.domains import load_domain
from trl_prism.errors import PrismError
from trl_prism.evaluate.benchmarks import HELD_OUT
from trl_prism.evaluate.results import summarise, write_results
from trl_prism.evaluate.run import evaluate, model_fingerprint
from trl_prism.parts import Parts, load_functions
from trl_prism.pools import label_accuracy, measure_pool
from trl_prism.ports.ranks import distributed_type, from_main, is_main, num_ranks, state
from trl_prism.ports.samplers import SamplingParams
from trl_prism.questions import QuestionReward, RewardSettings, embed_all
from trl_prism.rates import endless_warmup
from trl_prism.run_dir import RunDirectory
from trl_prism.trainers import QuestionerTrainer, SolverTrainer
from trl_prism.trainers.solver import AnswerReward


logger = logging.getLogger(__name__)

# Whose versions a run depends on.
PACKAGES = ("trl-prism", "trl", "transformers", "accelerate", "datasets", "torch", "math-verify", "scikit-learn")


class SelfPlay:
    """A run of Prism.

    Args:
        config ([`~trl_prism.config.PrismConfig`]): The whole configuration; it is validated before anything is loaded.
    """

    def __init__(self, config: PrismConfig):
        _compat.check_versions()
        state(cpu=bool(config.role_settings("solver").get("use_cpu")))
        config.validate(num_ranks=num_ranks())
        for role in ROLES:
            args = config.role_config(role, output_dir="unused", seed=config.seed, num_ranks=num_ranks())
            warning = endless_warmup(role, args, num_rounds=config.num_rounds, over_run=config.lr_schedule == "run")
            if warning and is_main():
                logger.warning(warning)
        self.config = config
        self.run_dir = RunDirectory(config.output_dir)
        self.rows: list[dict[str, Any]] = []
        self.domain = load_domain(config.domain, **mapping(config.domain_kwargs))
        for role in ROLES:
            load_functions(config.role_settings(role).get("reward_funcs"))

    def run(self) -> list[dict[str, Any]]:
        """Plays all rounds and returns the rows of `metrics.jsonl`."""
        config = self.config
        from_main(self.run_dir.check_new, "checking the output folder")
        self.parts = Parts(config, self.domain)
        self.asked_so_far = np.zeros(self.parts.partition.num_clusters)
        # Not before everything could be loaded: what fails earlier leaves no folder behind.
        from_main(self.run_dir.create, "making the output folder")
        if is_main():
            self.run_dir.write_config(config.to_yaml())
            self.run_dir.write_environment(self._environment())
            self.parts.partition.save(self.run_dir.partition)

        solver = questioner = config.model_name_or_path
        started = time.monotonic()
        pool, kept = self._write_pool(0, questioner=questioner, solver=solver)
        self._report(0, pool, kept, solver=solver, started=started)
        for number in range(1, config.num_rounds + 1):
            started = time.monotonic()
            start = solver if config.questioner_init == "solver" else questioner
            questioner = self._train_questioner(number, start=start, solver=solver)
            pool, kept = self._write_pool(number, questioner=questioner, solver=solver)
            self._check_curriculum(pool, kept)
            solver = self._train_solver(number, start=solver, curriculum=kept)
            self._report(number, pool, kept, solver=solver, started=started)
        say(rounds_table(self.rows))
        say(f"The trained Solver is {solver}; all rounds are in {self.run_dir.path}.")
        return self.rows

    def _environment(self) -> dict[str, Any]:
        """What the run really ran on, which the recipe alone does not say."""
        attention = self.parts.attention
        return {
            "versions": {name: version(name) for name in PACKAGES},
            "num_processes": num_ranks(),
            "distributed_type": distributed_type(),
            "device": state().device.type,
            "attention": {"asked": attention.asked, "used": attention.used or "transformers' own choice"},
            "fallback": attention.reason,
        }

    # The parts of a round, in order.

    def _train_questioner(self, number: int, *, start: str, solver: str) -> str:
        """The Questioner's phase. Returns where the trained Questioner lies."""
        config = self.config
        settings = {name: getattr(config, name) for name in RewardSettings.__dataclass_fields__}
        reward = QuestionReward(
            judge=self.parts.judge(solver),
            embedder=self.parts.embedder,
            partition=self.parts.partition,
            memory=self.parts.memory,
            settings=RewardSettings(**settings),
            num_votes=config.num_reward_votes,
            seed=self.parts.seed(number, "reward votes"),
        )
        prompts_per_step = config.role_settings("questioner")["prompts_per_step"]
        prompt = self.domain.questioner_prompt()
        folder = str(self.run_dir.round(number) / "questioner")
        self.parts.train(
            QuestionerTrainer,
            "questioner",
            number,
            folder,
            start=start,
            # Every prompt is the same; TRL's sampler needs one row for each prompt of a generation batch.
            rows=[{"prompt": prompt}] * prompts_per_step,
            stop_strings=self.domain.questioner_stop,
            question_reward=reward,
        )
        if is_main():
            self.run_dir.write_visits(number, self.parts.memory.state_dict())
        return folder

    def _write_pool(self, number: int, *, questioner: str, solver: str) -> tuple[list[Candidate], list[Candidate]]:
        """The Questioner's candidates, voted on by the frozen Solver, and those of them that were kept."""
        config = self.config
        name = "base" if number == 0 else f"round {number}"
        writer = self.parts.spread(self.parts.sampler(questioner))
        with progress(f"{name}: pool", config.num_candidates, "question") as advance:
            [written] = writer.sample(
                [self.domain.questioner_prompt()],
                num_samples=config.num_candidates,
                params=SamplingParams(
                    max_tokens=config.role_settings("questioner")["max_completion_length"],
                    temperature=config.candidate_temperature,
                    stop=tuple(self.domain.questioner_stop),
                ),
                seed=self.parts.seed(number, "pool"),
                on_progress=advance,
            )
        del writer
        judge = self.parts.judge(solver)
        with progress(f"{name}: votes", config.num_candidates * config.num_label_votes, "answer") as advance:
            pool = judge.judge(
                [completion.text for completion in written],
                num_votes=config.num_label_votes,
                seed=self.parts.seed(number, "label votes"),
                skip_duplicates=True,
                on_progress=advance,
            )
        usable = [candidate for candidate in pool if candidate.usable]
        self.embeddings = embed_all(self.parts.embedder, [candidate.question for candidate in usable])
        for candidate, cluster in zip(usable, self.parts.partition.assign(self.embeddings), strict=True):
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
        folder = str(self.run_dir.round(number) / "solver")
        self.parts.train(
            SolverTrainer,
            "solver",
            number,
            folder,
            start=start,
            rows=rows,
            stop_strings=self.domain.solver_stop,
            answer_reward=AnswerReward(self.domain, format_weight=self.config.format_weight),
        )
        return folder

    def _report(
        self,
        number: int,
        pool: Sequence[Candidate],
        kept: Sequence[Candidate],
        *,
        solver: str,
        started: float,
    ) -> None:
        """Measures the round, writes its row and shows its line."""
        counts = funnel(pool)
        usable = [candidate for candidate in pool if candidate.usable]
        asked = [candidate.agreement for candidate in usable if candidate.dropped != "duplicate"]
        widths, self.asked_so_far = measure_pool(
            pool,
            self.embeddings,
            num_clusters=self.parts.partition.num_clusters,
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
            "questioner/frac_malformed": counts["malformed"] / len(pool),
            "questioner/mean_agreement": _mean(asked),
            **label_accuracy(kept, self.domain),
            **self._evaluate(number, solver),
            **self.domain.diagnostics(),
            "seconds": round(time.monotonic() - started, 1),
        }
        self.rows.append(row)
        if is_main():
            self.run_dir.append_metrics(row)
        say(round_line(row, self.config.num_rounds))

    def _evaluate(self, number: int, solver: str) -> dict[str, Any]:
        """The Solver on the domain's held-out problems and on the benchmarks that the recipe names."""
        config = self.config
        row: dict[str, Any] = dict.fromkeys(("solver/accuracy", "solver/mean_at_k", "solver/maj_at_k"))
        sampler = self.parts.sampler(solver)
        model = from_main(lambda: model_fingerprint(solver))
        for problem_set in self.parts.problem_sets:
            name, problems = problem_set.name, problem_set.problems
            folder = self.run_dir.round(number) / "evaluation" / name.replace("/", "--")
            title = f"{'base' if number == 0 else f'round {number}'}: {name.replace('_', ' ')}"
            with progress(title, len(problems) * (1 + config.eval_num_samples), "answer") as advance:
                results = evaluate(
                    sampler,
                    self.domain,
                    problems,
                    num_samples=config.eval_num_samples,
                    params=self.parts.vote_params(),
                    # The same in every round: two rounds differ by the Solver, not by the draw.
                    seed=self.parts.seed(0, "evaluation"),
                    tokenizer=self.parts.tokenizer,
                    batch_size=config.sampling_batch_size,
                    folder=folder,
                    model=model,
                    on_progress=advance,
                )
            summary = summarise(problem_set, results)
            if is_main():
                write_results(folder, summary, problems, results)
            prefix = "solver" if name == HELD_OUT else f"eval/{name}"
            k = config.eval_num_samples
            row[f"{prefix}/accuracy"] = summary.scores["accuracy"].value
            row[f"{prefix}/mean_at_k"] = summary.scores[f"mean@{k}"].value if k else None
            row[f"{prefix}/maj_at_k"] = summary.scores[f"maj@{k}"].value if k else None
            row[f"{prefix}/frac_truncated"] = summary.frac_truncated
            row[f"{prefix}/per_kind"] = {kind: figures["value"] for kind, figures in summary.per_kind.items()}
        return row


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def play(config: PrismConfig) -> list[dict[str, Any]]:
    """Runs Prism with a configuration and returns the rows of `metrics.jsonl`."""
    return SelfPlay(config).run()
