"""R-Zero's BLEU-cluster share: ours against nltk + scikit-learn, side by side, with equal results.

    python benchmarks/bleu.py --questions gsm8k_test.jsonl --column question

Without a file the questions are drawn from a vocabulary of 2,000 words with Zipf's frequencies, 46 words long in the
mean, as GSM8K's are.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu
from rich.console import Console
from rich.table import Table
from sklearn.cluster import AgglomerativeClustering

from trl_prism.core.bleu import cluster_share


def plain_share(questions: Sequence[str]) -> np.ndarray:
    """The published way: nltk for every pair, scikit-learn for the clusters."""
    n = len(questions)
    tokens = [question.split() for question in questions]
    smoothing = SmoothingFunction().method1
    distances = np.zeros((n, n))
    for i in range(n):
        for j in range(i + 1, n):
            bleu = sentence_bleu([tokens[j]], tokens[i], smoothing_function=smoothing)
            distances[i, j] = distances[j, i] = 1 - bleu
    clustering = AgglomerativeClustering(
        n_clusters=None, distance_threshold=0.5, metric="precomputed", linkage="average"
    )
    labels = clustering.fit_predict(distances)
    return np.bincount(labels)[labels] / n


def drawn(n: int) -> list[str]:
    rng = np.random.default_rng(0)
    frequency = 1 / np.arange(1, 2001)
    lengths = rng.normal(46, 18, size=n).clip(12, 120).astype(int)
    draws = [rng.choice(2000, size=length, p=frequency / frequency.sum()) for length in lengths]
    return [" ".join(f"w{word}" for word in words) for words in draws]


def timed(
    function: Callable[[Sequence[str]], np.ndarray], questions: Sequence[str], repeats: int
) -> tuple[float, np.ndarray]:
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = function(questions)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=Path, help="JSONL file with real questions.")
    parser.add_argument("--column", default="question")
    parser.add_argument("--sizes", type=int, nargs="+", default=[128, 256, 512, 1024, 2048])
    parser.add_argument("--largest_plain", type=int, default=512, help="The plain way runs up to this size.")
    args = parser.parse_args()
    if args.questions:
        lines = args.questions.read_text(encoding="utf-8").splitlines()[: max(args.sizes)]
        questions = [json.loads(line)[args.column] for line in lines]
    else:
        questions = drawn(max(args.sizes))
    cluster_share(questions[:64])  # warm-up
    plain_share(questions[:16])
    table = Table(title=f"mean of {np.mean([len(q.split()) for q in questions]):.0f} words a question")
    for head in ("questions", "plain, s", "ours, s", "ratio", "equal"):
        table.add_column(head, justify="right")
    for size in args.sizes:
        batch = questions[:size]
        ours, mine = timed(cluster_share, batch, 3)
        row = [str(len(batch)), "-", f"{ours:.2f}", "-", "-"]
        if size <= args.largest_plain:
            plain, theirs = timed(plain_share, batch, 1)
            row[1], row[3], row[4] = f"{plain:.1f}", f"{plain / ours:.0f}", "yes" if (mine == theirs).all() else "NO"
        table.add_row(*row)
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
