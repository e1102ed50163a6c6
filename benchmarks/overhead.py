"""What Prism adds to a Questioner's step, beside answering and embedding the questions.

    python benchmarks/overhead.py
    accelerate launch --config_file accelerate_configs/ddp_cpu.yaml benchmarks/overhead.py

First the lab's phase with TRL's plain trainer and a constant reward of equal cost, and with ours, a step of each in
turn. Both have a learning rate of 0 and the same seeds, so that a step of one writes, asks and answers just what the
same step of the other does, and the ratio of the two times is the overhead: all of it, reward, metrics and checks.

Then batches of the lab's real questions are rewarded, and the time of asking, voting and embedding is taken off
within the same call. What is left is the reward's part: gather, assignment, rarity, visits, metrics. It is shown as a
share of the lab's real step and of the 38 minutes that the paper reports for the six steps of a Questioner's phase, of
2,048 completions each.

Then time and memory of assignment, reward and visits alone, up to 65,536 questions, K = 128, d = 1024.
"""

import argparse
import threading
import time
import tracemalloc
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from rich.console import Console
from rich.table import Table
from scipy.stats import bootstrap
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from prism_lab.domain import Lab
from trl_prism.console import quiet_libraries
from trl_prism.core.coverage import VisitMemory
from trl_prism.core.partition import Partition
from trl_prism.core.rewards import in_band, prism_reward
from trl_prism.ports.embedders import TfidfEmbedder
from trl_prism.ports.models import load_frozen, load_model, load_tokenizer
from trl_prism.ports.ranks import gather_list, is_main, num_ranks, rank, state
from trl_prism.ports.samplers import SamplingParams, SpreadSampler, TransformersSampler
from trl_prism.questions import QuestionJudge, QuestionReward, RewardSettings, embed_all
from trl_prism.trainers import QuestionerTrainer


BASE = str(Path(__file__).parents[1] / "prism_lab" / "weights" / "0")
PAPER_STEP_SECONDS = 38 * 60 / 6


class Clock:
    """Passes calls on and counts their seconds."""

    def __init__(self, call: Any):
        self.call, self.seconds = call, 0.0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return self.call(*args, **kwargs)
        finally:
            self.seconds += time.perf_counter() - start


def build(num_votes: int) -> QuestionReward:
    lab, tokenizer = Lab(), load_tokenizer(BASE)
    embedder = TfidfEmbedder(lab.reference_questions())
    partition = Partition.fit(
        embedder.embed(lab.reference_questions()), 16, embedder=embedder.fingerprint, corpus_hash="", seed=0
    )
    sampler = SpreadSampler(
        TransformersSampler(load_frozen(BASE), tokenizer, batch_size=320), tokenizer, batch_size=320
    )
    return QuestionReward(
        judge=QuestionJudge(
            domain=lab,
            solver=sampler,
            params=SamplingParams(max_tokens=22),
            tokenizer=tokenizer,
            max_prompt_length=40,
        ),
        embedder=embedder,
        partition=partition,
        memory=VisitMemory(16, decay=0.9),
        settings=RewardSettings(),
        num_votes=num_votes,
        seed=0,
    )


def added_seconds(reward: QuestionReward, completions: list[str], repeats: int) -> tuple[float, float]:
    """Medians of what a batch costs with a constant reward, and of what Prism adds to it, embedding aside."""
    size = len(completions) // num_ranks()
    own = completions[rank() * size : (rank() + 1) * size]
    judge, embedder = reward.judge, reward.embedder
    asked, added = [], []
    for turn in range(repeats + 1):
        judging, embedding = Clock(judge.judge), Clock(embedder.embed)
        judge.judge, embedder.embed = judging, embedding  # type: ignore[method-assign]
        start = time.perf_counter()
        reward(completions=own)
        whole = time.perf_counter() - start
        del judge.judge, embedder.embed
        if turn:  # the first one warms up
            asked.append(judging.seconds)
            added.append(whole - judging.seconds - embedding.seconds)
    return median(asked), median(added)


class Constant:
    """Asks the same, votes and embeds as the Questioner's reward does, and gives 0 for everything."""

    __name__ = "constant"

    def __init__(self, reward: QuestionReward):
        self.reward = reward

    def __call__(self, *, completions: list[str], trainer_state: Any, **_: Any) -> list[float]:
        texts = gather_list(completions)
        seed = self.reward._batch_seed(trainer_state)
        batch = self.reward.judge.judge(texts, num_votes=self.reward.num_votes, seed=seed)
        embed_all(self.reward.embedder, [candidate.question for candidate in batch if candidate.usable])
        return [0.0] * len(completions)


class Turns(TrainerCallback):
    """Two trainers that take a step each in turn, so that what slows the machine down slows both; and their seconds.

    Who is first changes with every step: the second one finds caches warm.
    Everything that a trainer does, its set-up included, falls into one of its turns, so the ranks' collectives come in
    the same order on all of them.
    """

    def __init__(self, number: int, batons: Sequence[threading.Semaphore]):
        self.number, self.own, self.other = number, batons[number], batons[1 - number]
        self.seconds: list[float] = []

    def run(self, trainer: GRPOTrainer) -> None:
        self.own.acquire()
        trainer.add_callback(self)
        try:
            trainer.train()
        finally:
            self.other.release()

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        was_first = (state.global_step - 1) % 2 == self.number
        if state.global_step > 0 and was_first:
            self.other.release()
            self.own.acquire()
        torch.manual_seed(1000 * state.global_step + rank())  # both write and answer the same
        self.start = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.seconds.append(time.perf_counter() - self.start)


