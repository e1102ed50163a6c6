"""The loop. A round, from top to bottom:

1. the Questioner learns to ask at the edge of the last Solver's ability, and where it has seldom asked before;
2. it writes a pool of candidate questions, which the last Solver answers and votes on;
3. curation keeps those with a usable agreement, each with its majority answer as pseudo-label;
4. the Solver learns to give these answers;
5. pool and Solver are measured.

Source: Prism, arXiv:2603.13309. With `reward: rzero` and `questioner_init: questioner` it is R-Zero, arXiv:2508.05004.
"""

import contextlib
import logging
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from trl_prism import _compat, preflight
from trl_prism.config import ROLES, PrismConfig, mapping
from trl_prism.console import progress, round_line, rounds_table, say
from trl_prism.core.coverage import count
from trl_prism.core.curriculum import FILTERS, Candidate, curate, funnel
from trl_prism.core.health import Finding, of_rounds
from trl_prism.domains import load_domain
from trl_prism.errors import PrismError, StopRequested
from trl_prism.evaluate.run import model_fingerprint
from trl_prism.health import Health, health_settings
from trl_prism.journal import Journal, Position, differences
from trl_prism.measure import evaluate_solver, label_accuracy, mean, measure_pool
from trl_prism.parts import Parts, load_functions
from trl_prism.plan.sizes import Launch
from trl_prism.ports import stopping
from trl_prism.ports.chunks import ChunkStore
from trl_prism.ports.ranks import distributed_type, from_main, gather_list, is_main, launch_kind, num_ranks, state
from trl_prism.ports.samplers import SamplingParams
from trl_prism.questions import QuestionReward, RewardSettings, embed_all
from trl_prism.rates import endless_warmup, lost_updates
from trl_prism.run_dir import PROJECTION, RunDirectory, round_name
from trl_prism.trainers import QuestionerTrainer, SolverTrainer
from trl_prism.trainers.checkpoints import remove_all
from trl_prism.trainers.solver import AnswerReward


logger = logging.getLogger(__name__)

# Whose versions a run depends on.
PACKAGES = ("trl-prism", "trl", "transformers", "accelerate", "datasets", "torch", "math-verify", "scikit-learn")


def versions() -> dict[str, str]:
    return {name: version(name) for name in PACKAGES}


