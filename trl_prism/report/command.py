"""`trl-prism report RUN_DIR [RUN_DIR ...]`: one page that shows what the runs did."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from trl_prism.console import say
from trl_prism.errors import PrismError
from trl_prism.report.page import write
from trl_prism.report.reading import read_run


def run(args: Sequence[str]) -> Path:
    """Reads the runs, writes the page and says where it is."""
    parser = argparse.ArgumentParser(
        prog="trl-prism report",
        description="One self-contained page, and its pictures as PNG, from the folders of one or several runs. Also "
        "while a run goes on.",
    )
    parser.add_argument("runs", nargs="+", metavar="RUN_DIR", help="output_dir of a run; several are compared")
    parser.add_argument(
        "--output_dir", help="where index.html goes; by default RUN_DIR/report, of several runs ./report"
    )
    options = parser.parse_args(list(args))
    folders = [Path(folder) for folder in options.runs]
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise PrismError("A run is named twice; name each one once.")
    found = [read_run(folder) for folder in folders]
    output = (
        Path(options.output_dir) if options.output_dir else (folders[0] if len(folders) == 1 else Path()) / "report"
    )
    page = write(found, output)
    for each in found:
        for note in each.notes:
            say(f"{each.path}: {note}")
    say(f"The report is {page}.")
    return page
