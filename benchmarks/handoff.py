"""What of a phase's update survives the hand-over to the next, at several learning rates.

    python benchmarks/handoff.py

Real Solver phases on the lab's model, its weights first rounded to bfloat16 as those of real base models are: four
phases of ten updates each, handed over in float32, in bfloat16, and not at all (one phase of forty updates). The
optimizer starts anew in every phase, as in the loop. Shown is how far the weights have moved from the base, and which
share of the float32 hand-over's movement the bfloat16 one kept: the projection of one on the other.
"""

import argparse
import tempfile
from pathlib import Path

import torch
from datasets import Dataset
from rich.console import Console
from rich.table import Table
from trl import GRPOConfig

from prism_lab.domain import Lab
from trl_prism.console import quiet_libraries
from trl_prism.ports.models import load_model, load_tokenizer
from trl_prism.ports.ranks import state
from trl_prism.trainers import SolverTrainer
from trl_prism.trainers.solver import AnswerReward


BASE = str(Path(__file__).parents[1] / "prism_lab" / "weights" / "0")


def vector(path: str) -> torch.Tensor:
    """All weights of a model as one vector of 64-bit numbers."""
    model = load_model(path, dtype="float32")
    return torch.cat([parameter.detach().double().flatten() for parameter in model.parameters()])


def play(folder: Path, base: str, *, rate: float, phases: int, updates: int, dtype: str) -> torch.Tensor:
    """The weights after several phases."""
    lab, tokenizer = Lab(num_held_out=64), load_tokenizer(BASE)
    rows = [{"prompt": lab.solver_prompt(p.question), "answer": p.answer} for p in lab.held_out_problems()]
    start = base
    for number in range(phases):
        end = str(folder / f"phase-{number}")
        args = GRPOConfig(
            output_dir=end,
            learning_rate=rate,
            max_steps=updates,
            num_generations=8,
            per_device_train_batch_size=64,
            max_completion_length=22,
            lr_scheduler_type="constant",
            scale_rewards="none",
            loss_type="grpo",
            weight_decay=0.0,
            seed=number,
            bf16=False,
            use_cpu=True,
            disable_tqdm=True,
            report_to="none",
            save_strategy="no",
        )
        trainer = SolverTrainer(
            model=load_model(start, dtype="float32"),
            args=args,
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
            answer_reward=AnswerReward(lab),
            handoff_dtype=dtype,
        )
        trainer.train()
        trainer.save_model(end)
        start = end
    return vector(start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-6, 5e-6, 2e-5, 2e-4])
    parser.add_argument("--phases", type=int, default=4)
    parser.add_argument("--updates", type=int, default=10)
    args = parser.parse_args()
    state(cpu=True)
    quiet_libraries()
    table = Table(title=f"{args.phases} phases x {args.updates} updates")
    for head in ("learning rate", "moved, float32", "moved, bfloat16", "kept by bfloat16", "moved, one phase"):
        table.add_column(head, justify="right")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        base = str(folder / "base")
        load_model(BASE, dtype="bfloat16").save_pretrained(base)
        start = vector(base)
        for rate in args.rates:
            moved = {}
            for mode, phases, updates, dtype in (
                ("float32", args.phases, args.updates, "float32"),
                ("bfloat16", args.phases, args.updates, "bfloat16"),
                ("one", 1, args.phases * args.updates, "float32"),
            ):
                end = play(folder / mode / str(rate), base, rate=rate, phases=phases, updates=updates, dtype=dtype)
                moved[mode] = end - start
            whole = moved["float32"]
            kept = float(moved["bfloat16"] @ whole / (whole @ whole))
            table.add_row(
                f"{rate:.0e}",
                *(f"{float(moved[mode].norm()):.2e}" for mode in ("float32", "bfloat16")),
                f"{100 * kept:.0f} %",
                f"{float(moved['one'].norm()):.2e}",
            )
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
