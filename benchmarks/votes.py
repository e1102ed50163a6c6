"""Votes on real answers: ours against Math-Verify on every pair in process, with and without poison.

    python benchmarks/votes.py --data FOLDER      # holds math500.jsonl, minerva_math.jsonl, olympiadbench.jsonl, ...

Each question has a real gold answer. Its ten votes are that answer in one of several spellings, the answer of another
question of the same set, the answer slightly off, or nothing. By construction it is known which votes are the same.
The plain way is measured on a sample, and its time for all questions extrapolated from the time per question.
"""

import argparse
import json
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

from rich.console import Console
from rich.table import Table

from trl_prism.answers import equivalent, vote_all
from trl_prism.core.extraction import last_box
from trl_prism.core.sameness.canonical import canonical
from trl_prism.core.sameness.forms import Number
from trl_prism.ports.verifier import Verifier


POISON = (
    "9^{9^9}", "10^{10000000}", "99999999!", r"\binom{10^9}{10^8}", "(x+y+z)^{200}", r"\sum_{k=1}^{10^9} k^{-2}",
    r"\int_0^\infty e^{-x^x} dx", "7" * 5000, "{" * 3000, r"\sqrt{" * 300 + "2" + "}" * 300, "x" * 100_000, "(9!)!!",
)  # fmt: skip


def golds(folder: Path) -> dict[str, list[str]]:
    readers: dict[str, Callable[[dict], list[str]]] = {
        "math500": lambda row: [row["answer"]],
        "minerva_math": lambda row: [last_box(row["solution"]) or ""],
        "olympiadbench": lambda row: row["final_answer"],
        "gaokao2023en": lambda row: [row["answer"]],
        "gsm8k_test": lambda row: [row["answer"].split("####")[1]],
    }
    found: dict[str, list[str]] = {}
    for name, read in readers.items():
        rows = [json.loads(line) for line in (folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
        answers = [str(answer).strip().strip("$").strip() for row in rows for answer in read(row)]
        # A gold that holds a dollar inside is several formulas in a sentence; the plain way cannot read it in a box.
        found[name] = [answer for answer in answers if answer and "$" not in answer.replace("\\$", "")]
    return found


def respelled(gold: str, rng: random.Random) -> str:
    """The same answer as another sample of a model would write it."""
    form = canonical(gold)
    ways = [gold, gold, gold, gold.replace("\\frac", "\\dfrac"), gold.replace("+", " + "), f" {gold} "]
    if isinstance(form, Number) and form.value.denominator not in (1,):
        ways.append(f"\\frac{{{form.value.numerator}}}{{{form.value.denominator}}}")
    if isinstance(form, Number) and not form.unit and re.fullmatch(r"-?\d+", gold):
        ways += [f"{gold}.0", f"{int(gold):,}", f"x = {gold}"]
    return rng.choice(ways)


def questions(folder: Path, n: int, seed: int) -> list[list[tuple[str | None, str]]]:
    """`n` questions of ten votes: the answer as written, and the gold whose meaning it has."""
    rng = random.Random(seed)
    sets = golds(folder)
    made = []
    for _ in range(n):
        pool = sets[rng.choice(sorted(sets))]
        gold = rng.choice(pool)
        others = [rng.choice(pool) for _ in range(2)]
        votes: list[tuple[str | None, str]] = []
        for _ in range(10):
            draw = rng.random()
            if draw < 0.55:
                votes.append((respelled(gold, rng), gold))
            elif draw < 0.8:
                other = rng.choice(others)
                votes.append((respelled(other, rng), other))
            elif draw < 0.9 and re.fullmatch(r"-?\d+", gold):
                off = str(int(gold) + rng.choice([-2, -1, 1, 2]))
                votes.append((off, off))
            else:
                votes.append((None, ""))
        made.append(votes)
    return made


def plain_verdicts(votes: list[str | None]) -> dict[tuple[str, str], bool]:
    """Math-Verify on every pair, as its documentation shows it."""
    from math_verify import parse, verify

    given = [answer for answer in votes if answer is not None]
    parsed = [parse(f"\\boxed{{{answer}}}") for answer in given]
    pairs = {}
    for (a, x), (b, y) in combinations(zip(given, parsed, strict=True), 2):
        pairs[a, b] = bool(verify(x, y))
    return pairs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--questions", type=int, default=2048)
    parser.add_argument("--sample", type=int, default=200, help="Questions that the plain way is measured on.")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    console = Console(width=110)

    batch = questions(args.data, args.questions, seed=0)
    texts = [[answer for answer, _ in votes] for votes in batch]
    rng = random.Random(1)
    poisoned = [[rng.choice(POISON) if a is not None and rng.random() < 0.01 else a for a in row] for row in texts]

    def ours(rows: list[list[str | None]]) -> tuple[float, Counter[str]]:
        """Median seconds with a fresh cache, workers warm."""
        from trl_prism import answers
        from trl_prism.core.sameness import numeric

        seconds = []
        for _ in range(args.repeats):
            verifier = Verifier()
            verifier.equal("x+x", "2x")
            answers._canonical.cache_clear()
            numeric._value.cache_clear()
            start = time.perf_counter()
            vote_all(rows, verifier=verifier)
            seconds.append(time.perf_counter() - start)
            causes = verifier.causes
            verifier.close()
        return sorted(seconds)[len(seconds) // 2], causes

    sample = batch[: args.sample]
    plain_verdicts(texts[0])  # warm-up
    start = time.perf_counter()
    plain = [plain_verdicts([answer for answer, _ in votes]) for votes in sample]
    plain_seconds = (time.perf_counter() - start) / len(sample) * len(batch)

    clean_seconds, _ = ours(texts)
    poison_seconds, causes = ours(poisoned)

    table = Table(title=f"{len(batch)} questions x 10 votes")
    for head in ("", "seconds", "votes a second", "ratio"):
        table.add_column(head, justify="right" if head else "left")
    total = 10 * len(batch)
    table.add_row(f"plain, from {len(sample)} questions", f"{plain_seconds:.1f}", f"{total / plain_seconds:.0f}", "1")
    table.add_row(
        "ours", f"{clean_seconds:.1f}", f"{total / clean_seconds:.0f}", f"{plain_seconds / clean_seconds:.0f}"
    )
    table.add_row(
        "ours, 1 % poison",
        f"{poison_seconds:.1f}",
        f"{total / poison_seconds:.0f}",
        f"{poison_seconds / clean_seconds:.2f} x clean",
    )
    console.print(table)
    console.print("poison ended by:", dict(causes))

    meaning = [dict(votes) for votes in sample]
    verifier = Verifier()
    right = Counter[str]()
    worse = []
    for pairs, means in zip(plain, meaning, strict=True):
        for (a, b), verdict in pairs.items():
            truth = equivalent(means[a], means[b], verifier=verifier) if means[a] != means[b] else True
            mine = equivalent(a, b, verifier=verifier)
            right[
                f"plain {'right' if verdict == truth else 'wrong'}, ours {'right' if mine == truth else 'wrong'}"
            ] += 1
            if verdict == truth and mine != truth:
                worse.append((a, b, truth))
    console.print("verdicts on pairs:", dict(right))
    console.print("plain right and ours wrong:", worse[:20])
    verifier.close()


if __name__ == "__main__":
    main()
