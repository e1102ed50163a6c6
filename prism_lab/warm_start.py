"""Makes the lab's base models: supervised training from nothing, about four minutes on one core.

    python -m prism_lab.warm_start --seed 0 --output_dir prism_lab/weights/0

The data are clean: every answer is right, and no question is among those that are kept for measuring. Most of the
training shows answers written out step by step, so that the model learns to calculate. Its last part shows the
frequent skills written out, and most answers of the others given at once. What comes out can reason everywhere but
seldom starts to outside of what it is used to: there its greedy answer is immediate, and its votes know better.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from random import Random

from torch.utils.data import IterableDataset
from transformers import DataCollatorForSeq2Seq, PreTrainedTokenizerFast, Trainer, TrainingArguments

from prism_lab.model import ANSWER, EOS, QUESTION, build_model, build_tokenizer
from prism_lab.skills import NUM_KNOWN, SKILLS, ask, write_answer


BATCH_SIZE = 48
NUM_STEPS = 3200
FRAC_QUESTIONS = 0.2
# How many answers are written out: in the first three quarters, and in the last one of known and of other skills.
FRAC_WRITTEN_OUT, FRAC_KNOWN, FRAC_OTHER = 0.6, 0.97, 0.35


class Documents(IterableDataset):
    """Questions after the question mark, and answered questions of which only the answer is learned."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, *, seed: int, num_steps: int = NUM_STEPS):
        self.tokenizer = tokenizer
        self.seed = seed
        self.num_documents = num_steps * BATCH_SIZE

    def __iter__(self) -> Iterator[dict[str, list[int]]]:
        rng = Random(f"warm start {self.seed}")
        for i in range(self.num_documents):
            if rng.random() < FRAC_QUESTIONS:
                yield self._document(QUESTION, f"{ask(rng).question} {EOS}")
            else:
                problem = ask(rng, rng.choice(SKILLS))
                frac = FRAC_WRITTEN_OUT
                if i >= 0.75 * self.num_documents:
                    frac = FRAC_KNOWN if problem.skill in SKILLS[:NUM_KNOWN] else FRAC_OTHER
                answer = write_answer(problem, written_out=rng.random() < frac)
                yield self._document(f"{problem.question} {ANSWER}", f"{answer} {EOS}")

    def _document(self, prompt: str, completion: str) -> dict[str, list[int]]:
        head, tail = (self.tokenizer.convert_tokens_to_ids(text.split()) for text in (prompt, completion))
        ids = head + tail
        return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": [-100] * len(head) + tail}


def warm_start(output_dir: str, *, seed: int, num_steps: int = NUM_STEPS) -> None:
    """Trains one base model and writes it and its tokenizer to a folder that loads like any model."""
    tokenizer = build_tokenizer()
    model = build_model(tokenizer, seed=seed)
    args = TrainingArguments(
        output_dir=output_dir,
        max_steps=num_steps,
        per_device_train_batch_size=BATCH_SIZE,
        learning_rate=3e-3,
        lr_scheduler_type="cosine_with_min_lr",
        lr_scheduler_kwargs={"min_lr_rate": 0.02},
        warmup_steps=200,
        weight_decay=0.01,
        adam_beta2=0.98,
        max_grad_norm=1.0,
        seed=seed,
        logging_steps=200,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        dataloader_num_workers=0,
    )
    tokenizer.padding_side = "right"
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=Documents(tokenizer, seed=seed, num_steps=num_steps),
        data_collator=DataCollatorForSeq2Seq(tokenizer),
    )
    trainer.train()
    model.save_pretrained(output_dir)
    build_tokenizer().save_pretrained(output_dir)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output_dir", default=str(Path(__file__).parent / "weights" / "0"))
    parser.add_argument("--num_steps", type=int, default=NUM_STEPS)
    args = parser.parse_args()
    warm_start(args.output_dir, seed=args.seed, num_steps=args.num_steps)


if __name__ == "__main__":
    main()
