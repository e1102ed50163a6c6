"""Two phases of the Solver with a hand-over between them: `handoff.py OUT_FOLDER DTYPE [LEARNING_RATE]`.

The first phase trains with so small a rate that bfloat16 would lose the update, the second with a rate of 0: it must
end with exactly the weights that the first one reached.
"""

import json
import sys
from pathlib import Path

from datasets import Dataset

from prism_lab.domain import Lab
from tests.integration.conftest import small_settings
from trl_prism.ports.models import load_model, load_tokenizer
from trl_prism.ports.ranks import is_main, num_ranks, state
from trl_prism.recipe import config_from_mapping
from trl_prism.trainers import SolverTrainer
from trl_prism.trainers.solver import AnswerReward


BASE = str(Path(__file__).parents[3] / "prism_lab" / "weights" / "0")


def main(folder: Path, dtype: str, rate: str = "1e-6") -> None:
    state(cpu=True)
    lab = Lab(num_held_out=16)
    rows = [{"prompt": lab.solver_prompt(p.question), "answer": p.answer} for p in lab.held_out_problems()]
    start = BASE
    for number, learning_rate in enumerate((float(rate), 0.0)):
        settings = {"max_steps": 3, "prompts_per_step": 4, "learning_rate": learning_rate, "weight_decay": 0.0}
        config = config_from_mapping(small_settings(folder / "run", bf16=True, solver=settings))
        end = str(folder / f"phase-{number}")
        trainer = SolverTrainer(
            model=load_model(start, dtype="float32"),
            args=config.role_config("solver", output_dir=end, seed=0, num_ranks=num_ranks()),
            train_dataset=Dataset.from_list(rows),
            processing_class=load_tokenizer(BASE),
            answer_reward=AnswerReward(lab),
            handoff_dtype=dtype,
            handoff_start=start,
        )
        trainer.train()
        trainer.save_model(end)
        start = end
    if is_main():
        kind = trainer.accelerator.distributed_type.value
        (folder / "kind.json").write_text(json.dumps({"num_processes": num_ranks(), "distributed_type": kind}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