class SelfPlay:
    """A run of Prism.

    Args:
        config ([`~trl_prism.config.PrismConfig`]): The whole configuration; it is validated before anything is loaded.
    """

    def __init__(self, config: PrismConfig):
        _compat.check_versions()
        settings = config.role_settings("solver")
        state(cpu=bool(settings.get("use_cpu")), timeout=settings["ddp_timeout"])
        config.validate(num_ranks=num_ranks())
        for role in ROLES:
            args = config.role_config(role, output_dir="unused", seed=config.seed, num_ranks=num_ranks())
            warning = endless_warmup(role, args, num_rounds=config.num_rounds, over_run=config.lr_schedule == "run")
            lost = lost_updates(role, args, config=config, kind=launch_kind())
            for message in filter(None, (warning, lost)):
                if is_main():
                    logger.warning(message)
        self.config = config
        self.run_dir = RunDirectory(config.output_dir)
        self.journal = Journal(self.run_dir.path)
        self.position: Position = (0, "start")
        self.domain = load_domain(config.domain, **mapping(config.domain_kwargs))
        for role in ROLES:
            load_functions(config.role_settings(role).get("reward_funcs"))
        launch = Launch(num_ranks(), launch_kind())
        self.shape = from_main(lambda: preflight.check(config, self.domain, launch), "checking")

    def run(self) -> list[dict[str, Any]]:
        """Plays all rounds, or those that are left, and returns the rows of `metrics.jsonl`.

        Raises:
            StopRequested: if the run was told to stop; the same command goes on.
        """
        with contextlib.ExitStack() as stack:
            from_main(lambda: self._own(stack), "taking the output folder")
            stopping.watch(self.run_dir.stop_file, grace=self.config.stop_grace)
            stack.callback(stopping.release)
            try:
                self._begin()
                return self._play()
            except StopRequested:
                number, stage = self.position
                from_main(lambda: self.run_dir.write_continue(f"round {number}, {stage}"), "saying how to go on")
                raise

    def _own(self, stack: contextlib.ExitStack) -> None:
        """Makes sure of the folder: what lies in it, and that nobody else works there."""
        self.run_dir.check(resume=self.config.resume_from_checkpoint)
        stack.enter_context(self.run_dir.owned())
        self.run_dir.clear_requests()
        if self.run_dir.begun:
            self.journal.refuse_others(self.config.deciding())

    def _begin(self) -> None:
        """Loads what lasts over all rounds, and finds out what is done."""
        config = self.config
        self.parts = Parts(config, self.domain, kept=self.run_dir.partition)
        settings = health_settings(mapping(config.health_kwargs))
        self.health = self.parts.health = Health(self.run_dir.path, mode=config.health, settings=settings)
        self.partition_hash = self.parts.partition.hash
        start = {
            "settings": config.deciding(),
            "base_model": from_main(lambda: model_fingerprint(config.model_name_or_path)),
            "partition": self.partition_hash,
        }
        self.journal = from_main(lambda: self._open_journal(start), "reading the journal")
        rounds = [record.facts for record in self.journal.done.values()]
        self.rows: list[dict[str, Any]] = [facts["row"] for facts in rounds if "row" in facts]
        self.asked_so_far = np.zeros(self.parts.partition.num_clusters)
        self.health.load()
        self.probe = [self.domain.example_question()]
        self.probe_embedding = self.parts.embedder.embed(self.probe)
        attention = self.parts.attention
        if attention.reason:
            seen = f"{attention.asked} was asked for, and {attention.used} runs: {attention.reason}."
            self.health.note([Finding("another attention", seen, "Install it, or ask for sdpa.")], "start")
        if self.journal.done and is_main():
            number, stage = next(reversed(self.journal.done))
            logger.warning("%s goes on after round %d, %s.", self.run_dir.path, number, stage)
            before = self.journal.done[number, stage].facts.get("versions", {})
            for line in differences(before, versions()) if before else ():
                logger.warning("Another version than in the stages before: %s.", line)

    def _open_journal(self, start: dict[str, Any]) -> Journal:
        # Not before everything could be loaded: what fails earlier leaves no folder behind.
        self.run_dir.create()
        self.journal.begin(start)
        self.journal.load(self.config.num_rounds)
        self.journal.verify(self.config.questioner_init)
        self.run_dir.write_config(self.config.to_yaml())
        self.run_dir.write_environment(self._environment())
        if self.parts.fitted or not self.run_dir.partition.exists():
            self.parts.partition.save(self.run_dir.partition)
        if self.parts.fitted or not (self.run_dir.partition / PROJECTION).exists():
            self.parts.projection.save(self.run_dir.partition / PROJECTION)
        return self.journal

    def _play(self) -> list[dict[str, Any]]:
        solver = questioner = self.config.model_name_or_path
        pool, kept = self._write_pool(0, questioner=questioner, solver=solver)
        self._report(0, pool, kept, solver=solver)
        for number in range(1, self.config.num_rounds + 1):
            start = solver if self.config.questioner_init == "solver" else questioner
            questioner = self._train_questioner(number, start=start, solver=solver)
            pool, kept = self._write_pool(number, questioner=questioner, solver=solver)
            solver = self._train_solver(number, start=solver, curriculum=kept)
            self._report(number, pool, kept, solver=solver)
        say(rounds_table(self.rows))
        say(f"The trained Solver is {solver}; all rounds are in {self.run_dir.path}.")
        return self.rows

    @contextlib.contextmanager
    def _stage(self, number: int, stage: str, **inputs: str) -> Iterator[dict[str, Any]]:
        """A stage that is not done yet: what is written within counts once it is recorded, at the end.

        Yields the facts that are recorded beside the stage's results.
        """
        self.position = (number, stage)
        if any(gather_list([stopping.requested()])):  # all ranks, or none
            raise StopRequested
        started = time.monotonic()
        identity = self.journal.identity_before((number, stage), inputs)
        from_main(lambda: self.run_dir.prepare(number, stage, identity), "preparing the folder")
        facts: dict[str, Any] = {"num_processes": num_ranks(), "versions": versions()}
        yield facts
        facts["seconds"] = round(time.monotonic() - started, 1)
        facts["attention"] = self.parts.attention_in_use
        self.journal = from_main(
            lambda: self.journal.finish((number, stage), inputs=inputs, facts=facts), "writing the journal"
        )

    def _environment(self) -> dict[str, Any]:
        """What the run really ran on, which the recipe alone does not say."""
        attention = self.parts.attention
        return {
            "versions": versions(),
            "num_processes": num_ranks(),
            "distributed_type": distributed_type(),
            "device": state().device.type,
            "attention": {"asked": attention.asked, "used": attention.used or self.shape.attention},
            "fallback": attention.reason,
        }

    # The parts of a round, in order.

    def _train_questioner(self, number: int, *, start: str, solver: str) -> str:
        """The Questioner's phase. Returns where the trained Questioner lies."""
        config = self.config
        folder = str(self.run_dir.round(number) / "questioner")
        if (number, "questioner") in self.journal.done:
            self.parts.memory.load_state_dict(self.run_dir.read_visits(number))
            return self._without_checkpoints(folder)
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
        with self._stage(number, "questioner", start=start, solver=solver):
            self.parts.train(
                QuestionerTrainer,
                "questioner",
                number,
                folder,
                start=start,
                rows=[{"prompt": self.domain.questioner_prompt()}],  # every prompt is the same
                stop_strings=self.domain.questioner_stop,
                question_reward=reward,
            )
            from_main(lambda: self.run_dir.write_visits(number, self.parts.memory.state_dict()), "writing the visits")
        return self._without_checkpoints(folder)

    @staticmethod
    def _without_checkpoints(folder: str) -> str:
        """The folder of a phase that is recorded, whose checkpoints are not needed any more."""
        # Also of one that was recorded by an earlier launch: a kill may have come between the record and this.
        remove_all(Path(folder))
        return folder

    def _write_pool(self, number: int, *, questioner: str, solver: str) -> tuple[list[Candidate], list[Candidate]]:
        """The Questioner's candidates, voted on by the frozen Solver, and those of them that were kept."""
        if (number, "pool") not in self.journal.done:
            with self._stage(number, "pool", questioner=questioner, solver=solver):
                self._make_pool(number, questioner=questioner, solver=solver)
        from_main(lambda: self._store(number, "").remove())
        # As it was written, also where it was made just now: the file is what a continued run has.
        pool = from_main(lambda: self.run_dir.read_pool(number), "reading the pool")
        kept = [candidate for candidate in pool if candidate.dropped is None]
        if number > 0 and (number, "solver") not in self.journal.done:
            self._check_curriculum(pool, kept)
        return pool, kept

    def _make_pool(self, number: int, *, questioner: str, solver: str) -> None:
        config = self.config
        name = "base" if number == 0 else f"round {number}"
        writer = self.parts.spread(self.parts.sampler(questioner), self._store(number, "candidates"))
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
        judge = self.parts.judge(solver, self._store(number, "votes"))
        with progress(f"{name}: votes", config.num_candidates * config.num_label_votes, "answer") as advance:
            pool = judge.judge(
                [completion.text for completion in written],
                num_votes=config.num_label_votes,
                seed=self.parts.seed(number, "label votes"),
                skip_duplicates=True,
                on_progress=advance,
            )
        usable = [candidate for candidate in pool if candidate.usable]
        embeddings = embed_all(self.parts.embedder, [candidate.question for candidate in usable])
        for candidate, cluster in zip(usable, self.parts.partition.assign(embeddings), strict=True):
            candidate.cluster = int(cluster)
        kept = curate(
            pool,
            band=config.curriculum_band,
            max_per_cluster=config.max_per_cluster,
            max_questions=config.max_curriculum_size,
        )
        from_main(lambda: self.run_dir.write_pool(number, pool, kept), "writing the pool")

    def _store(self, number: int, draw: str) -> ChunkStore:
        """What a long draw of a round's pool has made so far."""
        return ChunkStore(self.run_dir.round(number) / "draws" / draw)

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
        folder = str(self.run_dir.round(number) / "solver")
        if (number, "solver") in self.journal.done:
            return self._without_checkpoints(folder)
        rows = [
            {"prompt": self.domain.solver_prompt(candidate.question), "answer": candidate.answer}
            for candidate in curriculum
        ]
        with self._stage(number, "solver", start=start):
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
        return self._without_checkpoints(folder)

    def _report(self, number: int, pool: Sequence[Candidate], kept: Sequence[Candidate], *, solver: str) -> None:
        """Measures the round, writes its row and shows its line."""
        usable = [candidate for candidate in pool if candidate.usable]
        if (number, "report") in self.journal.done:
            self.asked_so_far += count([c.cluster for c in usable], num_clusters=len(self.asked_so_far))
            say(round_line(self.rows[number], self.config.num_rounds))
            return
        started = time.monotonic()
        with self._stage(number, "report", solver=solver) as facts:
            counts = funnel(pool)
            asked = [candidate.agreement for candidate in usable if candidate.dropped != "duplicate"]
            embeddings = embed_all(self.parts.embedder, [candidate.question for candidate in usable])
            places = self.parts.projection(embeddings)
            from_main(lambda: self.run_dir.write_map(number, places), "writing the map")
            widths, self.asked_so_far = measure_pool(
                pool,
                embeddings,
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
                "questioner/mean_agreement": mean(asked),
                **label_accuracy(kept, self.domain),
                "labels/mean_margin": mean([candidate.margin for candidate in kept]),
                **evaluate_solver(self.parts, number, solver, folder=self.run_dir.round(number) / "evaluation"),
                **self.domain.diagnostics(),
                "seconds": round(self.journal.seconds(number) + time.monotonic() - started, 1),
            }
            facts["row"] = row
        self.rows.append(row)
        from_main(lambda: self.run_dir.write_metrics(self.rows), "writing the metrics")
        from_main(lambda: self.run_dir.prune(number, keep=self.config.keep_rounds), "removing old models")
        say(round_line(row, self.config.num_rounds))
        self.health.note([*of_rounds(self.rows, self.health.settings), *self._frozen(number)], round_name(number))

    def _frozen(self, number: int) -> list[Finding]:
        """Whether what must not move does, and what must move does not."""
        found = []
        if not np.allclose(self.parts.embedder.embed(self.probe), self.probe_embedding, atol=1e-3):
            seen = "The embedder gives another embedding for the same question than at the start."
            found.append(Finding("embedder not frozen", seen, "Clusters mean nothing then: look at what trains it."))
        if self.parts.partition.hash != self.partition_hash:
            seen = "The centroids are not those that the run began with."
            found.append(Finding("centroids move", seen, "Start again with the partition that was saved."))
        if number > 0 and np.array_equal(self.parts.memory.visits, np.ones_like(self.parts.memory.visits)):
            seen = "No visit has been remembered: no question lay within `reward_band`."
            found.append(Finding("visits do not move", seen, "Look at the agreement in `trl-prism report`."))
        return found


def play(config: PrismConfig) -> list[dict[str, Any]]:
    """Runs Prism with a configuration, or goes on with its run, and returns the rows of `metrics.jsonl`."""
    return SelfPlay(config).run()
