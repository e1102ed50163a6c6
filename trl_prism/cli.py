"""The command `trl-prism`."""

import os
import sys
import warnings
from collections.abc import Sequence


COMMANDS = ("evaluate",)
USAGE = f"usage: trl-prism {{{','.join(COMMANDS)}}} [--config file.yaml] [--field value]; --help after a command"


def main(args: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code: 0, or 2 for input that cannot work."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
    words = list(sys.argv[1:] if args is None else args)
    if not words or words[0] in ("-h", "--help"):
        sys.stdout.write(USAGE + "\n")
        return 0 if words else 2
    command, *rest = words
    if command not in COMMANDS:
        sys.stderr.write(f"error: there is no command {command!r}\n{USAGE}\n")
        return 2
    from trl_prism.errors import PrismError

    try:
        if command == "evaluate":
            from trl_prism.evaluate.command import EvaluateConfig, run
            from trl_prism.recipe import parse_dataclass

            run(parse_dataclass(EvaluateConfig, rest, prog="trl-prism evaluate"))
    except PrismError as error:
        sys.stderr.write(f"\nerror: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
