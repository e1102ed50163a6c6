"""What a person sees in the terminal: progress per phase, a line per round, a table at the end."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from tqdm.auto import tqdm
from transformers import ProgressCallback
from transformers.utils import logging as transformers_logging

from trl_prism.ports.ranks import is_main


class PhaseProgress(ProgressCallback):
    """transformers' progress bar with a name; the logs go to the phase's files instead of between the bars."""

    def __init__(self, title: str):
        super().__init__()
        self.title = title

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        super().on_train_begin(args, state, control, **kwargs)
        if self.training_bar is not None:
            self.training_bar.set_description(self.title)
            self.training_bar.unit = "update"
            self.training_bar.refresh()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if self.training_bar is not None and logs and "reward" in logs:
            self.training_bar.set_postfix(reward=f"{logs['reward']:.3f}", refresh=False)


@contextmanager
def progress(title: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """A progress bar with the time left; yields the function that advances it."""
    with tqdm(total=total, desc=title, unit=unit, disable=not is_main(), leave=True) as bar:
        yield lambda n: bar.update(n) and None


COLUMNS = (
    ("round", "round", "d"),
    ("coverage\nentropy", "coverage/entropy", ".2f"),
    ("semantic\ndiversity", "diversity/semantic", ".2f"),
    ("skill\nentropy", "diversity/skill_entropy", ".2f"),
    ("distinct\nquestions", "pool/num_distinct", "d"),
    ("kept", "pool/num_kept", "d"),
    ("agree-\nment", "questioner/mean_agreement", ".2f"),
    ("label\naccuracy", "labels/accuracy", ".2f"),
    ("Solver\naccuracy", "solver/accuracy", ".3f"),
    ("mean@k", "solver/mean_at_k", ".3f"),
    ("maj@k", "solver/maj_at_k", ".3f"),
    ("minutes", "seconds", "min"),
)


def round_line(row: dict[str, Any], num_rounds: int) -> str:
    """One readable line about a round."""
    name = "base model" if row["round"] == 0 else f"round {row['round']} of {num_rounds}"
    parts = [
        f"{row['pool/num_kept']} of {row['pool/num_candidates']} questions kept ({row['pool/num_distinct']} distinct)",
        f"semantic diversity {row['diversity/semantic']:.2f}",
    ]
    if row["labels/accuracy"] is not None:
        parts.append(f"label accuracy {row['labels/accuracy']:.2f}")
    if row["solver/accuracy"] is not None:
        parts.append(
            f"Solver accuracy {row['solver/accuracy']:.3f} greedy, {cell(row['solver/maj_at_k'], '.3f')} voted"
        )
    return f"{name}: {', '.join(parts)}; {row['seconds']:.0f} s"


def rounds_table(rows: Sequence[dict[str, Any]]) -> Table:
    """The table over rounds. Columns that no round knows are left out."""
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, header_style="bold")
    shown = [column for column in COLUMNS if any(row.get(column[1]) is not None for row in rows)]
    for title, _, _ in shown:
        table.add_column(title, justify="right")
    for row in rows:
        table.add_row(*("base" if key == "round" and row[key] == 0 else cell(row.get(key), f) for _, key, f in shown))
    return table


def plain_table(*titles: str, right: int | None = None) -> Table:
    """An empty table in the house's style: the first column to the left, the next `right` ones (all) to the right."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, header_style="bold")
    for number, title in enumerate(titles):
        aligned = number > 0 and (right is None or number <= right)
        table.add_column(title, justify="right" if aligned else "left", overflow="fold")
    return table


def cell(value: Any, form: str) -> str:
    if value is None:
        return "-"
    return f"{value / 60:.1f}" if form == "min" else format(value, form)


def quiet_libraries() -> None:
    """Leaves the terminal to our bars: no bars of transformers and datasets for every file that is read or written."""
    import datasets

    transformers_logging.disable_progress_bar()
    datasets.disable_progress_bars()


def say(message: Any, *, width: int | None = None) -> None:
    """Shows text or a table, on the main process only; text is wrapped where a width is given."""
    if is_main():
        console = Console(highlight=False, width=width or (None if sys.stdout.isatty() else 120))
        # No markup: text may come from a model or a path, and [x] is not a style.
        console.print(message, soft_wrap=isinstance(message, str) and width is None, markup=False)
