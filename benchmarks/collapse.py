"""Does the curriculum collapse, and what prevents it? Five arms of self-play in the lab, paired by seed.

    python benchmarks/collapse.py sweep     # learning rates, on seeds and problems that the table does not use
    python benchmarks/collapse.py run       # the table's runs; goes on where it was stopped
    python benchmarks/collapse.py table     # the table from the runs that are there

Only the metrics of a finished run are kept for good, under `benchmarks/results/collapse`; models and pools stay in
`runs/collapse`.

The first four arms are the 2 x 2 of reward (`prism` or `gate`, that is with or without the coverage bonus) and of
what a round's Questioner starts from (`solver` or `questioner`); all else is equal. The fifth is R-Zero as published:
its own reward, its own band, its Questioner continued. Seed s starts from the warm start `s mod 2` in every arm.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy import stats


ROOT = Path(__file__).parents[1]
RUNS = ROOT / "runs" / "collapse"
RESULTS = ROOT / "benchmarks" / "results" / "collapse"
RECIPE = ROOT / "recipes" / "lab" / "prism.yaml"

ARMS = {
    "prism, from solver": ["--reward", "prism", "--questioner_init", "solver"],
    "prism, continued": ["--reward", "prism", "--questioner_init", "questioner"],
    "gate, from solver": ["--reward", "gate", "--questioner_init", "solver"],
    "gate, continued": ["--reward", "gate", "--questioner_init", "questioner"],
    "rzero, continued": [
        *("--reward", "rzero", "--questioner_init", "questioner"),
        *("--curriculum_band", "0.3", "0.8"),
    ],
}
BASELINE = "rzero, continued"
COLUMNS = {
    "diversity/semantic": "semantic diversity",
    "diversity/skill_entropy": "skill entropy",
    "coverage/entropy": "coverage entropy",
    "coverage/cumulative_entropy": "cumulative entropy",
    "pool/num_distinct": "distinct",
    "labels/accuracy": "label accuracy",
    "labels/num_right": "right labels",
    "solver/accuracy": "greedy accuracy",
    "solver/mean_at_k": "mean@10",
    "solver/maj_at_k": "maj@10",
}
# Equal in all arms: every pool is cut to the same number of distinct questions, as far as it holds as many.
EQUAL = ["--max_curriculum_size", "200", "--min_curriculum_size", "8"]
NUM_ROUNDS = 5
TABLE_PROBLEMS, SWEEP_PROBLEMS = 1, 2


def command(
    arm: str, seed: int, output_dir: Path, *, problems: int, num_rounds: int, rates: tuple[str, str]
) -> list[str]:
    questioner, solver = rates
    return [
        *(sys.executable, str(ROOT / "recipes" / "prism.py"), "--config", str(RECIPE), *ARMS[arm], *EQUAL),
        *("--model_name_or_path", str(ROOT / "prism_lab" / "weights" / str(seed % 2))),
        *("--domain_kwargs", json.dumps({"held_out_seed": problems, "num_held_out": 320})),
        *("--seed", str(seed), "--num_rounds", str(num_rounds), "--output_dir", str(output_dir)),
        *("--questioner.learning_rate", questioner, "--solver.learning_rate", solver),
    ]


def kept(folder: Path) -> Path:
    """Where the metrics of a run are kept: beside the benchmark, under the run's name."""
    return RESULTS / folder.relative_to(RUNS).with_suffix(".jsonl")


def read(folder: Path) -> list[dict]:
    for path in (kept(folder), folder / "metrics.jsonl"):
        if path.exists():
            return [json.loads(line) for line in path.read_text().splitlines()]
    return []


def play(folder: Path, argv: list[str], num_rounds: int) -> None:
    """Runs one arm unless it is finished. What a stopped run left is put aside, not mixed with the new one."""
    if kept(folder).exists():
        return
    if folder.exists():
        number = sum(1 for _ in folder.parent.glob(folder.name + ".stopped-*"))
        folder.rename(folder.with_name(f"{folder.name}.stopped-{number}"))
    folder.parent.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    with (folder.parent / f"{folder.name}.log").open("w") as log:
        done = subprocess.run(argv, stdout=log, stderr=subprocess.STDOUT, env=environment, check=False)
    if done.returncode == 2:
        # A curriculum that became too small to train on ends a run; that is a result, and its last round counts on.
        reason = (folder.parent / f"{folder.name}.log").read_text().rpartition("error: ")[2].splitlines()[0]
        sys.stderr.write(f"{folder.name} ended after round {len(read(folder)) - 1} of {num_rounds}: {reason}\n")
    elif done.returncode:
        sys.stderr.write(f"{folder.name} was stopped (exit code {done.returncode}) and counts for nothing\n")
        return
    kept(folder).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(folder / "metrics.jsonl", kept(folder))


def play_all(jobs: dict[Path, list[str]], num_rounds: int, workers: int) -> None:
    with ThreadPoolExecutor(workers) as pool:
        for future in [pool.submit(play, folder, argv, num_rounds) for folder, argv in jobs.items()]:
            future.result()


def figures(rows: list[dict], column: str) -> np.ndarray:
    return np.array([np.nan if row[column] is None else row[column] for row in rows], dtype=float)


def interval(values: np.ndarray) -> tuple[float, float]:
    """Mean and half width of the 95 % t interval."""
    if len(values) < 2:
        return float(values.mean()), float("nan")
    return float(values.mean()), float(stats.sem(values) * stats.t.ppf(0.975, len(values) - 1))


def show(values: np.ndarray, digits: int) -> str:
    mean, half = interval(values)
    return f"{mean:+.{digits}f} ± {half:.{digits}f}"


