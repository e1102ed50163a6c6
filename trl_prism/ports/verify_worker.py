"""The process in which Math-Verify runs: reads pairs of formulas from its standard input, writes verdicts.

Run as `python -m trl_prism.ports.verify_worker MEGABYTES SECONDS`. One JSON line in, one JSON line out: `[a, b]` gives
`[verdict, seconds]`. The verdict is `true`, `false`, or a text that names what went wrong; the seconds are those of
processor time. A pair that takes more than SECONDS of them ends the process by SIGPROF: wall time would give other
verdicts on a busy machine than on an idle one. It never outlives its parent, never takes more memory than it was
given, and whatever a formula does to it is the parent's to see and end: see [`trl_prism.ports.verifier`][].
"""

import ctypes
import json
import logging
import os
import resource
import signal
import sys
import time


def confine(megabytes: int) -> None:
    """Bounds this process: dies with its parent, address space limited, interrupts left to the parent."""
    pr_set_pdeathsig = 1
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
        if os.getppid() != parent:  # the parent died before the request was made
            os._exit(1)
    limit = megabytes * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Ctrl-C reaches the whole terminal group; the parent closes our input, and that is the end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def verdict(a: str, b: str) -> bool:
    """Whether Math-Verify accepts `b` for the gold answer `a`, or the other way round: its `verify` trusts gold."""
    from math_verify import LatexExtractionConfig, parse, verify

    # LaTeX only: Math-Verify's reader for plain expressions hands the text to sympy's `parse_expr`, which evaluates it
    # as Python. No fallback either, which would compare pieces of text.
    config = [LatexExtractionConfig()]
    # Time is bounded from outside: Math-Verify's own alarms interrupt sympy at any point and leave it inconsistent.
    left, right = (
        parse(f"\\boxed{{{text}}}", config, fallback_mode="no_fallback", parsing_timeout=None) for text in (a, b)
    )
    if not left or not right:
        return False
    return any(bool(verify(x, y, timeout_seconds=None)) for x, y in ((left, right), (right, left)))


def main() -> None:
    confine(int(sys.argv[1]))
    limit = float(sys.argv[2])
    logging.disable(logging.CRITICAL)
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever prints goes elsewhere
    import math_verify  # noqa: F401 - loaded before the first pair, so that its time counts as start-up

    answer.write('"ready"\n')
    answer.flush()
    for line in sys.stdin:
        a, b = json.loads(line)
        result: bool | str
        start = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, limit)
        try:
            result = verdict(a, b)
        except MemoryError:
            os._exit(3)
        except RecursionError:
            result = "recursion"
        except Exception as error:
            result = type(error).__name__
        signal.setitimer(signal.ITIMER_PROF, 0)
        answer.write(json.dumps([result, time.process_time() - start]) + "\n")
        answer.flush()


if __name__ == "__main__":
    main()
