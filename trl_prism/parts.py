"""What the loop's stages are made of: everything that lasts over all rounds, and what is built anew for each stage."""

import contextlib
import gc
import importlib
import logging
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from transformers import PrinterCallback
from transformers.trainer_callback import ProgressCallback

from trl_prism._compat import vllm_made_by, whole_on_every_rank
from trl_prism.batching import updates_per_batch
from trl_prism.config import ROLES, PrismConfig, mapping
from trl_prism.console import PhaseProgress, say
from trl_prism.core.coverage import VisitMemory
from trl_prism.core.order import passes
from trl_prism.core.partition import Partition, fingerprint
from trl_prism.core.projection import Projection
from trl_prism.core.seeds import derived_seed
from trl_prism.domains.base import Domain
from trl_prism.errors import PrismError, StopRequested
from trl_prism.evaluate.benchmarks import HELD_OUT, ProblemSet, check_names, load_benchmark
from trl_prism.health import Health, HealthCallback
from trl_prism.ports.attention import resolve_attention
from trl_prism.ports.chunks import ChunkStore
from trl_prism.ports.embedders import build_embedder
from trl_prism.ports.models import load_frozen, load_model, load_tokenizer
from trl_prism.ports.ranks import from_main, is_main, num_ranks
from trl_prism.ports.samplers import LogprobScorer, Sampler, SamplingParams, SpreadSampler, TransformersSampler
from trl_prism.ports.server import ServerSampler
from trl_prism.ports.vllm import ColocatedSampler, SharedEngine, start_engine
from trl_prism.questions import PlausibilityGate, QuestionJudge, embed_all
from trl_prism.run_dir import PROJECTION
from trl_prism.trainers.checkpoints import latest
from trl_prism.trainers.guards import out_of_memory_explained
from trl_prism.trainers.handoff import release_engines
from trl_prism.trainers.reporting import LOG_FILE, JsonlCallback


logger = logging.getLogger(__name__)

# Sequences that one rank asks an engine or servers for at a time. They make batches of their own, and the colocated
# engine is pushed the weights once for each such share, so it is a large one.
SEQUENCES_PER_CALL = 1024