def lab_steps(num_votes: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of each step of the lab's Questioner, 32 prompts, 4 completions, 10 votes, with TRL's plain trainer and
    a constant reward of equal cost, and with ours."""
    rewards = build(num_votes), build(num_votes)
    args = GRPOConfig(
        output_dir="runs/overhead",
        max_steps=steps + 2,
        learning_rate=0.0,
        num_generations=4,
        per_device_train_batch_size=128 // num_ranks(),
        max_completion_length=27,
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
        report_to="none",
        logging_strategy="no",
        save_strategy="no",
    )
    common: dict[str, Any] = {
        "args": args,
        "train_dataset": Dataset.from_list([{"prompt": Lab().questioner_prompt()}] * 32),
        "processing_class": load_tokenizer(BASE),
    }
    plain = GRPOTrainer(model=load_model(BASE), reward_funcs=[Constant(rewards[0])], **common)
    ours = QuestionerTrainer(model=load_model(BASE), question_reward=rewards[1], **common)
    batons = threading.Semaphore(1), threading.Semaphore(0)
    turns = [Turns(number, batons) for number in range(2)]
    with ThreadPoolExecutor(2) as threads:
        for result in [threads.submit(turn.run, trainer) for turn, trainer in zip(turns, (plain, ours), strict=True)]:
            result.result()
    # The first two warm up.
    return np.array(turns[0].seconds[2:]), np.array(turns[1].seconds[2:])


def scaling(sizes: list[int]) -> Table:
    """Gather, assignment, reward and visits alone. On all ranks, since a gather takes all."""
    rng = np.random.default_rng(0)

    def unit(n: int) -> np.ndarray:
        x = rng.standard_normal((n, 1024)).astype(np.float32)
        return x / np.linalg.norm(x, axis=1, keepdims=True)

    partition = Partition.fit(unit(1024), 128, embedder="random", corpus_hash="", seed=0)
    table = Table(title="assignment, reward and visits, K = 128, d = 1024")
    for head in ("questions", "gather, ms", "the rest, ms", "microseconds a question", "peak MB", "kB a question"):
        table.add_column(head, justify="right")
    for n in sizes:
        embeddings, agreement = unit(n), rng.integers(0, 11, n) / 10
        memory = VisitMemory(128)

        def once() -> None:
            clusters = partition.assign(embeddings)  # noqa: B023
            ones = np.ones(len(clusters), dtype=bool)
            prism_reward(agreement, memory.rarity[clusters], ones)  # noqa: B023
            memory.update(clusters[in_band(agreement, (0.3, 0.9))])  # noqa: B023

        once()
        seconds = []
        for _ in range(7):
            start = time.perf_counter()
            once()
            seconds.append(time.perf_counter() - start)
        tracemalloc.start()
        once()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        middle = median(seconds)
        own = ["a question of about as many characters as the lab's are, which is eighty or so"] * (n // num_ranks())
        gathers = []
        for _ in range(8):
            start = time.perf_counter()
            gather_list(own)
            gathers.append(time.perf_counter() - start)
        table.add_row(
            f"{n:,}",
            f"{1e3 * median(gathers[1:]):.2f}",
            f"{1e3 * middle:.2f}",
            f"{1e6 * middle / n:.2f}",
            f"{peak / 2**20:.2f}",
            f"{peak / 2**10 / n:.2f}",
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, nargs="+", default=[128, 2048])
    parser.add_argument("--repeats", type=int, default=5, help="of the reward alone")
    parser.add_argument("--steps", type=int, default=60, help="of each of the two trainers, even")
    parser.add_argument("--votes", type=int, default=10)
    args = parser.parse_args()
    state(cpu=True)
    quiet_libraries()
    reward = build(args.votes)
    # Two steps together: in one of them ours was first, in the other plain.
    plain, ours = (seconds.reshape(-1, 2).mean(axis=1) for seconds in lab_steps(args.votes, args.steps))
    ratios, step = ours / plain, float(np.median(ours))
    interval = bootstrap((ratios,), np.median, rng=0).confidence_interval
    console = Console(width=120)
    table = Table(title=f"{num_ranks()} rank(s); a step of the lab takes {step:.2f} s")
    for head in (
        "questions",
        "asked and voted, s",
        "Prism adds, ms",
        "ms a question",
        "of the lab's step",
        "of the paper's",
    ):
        table.add_column(head, justify="right")
    for n in args.questions:
        [written] = reward.judge.solver.sample(["<q>"], num_samples=n, params=SamplingParams(max_tokens=27), seed=n)
        asked, added = added_seconds(reward, [completion.text for completion in written], args.repeats)
        # A step asks as many questions as it has completions: the lab's 128, so other batches are scaled to it.
        share = f"{100 * added / (step * n / 128):.2f} %"
        paper = f"{100 * added / n * 2048 / PAPER_STEP_SECONDS:.4f} %"
        table.add_row(f"{n:,}", f"{asked:.2f}", f"{1e3 * added:.1f}", f"{1e3 * added / n:.3f}", share, paper)
    scaled = scaling([256, 1024, 4096, 16384, 65536])
    if is_main():
        console.print(
            f"{num_ranks()} rank(s), side by side: plain GRPOTrainer with a constant reward of equal cost "
            f"{np.median(plain):.3f} s a step, ours {step:.3f} s; median ratio over {len(ratios)} times two steps "
            f"{np.median(ratios):.4f}, 95 % bootstrap interval {interval.low:.4f} to {interval.high:.4f}"
        )
        console.print(table)
        console.print(scaled)


if __name__ == "__main__":
    main()
