"""The Questioner's reward on a fixed batch, on as many ranks as it is launched with: `batch.py OUT_FOLDER`.

Every rank writes `rank-R.json`: how many ranks there are and of what kind, all rewards, the visits, and what a spread
draw with fewer chunks than ranks gives.
"""

import hashlib
import json
import sys
from pathlib import Path

from prism_lab.domain import Lab
from trl_prism.core.coverage import VisitMemory
from trl_prism.core.partition import Partition
from trl_prism.ports.embedders import TfidfEmbedder
from trl_prism.ports.models import load_frozen, load_tokenizer
from trl_prism.ports.ranks import leave, num_ranks, rank, state
from trl_prism.ports.samplers import LogprobScorer, SamplingParams, SpreadSampler, TransformersSampler
from trl_prism.questions import PlausibilityGate, QuestionJudge, QuestionReward, RewardSettings


BASE = str(Path(__file__).parents[3] / "prism_lab" / "weights" / "0")


def main(folder: Path) -> None:
    state(cpu=True)
    lab = Lab(num_held_out=30)
    tokenizer = load_tokenizer(BASE)
    model = load_frozen(BASE)
    sampler = SpreadSampler(TransformersSampler(model, tokenizer, batch_size=16), tokenizer, batch_size=16)
    embedder = TfidfEmbedder(lab.reference_questions())
    reference = embedder.embed(lab.reference_questions())
    partition = Partition.fit(reference, 16, embedder=embedder.fingerprint, corpus_hash="", seed=0)
    [own] = sampler.sample(["<q>"], num_samples=50, params=SamplingParams(max_tokens=28), seed=3)
    gate = PlausibilityGate.calibrate(
        LogprobScorer(model, tokenizer, batch_size=16), "<q>", [c.text for c in own], quantile=0.05
    )
    reward = QuestionReward(
        judge=QuestionJudge(
            domain=lab,
            solver=sampler,
            params=SamplingParams(max_tokens=24),
            tokenizer=tokenizer,
            max_prompt_length=40,
            plausibility=gate,
        ),
        embedder=embedder,
        partition=partition,
        memory=VisitMemory(16, decay=0.9),
        settings=RewardSettings(),
        num_votes=5,
        seed=0,
    )
    # 24 completions in two batches: real questions, and one that is none.
    completions = [*(problem.question for problem in lab.held_out_problems()[:23]), "apples 7 fence"]
    rewards = []
    for batch in (completions[:12], completions[12:]):
        size = len(batch) // num_ranks()
        rewards.append(reward(completions=batch[rank() * size : (rank() + 1) * size]))
    [few] = sampler.sample(["<q>"], num_samples=3, params=SamplingParams(max_tokens=28), seed=4)
    result = {
        "num_processes": num_ranks(),
        "distributed_type": state().distributed_type.value,
        "rewards": rewards,
        "visits": reward.memory.visits.tolist(),
        "centroids": hashlib.sha256(partition.centroids.tobytes()).hexdigest(),
        "thresholds": gate.thresholds,
        "few": [completion.text for completion in few],
    }
    (folder / f"rank-{rank()}.json").write_text(json.dumps(result))
    leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
