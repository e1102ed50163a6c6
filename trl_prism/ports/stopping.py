"""How a run is told to stop, and how its processes die with their launcher.

SIGTERM, to the launcher or to any rank, asks for a stop: Slurm sends it before a job's time is over. Whoever works in
a loop calls [`check`] where it could go on later; a training phase saves a checkpoint first. `accelerate launch` turns
every exit code of a child into 1, so that a run can be continued is said by a file, see
[`~trl_prism.run_dir.RunDirectory`].
"""

import contextlib
import ctypes
import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from trl_prism.errors import StopRequested


_PR_SET_PDEATHSIG = 1

# Words in the command line of a parent that started us for a run, and with which we end.
_LAUNCHERS = (b"accelerate", b"torchrun", b"torch.distributed", b"deepspeed")


class _Stop:
    """The request of this process, and the file by which ranks tell each other."""

    def __init__(self) -> None:
        self.file: Path | None = None
        self.asked = False
        self.grace = 120.0
        self.before: Any = None
        self.timer: threading.Timer | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        if self.file is not None:
            with contextlib.suppress(OSError):  # a full disk must not keep us from stopping
                self.file.touch()
        if self.timer is None:
            # Where a rank is gone, the others would wait for it in a collective until the process group gives up.
            self.timer = threading.Timer(self.grace, os._exit, (128 + signal.SIGTERM,))
            self.timer.daemon = True
            self.timer.start()


_stop = _Stop()


def watch(file: Path, *, grace: float) -> None:
    """From now on SIGTERM asks this process for a stop.

    Args:
        file (`Path`): Made by the rank that is asked, seen by all; it must not exist.
        grace (`float`): Seconds until the process ends on its own, if it has not come to a point where it can stop.
    """
    release()
    _stop.file, _stop.asked, _stop.grace = file, False, grace
    if threading.current_thread() is threading.main_thread():
        _stop.before = signal.signal(signal.SIGTERM, _stop)


def release() -> None:
    """Puts back what SIGTERM did before [`watch`]."""
    if _stop.timer is not None:
        _stop.timer.cancel()
        _stop.timer = None
    if _stop.before is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _stop.before)
    _stop.before, _stop.file, _stop.asked = None, None, False


def requested() -> bool:
    """Whether this rank or another was asked to stop."""
    return _stop.asked or (_stop.file is not None and _stop.file.exists())


def check() -> None:
    """Raises [`StopRequested`] if this rank or another was asked to stop."""
    if requested():
        raise StopRequested


def die_with_launcher() -> None:
    """Has the kernel send SIGTERM when the launcher ends, however it ends. Linux only.

    Called before anything else: a rank that waits for the others to join waits for a launcher that may be gone.
    """
    if not sys.platform.startswith("linux"):
        return
    parent = os.getppid()
    try:
        command = Path(f"/proc/{parent}/cmdline").read_bytes()
    except OSError:
        command = b""
    # A parent that is about to be gone has no command line any more.
    launched = not command or any(word in command for word in _LAUNCHERS)
    if launched:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    # It ended before we began, or between two of these lines.
    orphaned = os.getppid() != parent or (parent == 1 and not launched)
    if orphaned and (launched or "TORCHELASTIC_RUN_ID" in os.environ):
        os.kill(os.getpid(), signal.SIGTERM)