class Parts:
    """The parts of a run, from its configuration and its domain.

    Attributes:
        tokenizer: The base model's tokenizer, for both roles.
        problem_sets (`list[ProblemSet]`): The domain's held-out problems, if any, and the test sets of the recipe.
        embedder ([`~trl_prism.ports.embedders.Embedder`]): Frozen.
        partition ([`~trl_prism.core.partition.Partition`]): Fitted once, frozen.
        fitted (`bool`): Whether it was fitted just now.
        memory ([`~trl_prism.core.coverage.VisitMemory`]): The visits, over all rounds.
        attention ([`~trl_prism.ports.attention.Attention`]): Which one runs, and why.
        plausibility ([`~trl_prism.questions.PlausibilityGate`], *optional*): The validity gate.
        attention_in_use (`str`, *optional*): The one of the model that was loaded last.
        engine ([`~trl_prism.ports.vllm.SharedEngine`], *optional*): vLLM's colocated engine, if a role uses it.
    """

    def __init__(self, config: PrismConfig, domain: Domain, *, kept: Path | None = None):
        self.config = config
        self.domain = domain
        self.attention = resolve_attention(config.attn_implementation, dtype=config.dtype, strict=config.attn_strict)
        if self.attention.reason and is_main():
            logger.warning(
                "%s cannot run here: %s. sdpa is used instead.", self.attention.asked, self.attention.reason
            )
        self.attention_in_use: str | None = None
        self.health: Health | None = None
        self.tokenizer = load_tokenizer(config.model_name_or_path, eos_token=config.eos_token, **config.base_kwargs)
        if config.vote_engine == "server":  # asked now, not after the first phase
            self._voters(config.model_name_or_path, all_of_them=True)
        held_out = tuple(self.domain.held_out_problems()[: config.max_eval_problems])
        self.problem_sets = [ProblemSet(HELD_OUT, held_out, {"domain": config.domain})] if held_out else []
        self.problem_sets += [
            load_benchmark(
                name,
                data_dir=config.benchmarks_dir,
                folder_field="benchmarks_dir",
                max_problems=config.max_eval_problems,
            )
            for name in config.benchmarks or ()
        ]
        check_names(self.problem_sets)
        reference = self.domain.reference_questions()
        self.embedder = build_embedder(
            config.embedder, reference=reference, revision=config.embedder_revision, **mapping(config.embedder_kwargs)
        )
        self.fitted = False
        embedded = cache(lambda: embed_all(self.embedder, reference))
        self.partition = self._partition(reference, embedded, kept)
        self.projection = self._projection(embedded, kept)
        # After everything that can be refused: it loads a model.
        self.engine: SharedEngine | None = self._start_engine()
        self.memory = VisitMemory(self.partition.num_clusters, decay=config.coverage_decay, update=config.count_update)
        self.plausibility: PlausibilityGate | None = None
        if config.min_question_logprob_quantile is not None:
            self.plausibility = self._calibrate(config.min_question_logprob_quantile)

    def _partition(self, reference: Sequence[str], embedded: Callable[[], np.ndarray], kept: Path | None) -> Partition:
        """The partition that the recipe names, that the run already has, or a new one."""
        config = self.config
        if config.partition_path:
            partition = Partition.load(config.partition_path)
            partition.check_num_clusters(config.num_clusters)
            partition.check_embedder(self.embedder.fingerprint)
            return partition
        if kept is not None and kept.exists():
            try:
                return Partition.load(str(kept))
            except PrismError as error:
                if is_main():
                    logger.warning("%s It is fitted once more.", error)
        self.fitted = True
        embeddings = embedded()
        return from_main(
            lambda: Partition.fit(
                embeddings,
                config.num_clusters,
                embedder=self.embedder.fingerprint,
                corpus_hash=fingerprint(reference),
                seed=config.seed,
            ),
            "fitting the partition",
        )

    def _projection(self, embedded: Callable[[], np.ndarray], kept: Path | None) -> Projection:
        """The plane on which questions are shown: that which the run already has, or a new one."""
        path = kept / PROJECTION if kept is not None else None
        if path is not None and path.exists() and not self.fitted:
            try:
                return Projection.load(path)
            except PrismError as error:
                if is_main():
                    logger.warning("%s It is fitted once more.", error)
        embeddings = embedded()
        return from_main(lambda: Projection.fit(embeddings), "fitting the projection")

    def train(
        self, trainer_class: type, role: str, number: int, folder: str, *, start: str, rows: list[dict], **kwargs: Any
    ) -> None:
        """One phase of one role: from the weights at `start` to a folder that loads like any model.

        It goes on from the newest whole checkpoint in the folder, if there is one.

        Raises:
            StopRequested: if the run was told to stop; a checkpoint is saved.
        """
        config = self.config
        seed = self.seed(number, role)
        args = config.role_config(role, output_dir=folder, seed=seed, num_ranks=num_ranks())
        args.disable_tqdm = True  # our bar carries the phase's name
        num_batches = -(-args.max_steps // updates_per_batch(args))
        num_rows = num_batches * config.role_settings(role)["prompts_per_step"]
        rows = [rows[i] for i in passes(len(rows), num_rows, seed=seed)]
        checkpoint = latest(Path(folder))
        if checkpoint is not None and is_main():
            logger.warning("Round %d: the %s goes on from %s.", number, role.capitalize(), checkpoint.name)
        reference = start if config.kl_reference == "phase_start" else config.model_name_or_path
        shared = vllm_made_by(self.engine.adopt) if self.engine and args.use_vllm else contextlib.nullcontext()
        with shared:
            trainer = trainer_class(
                model=self._noted(load_model(start, **self._model_kwargs(start))),
                args=args,
                train_dataset=Dataset.from_list(rows),
                processing_class=self.tokenizer,
                reference_path=reference,
                peft_config=self._lora(),
                handoff_dtype=config.handoff_dtype,
                handoff_start=start if Path(start).is_dir() else None,
                model_kwargs=self._model_kwargs(start),
                max_sequences=config.sampling_batch_size,
                phase=(number - 1, config.num_rounds) if config.lr_schedule == "run" else (0, 1),
                reward_funcs=load_functions(config.role_settings(role).get("reward_funcs")),
                **kwargs,
            )
        trainer.remove_callback(PrinterCallback)
        trainer.remove_callback(ProgressCallback)
        trainer.add_callback(JsonlCallback(Path(folder) / LOG_FILE))
        trainer.add_callback(PhaseProgress(f"round {number}: {role.capitalize()}"))
        if self.health is not None:
            when = f"round {number}, {role.capitalize()}"
            trainer.add_callback(HealthCallback(self.health, when=when, beta=args.beta))
        with out_of_memory_explained(Path(folder)):
            trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        if trainer.stop_callback.stopped:
            raise StopRequested
        trainer.save_model(folder)
        trainer.save_state()
        release_engines(trainer)
        if self.engine:
            self.engine.release()
        del trainer
        gc.collect()

    def _lora(self) -> Any:
        if not self.config.use_peft:
            return None
        from peft import LoraConfig

        return LoraConfig(
            r=self.config.lora_r,
            lora_alpha=self.config.lora_alpha,
            lora_dropout=self.config.lora_dropout,
            target_modules=self.config.lora_target_modules or "all-linear",
            task_type="CAUSAL_LM",
        )

    def judge(self, solver: str, store: ChunkStore | None = None) -> QuestionJudge:
        return QuestionJudge(
            domain=self.domain,
            solver=self.spread(self._voters(solver), store),
            params=self.vote_params(),
            tokenizer=self.tokenizer,
            max_prompt_length=self.config.max_prompt_length,
            plausibility=self.plausibility,
        )

    def _voters(self, solver: str, *, all_of_them: bool = False) -> Sampler:
        if self.config.vote_engine == "server":
            # A folder by its whole path: the server's own folder is another.
            name = str(Path(solver).resolve()) if Path(solver).is_dir() else solver
            urls = self.config.server_urls or ()
            return ServerSampler(urls, name, self.tokenizer, all_of_them=all_of_them)
        return self.sampler(solver)

    def sampler(self, path: str) -> Sampler:
        """This rank's own sampler of a model."""
        if self.engine and self.config.vote_engine == "vllm":
            return ColocatedSampler(self.engine, self._whole(path), self.tokenizer)
        model = self._noted(load_frozen(path, **self._model_kwargs(path)))
        return TransformersSampler(model, self.tokenizer, batch_size=self.config.sampling_batch_size)

    def spread(self, sampler: Sampler, store: ChunkStore | None = None) -> SpreadSampler:
        """The same with its work spread over ranks; with a store it can be stopped and goes on."""
        size = self.config.sampling_batch_size
        if isinstance(sampler, ColocatedSampler | ServerSampler):  # they make batches of their own
            size = max(size, SEQUENCES_PER_CALL)
        return SpreadSampler(sampler, self.tokenizer, batch_size=size, store=store)

    def _start_engine(self) -> SharedEngine | None:
        config = self.config
        asked = [config.role_config(role, output_dir="unused", seed=0, num_ranks=num_ranks()) for role in ROLES]
        users = [args for role, args in zip(ROLES, asked, strict=True) if config.colocated(role)]
        if not users:
            return None
        first = users[0]  # both have the same, see `trl_prism.violations`
        answer = max(self.vote_params().max_tokens, *(args.max_completion_length for args in users))
        return start_engine(
            self._whole(config.model_name_or_path),
            self.tokenizer,
            max_model_length=first.vllm_max_model_length or config.max_prompt_length + answer,
            gpu_memory_utilization=first.vllm_gpu_memory_utilization,
            enable_sleep_mode=first.vllm_enable_sleep_mode,
            model_impl=first.vllm_model_impl,
            trust_remote_code=config.trust_remote_code,
        )

    def _whole(self, path: str) -> Any:
        """A model that is only pushed to the engine from the CPU; under ZeRO-3 it is whole there."""
        with whole_on_every_rank():
            return load_model(path, **self._model_kwargs(path)).eval().requires_grad_(False)

    def vote_params(self) -> SamplingParams:
        config = self.config
        return SamplingParams(
            max_tokens=config.answer_length,
            temperature=config.vote_temperature,
            top_p=config.vote_top_p,
            top_k=config.vote_top_k,
            stop=tuple(self.domain.solver_stop),
        )

    def _noted(self, model: Any) -> Any:
        """The model, whose attention is said once: what is asked for and what runs are two things."""
        found = str(model.config._attn_implementation)
        if found != self.attention_in_use:
            self.attention_in_use = found
            say(f"{self.config.model_name_or_path}: attention {found}, weights {str(model.dtype)[6:]}")
        return model

    def _calibrate(self, quantile: float) -> PlausibilityGate:
        """The validity gate, its thresholds taken from questions that the base model writes itself."""
        path = self.config.model_name_or_path
        base = load_frozen(path, **self._model_kwargs(path))
        sampler = TransformersSampler(base, self.tokenizer, batch_size=self.config.sampling_batch_size)
        prompt = self.domain.questioner_prompt()
        [own] = self.spread(sampler).sample(
            [prompt],
            num_samples=min(self.config.num_candidates, 1000),
            params=SamplingParams(
                max_tokens=self.config.role_settings("questioner")["max_completion_length"],
                stop=tuple(self.domain.questioner_stop),
            ),
            seed=self.seed(0, "plausibility"),
        )
        scorer = LogprobScorer(base, self.tokenizer, batch_size=self.config.sampling_batch_size)
        return PlausibilityGate.calibrate(scorer, prompt, [c.text for c in own], quantile=quantile)

    def _model_kwargs(self, path: str) -> dict[str, Any]:
        config = self.config
        kwargs: dict[str, Any] = {"dtype": config.dtype, "trust_remote_code": config.trust_remote_code}
        if self.attention.used:
            kwargs["attn_implementation"] = self.attention.used
        if path == config.model_name_or_path:
            kwargs["revision"] = config.model_revision
        return kwargs

    def seed(self, number: int, stage: str) -> int:
        """A seed of its own for every stage of every round."""
        words = [self.config.seed, number, *stage.encode()]
        return derived_seed(words)


def load_functions(paths: Sequence[str] | None) -> list[Callable[..., Any]]:
    """Functions by import path `package.module.name`, as TRL's own scripts take reward functions."""
    functions = []
    for path in paths or ():
        module, _, name = path.rpartition(".")
        try:
            function = getattr(importlib.import_module(module), name)
        except Exception as error:  # whatever the module does when it is imported
            raise PrismError(f"The reward function {path!r} cannot be imported: {error}.") from error
        if not callable(function) or isinstance(function, type):
            raise PrismError(f"The reward function {path!r} is a {type(function).__name__}; it must be a function.")
        functions.append(function)
    return functions
