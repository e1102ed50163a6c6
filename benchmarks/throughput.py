"""Tokens a second and GPU, and peak memory, of what a phase consists of: for a GPU node.

    python benchmarks/throughput.py --model Qwen/Qwen3-4B-Base --dtype bfloat16 --batch_size 8

Generated is by `generate` as the Questioner's pool and the votes are, scored a forward pass as for log-probabilities,
trained a forward and a backward pass with an AdamW update. Each is measured with warm-up and medians, for every
attention that can run here and every length. Without a GPU it runs the lab's model at short lengths: that shows that
it works, and nothing about speed.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import psutil
import torch
from rich.console import Console
from rich.table import Table
from transformers import GenerationConfig, PreTrainedModel

from trl_prism.console import quiet_libraries
from trl_prism.ports.attention import resolve_attention
from trl_prism.ports.models import load_model
from trl_prism.ports.ranks import state


LAB = str(Path(__file__).parents[1] / "prism_lab" / "weights" / "0")


def seconds(work: Callable[[], object], repeats: int) -> float:
    """The median time of some work, after a warm-up."""
    times = []
    for turn in range(repeats + 1):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        if turn:
            times.append(time.perf_counter() - start)
    return median(times)


def peak_gigabytes() -> float:
    """Most memory of the device since the last reset; without a GPU the process's own now."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 1e9
    return psutil.Process().memory_info().rss / 1e9


def measure(model: PreTrainedModel, *, length: int, batch_size: int, repeats: int) -> dict[str, tuple[float, float]]:
    """Tokens a second and gigabytes of each kind of work, at sequences of `length` tokens."""
    ids = torch.randint(3, model.config.vocab_size, (batch_size, length), device=model.device)
    half = length // 2

    def generate() -> None:
        config = GenerationConfig(max_new_tokens=half, min_new_tokens=half, do_sample=True, pad_token_id=0)
        with torch.inference_mode():
            model.generate(
                input_ids=ids[:, :half], attention_mask=torch.ones_like(ids[:, :half]), generation_config=config
            )

    def score() -> None:
        with torch.inference_mode():
            model(input_ids=ids).logits.log_softmax(-1)

    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0)

    def train() -> None:
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    found = {}
    for name, work, tokens in (
        ("generated", generate, batch_size * half),
        ("scored", score, batch_size * length),
        ("trained", train, batch_size * length),
    ):
        model.train(name == "trained")
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        taken = seconds(work, repeats)
        found[name] = (tokens / taken, peak_gigabytes())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=LAB)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--attention", nargs="+", default=["sdpa", "flash_attention_2", "eager"])
    parser.add_argument("--lengths", type=int, nargs="+", default=None, help="Tokens; 2,048 and 8,192 on a GPU.")
    parser.add_argument("--batch_size", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    state()
    quiet_libraries()
    gpu = torch.cuda.is_available()
    lengths = args.lengths or ([2048, 8192] if gpu else [32, 64])
    device = torch.cuda.get_device_name() if gpu else "not a GPU: this says nothing about speed"
    table = Table(title=f"{Path(args.model).name}, {args.dtype}, batch of {args.batch_size}; {device}")
    for head in (
        "attention",
        "tokens",
        *(f"{name}, tokens/s" for name in ("generated", "scored", "trained")),
        "peak GB",
    ):
        table.add_column(head, justify="left" if head == "attention" else "right")
    for asked in args.attention:
        found = resolve_attention(asked, dtype=args.dtype)
        if found.reason:
            table.add_row(asked, "-", "-", "-", "-", found.reason)
            continue
        model = load_model(args.model, dtype=args.dtype, attn_implementation=asked).to(state().device)
        for length in lengths:
            try:
                figures = measure(model, length=length, batch_size=args.batch_size, repeats=args.repeats)
            except torch.OutOfMemoryError:
                model.zero_grad()
                torch.cuda.empty_cache()
                table.add_row(asked, f"{length:,}", "-", "-", "-", "out of memory: smaller --batch_size")
                continue
            rates = (f"{figures[name][0]:,.0f}" for name in ("generated", "scored", "trained"))
            table.add_row(asked, f"{length:,}", *rates, f"{max(memory for _, memory in figures.values()):.2f}")
        del model
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
