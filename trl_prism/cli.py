"""The command `trl-prism`, and what every front shares: quiet start, one clear error, an exit code."""

import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence


COMMANDS = ("evaluate", "plan", "doctor", "preview", "report")
USAGE = f"usage: trl-prism {{{','.join(COMMANDS)}}} ...; --help after a command"


def guarded(action: Callable[[], object]) -> int:
    """Runs a front and returns its exit code.

    0, or 2 with one message for input that cannot work, 143 for a run that was told to stop, 130 for Ctrl-C.
    """
    # One thread per process: several share the cores, and more threads than cores make steps many times slower.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from trl_prism.ports.stopping import die_with_launcher

    die_with_launcher()
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
    from trl_prism.errors import PrismError, StopRequested, WorkError

    try:
        action()
    except PrismError as error:
        if isinstance(error, WorkError) and error.__cause__ is not None:  # a fault, no input
            traceback.print_exception(error.__cause__)
        sys.stderr.write(_said(error))
        return 2
    except StopRequested:
        sys.stderr.write("\nThe run was told to stop. All that was done is saved; the same command goes on.\n")
        return 128 + signal.SIGTERM
    except KeyboardInterrupt:
        sys.stderr.write("\nInterrupted. Finished stages and whole checkpoints are kept; the same command goes on.\n")
        return 128 + signal.SIGINT
    return 0


def _said(error: Exception) -> str:
    """The error as a rank says it: whole on the first one, in a line on the others, which mostly have the same."""
    rank = os.environ.get("RANK", "0")
    if rank == "0":
        return f"\nerror: {error}\n"
    first, *more = str(error).splitlines()
    return f"[rank {rank}] {first}{' [...]' if more else ''}\n"


def main(args: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    words = list(sys.argv[1:] if args is None else args)
    if not words or words[0] in ("-h", "--help"):
        sys.stdout.write(USAGE + "\n")
        return 0 if words else 2
    command, *rest = words
    if command not in COMMANDS:
        sys.stderr.write(f"error: there is no command {command!r}\n{USAGE}\n")
        return 2
    return guarded(lambda: _run(command, rest))


def _run(command: str, args: Sequence[str]) -> None:
    """Imports what the command needs, and no more."""
    if command == "evaluate":
        from trl_prism.evaluate.command import EvaluateConfig
        from trl_prism.evaluate.command import run as evaluate
        from trl_prism.ports.ranks import leave
        from trl_prism.recipe import parse_dataclass

        evaluate(parse_dataclass(EvaluateConfig, args, prog="trl-prism evaluate"))
        leave()
    elif command == "plan":
        from trl_prism.plan.command import run as plan

        plan(args)
    elif command == "doctor":
        from trl_prism.doctor import run as doctor

        doctor(args)
    elif command == "report":
        from trl_prism.report.command import run as report

        report(args)
    else:
        from trl_prism.preview import run as preview

        preview(args)


if __name__ == "__main__":
    sys.exit(main())