def table(root: Path, *, seeds: list[int], num_rounds: int) -> None:
    console = Console(width=150)
    last = {}
    for arm in ARMS:
        runs = [read(root / name(arm, seed)) for seed in seeds]
        if all(runs):
            last[arm] = [(rows[0], rows[-1]) for rows in runs]
    short = {
        name(arm, seed): len(rows) - 1
        for arm in last
        for seed in seeds
        for rows in [read(RUNS / name(arm, seed))]
        if len(rows) <= num_rounds
    }
    console.print(f"ended early, their last round counts: {short or 'none'}")
    for column, title in COLUMNS.items():
        digits = 0 if "num" in column else 3
        shown = Table(title=f"{title} after round {num_rounds}, {len(seeds)} seeds", title_justify="left")
        for head in ("arm", "base", "last round", "minus base", "minus rzero", "ratio to base", "per seed"):
            shown.add_column(head, justify="left" if head == "arm" else "right", no_wrap=True)
        for arm, pairs in last.items():
            base, end = (figures([pair[i] for pair in pairs], column) for i in (0, 1))
            versus = ""
            if BASELINE in last and arm != BASELINE:
                versus = show(end - figures([pair[1] for pair in last[BASELINE]], column), digits)
            shown.add_row(
                arm,
                f"{base.mean():.{digits}f}",
                f"{end.mean():.{digits}f}",
                show(end - base, digits),
                versus,
                f"{end.mean() / base.mean():.2f}",
                " ".join(f"{x:.{min(digits, 2)}f}" for x in end),
            )
        console.print(shown)


def curves(root: Path, *, seeds: list[int], num_rounds: int, picture: Path) -> None:
    """Diversity and accuracy over rounds, one line per arm with its range over seeds."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    styles = dict(
        zip(
            ARMS,
            (("#0072B2", "-"), ("#56B4E9", "--"), ("#E69F00", "-"), ("#CC79A7", "--"), ("#D55E00", "-")),
            strict=True,
        )
    )
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.8))
    for axis, column in zip(axes, ("diversity/semantic", "diversity/skill_entropy", "solver/accuracy"), strict=True):
        for arm, (colour, line) in styles.items():
            runs = [read(root / name(arm, seed)) for seed in seeds]
            # A run that ended early stays where it ended, as in the table.
            runs = [rows + rows[-1:] * (num_rounds + 1 - len(rows)) for rows in runs if rows]
            if runs:
                values = np.array([[row[column] for row in rows] for rows in runs])
                x = np.arange(values.shape[1])
                axis.plot(x, values.mean(axis=0), line, color=colour, label=arm, marker="o", markersize=3)
                axis.fill_between(x, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.12, linewidth=0)
        axis.set_title(COLUMNS[column])
        axis.set_xlabel("round")
        axis.set_ylim(0, 1)
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=8, loc="lower left")
    figure.tight_layout()
    figure.savefig(picture, dpi=130)


def name(arm: str, seed: int, rates: tuple[str, str] | None = None) -> str:
    return arm.replace(", ", "-").replace(" ", "-") + f"-seed{seed}" + (f"-q{rates[0]}-s{rates[1]}" if rates else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["sweep", "run", "table"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--sweep_seeds", type=int, nargs="+", default=[100])
    parser.add_argument("--sweep_rates", nargs="+", default=["1e-3,2e-4", "2e-3,2e-4", "1e-3,4e-4"])
    parser.add_argument("--sweep_rounds", type=int, default=3)
    parser.add_argument("--rates", nargs=2, default=["1e-3", "2e-4"], help="Questioner's and Solver's, in the table.")
    parser.add_argument("--num_rounds", type=int, default=NUM_ROUNDS)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--picture", type=Path)
    args = parser.parse_args()

    if args.what == "sweep":
        grid = [(pair.split(",")[0], pair.split(",")[1]) for pair in args.sweep_rates]
        jobs = {
            RUNS / "sweep" / name(arm, seed, rates): command(
                arm,
                seed,
                RUNS / "sweep" / name(arm, seed, rates),
                problems=SWEEP_PROBLEMS,
                num_rounds=args.sweep_rounds,
                rates=rates,
            )
            for rates, seed, arm in product(grid, args.sweep_seeds, ARMS)
        }
        play_all(jobs, args.sweep_rounds, args.workers)
        shown = Table(title=f"greedy accuracy / semantic diversity after round {args.sweep_rounds}, sweep problems")
        shown.add_column("arm")
        for rates in grid:
            shown.add_column(f"Q {rates[0]}\nS {rates[1]}", justify="right")
        for arm in ARMS:
            cells = []
            for rates in grid:
                runs = [read(RUNS / "sweep" / name(arm, seed, rates))[-1] for seed in args.sweep_seeds]
                accuracy, diversity = (
                    np.mean([run[key] for run in runs]) for key in ("solver/accuracy", "diversity/semantic")
                )
                cells.append(f"{accuracy:.3f} / {diversity:.2f}")
            shown.add_row(arm, *cells)
        Console(width=150).print(shown)
        return
    if args.what == "run":
        rates = (args.rates[0], args.rates[1])
        jobs = {
            RUNS / name(arm, seed): command(
                arm,
                seed,
                RUNS / name(arm, seed),
                problems=TABLE_PROBLEMS,
                num_rounds=args.num_rounds,
                rates=rates,
            )
            for seed, arm in product(args.seeds, ARMS)
        }
        play_all(jobs, args.num_rounds, args.workers)
    table(RUNS, seeds=args.seeds, num_rounds=args.num_rounds)
    if args.picture:
        curves(RUNS, seeds=args.seeds, num_rounds=args.num_rounds, picture=args.picture)


if __name__ == "__main__":
    main()
