"""Math-Verify in processes that can be killed: whatever a formula does, it costs that pair only.

A pool library would run functions of this process in children of it. Here the children are programs of their own,
started anew with nothing of the trainer in them: no fork of a process with CUDA and threads, no import of the user's
main module, no token in the environment. They die with this process (`verify_worker.confine`), also by `kill -9`.
"""

import atexit
import json
import os
import queue
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from trl_prism.core.sameness.guards import refused
from trl_prism.errors import PrismError


class Verdict(NamedTuple):
    """Whether two formulas are equal, and the seconds of processor time that it took to say so."""

    equal: bool
    seconds: float


class WorkerFailed(Exception):  # noqa: N818
    """A worker gave no verdict; the message is the cause."""


class Verifier:
    """Decides whether two formulas are equal, by Math-Verify in both directions.

    A pair that takes too long, takes too much memory, kills its worker or raises anything counts as not equal. It is
    counted by cause and never raises. Usable from several threads; after a fork the child starts workers of its own.

    Args:
        num_workers (`int`, *optional*): Most worker processes. By default the rank's share of the cores, 8 at most.
        timeout (`float`, *optional*, defaults to `2.0`): Seconds of processor time for one pair. Wall time would
            give other verdicts on a busy machine.
        wall_timeout (`float`, *optional*, defaults to `4.0`): Seconds of wall time for one pair, come what may.
        memory (`int`, *optional*, defaults to `1024`): Megabytes of address space for one worker.
        recycle (`int`, *optional*, defaults to `2000`): Pairs after which a worker is replaced, since sympy's caches
            only grow.

    Attributes:
        causes (`Counter`): How many pairs were refused or failed, by cause.
    """

    def __init__(
        self,
        *,
        num_workers: int | None = None,
        timeout: float = 2.0,
        wall_timeout: float = 4.0,
        memory: int = 1024,
        recycle: int = 2000,
    ):
        self.num_workers = num_workers or default_num_workers()
        self.timeout = timeout
        self.wall_timeout = wall_timeout
        self.memory = memory
        self.recycle = recycle
        self.causes: Counter[str] = Counter()
        self._reset()
        atexit.register(self.close)

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._cache: dict[tuple[str, str], Verdict] = {}
        self._idle: queue.LifoQueue[_Worker | None] = queue.LifoQueue()
        for _ in range(self.num_workers):
            self._idle.put(None)  # a place for a worker that is started when it is needed
        # A worker dies with the thread that started it, so one thread that lives on starts them all.
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="verifier-starter")
        self._askers = ThreadPoolExecutor(self.num_workers, thread_name_prefix="verifier")

    def equal(self, a: str, b: str) -> bool:
        """Whether the two formulas are equal. Symmetric; never raises."""
        return self.verdict(a, b).equal

    def verdict(self, a: str, b: str) -> Verdict:
        """Whether the two formulas are equal, and what it cost, also where it was known already."""
        if os.getpid() != self._pid:
            self._reset()
        if a == b:
            return Verdict(True, 0.0)
        pair = (min(a, b), max(a, b))
        known = self._cache.get(pair)
        if known is not None:
            return known
        cause = refused(a) or refused(b)
        if cause:
            return self._note(pair, Verdict(False, 0.0), cause)
        worker = self._idle.get()
        try:
            if worker is None or worker.count >= self.recycle or worker.process.poll() is not None:
                if worker is not None:
                    worker.stop()
                worker = None
                worker = self._start()
            result, seconds = worker.ask(pair, self.wall_timeout)
        except WorkerFailed as error:
            if worker is not None:
                worker.stop()
            worker = None
            return self._note(pair, Verdict(False, self.timeout), str(error), keep=str(error) != "died")
        finally:
            self._idle.put(worker)
        return self._note(pair, Verdict(result is True, seconds), None if isinstance(result, bool) else "error")

    def _start(self) -> "_Worker":
        """A new worker. That none can be started is no property of a formula, so it is an error and not a verdict."""
        try:
            return self._starter.submit(_Worker, self.memory, self.timeout).result()
        except (OSError, RuntimeError, WorkerFailed) as error:
            raise PrismError(
                f"No Math-Verify worker can be started ({error or type(error).__name__}), so answers cannot be "
                "compared. Check free memory and processes: `python -m trl_prism.ports.verify_worker 1024 2` must run."
            ) from error

    def equal_many(self, pairs: Sequence[tuple[str, str]]) -> list[bool]:
        """Verdicts of many pairs, on all workers at once."""
        if os.getpid() != self._pid:
            self._reset()
        distinct = list(dict.fromkeys((min(pair), max(pair)) for pair in pairs))
        list(self._askers.map(lambda pair: self.equal(*pair), distinct))
        return [self.equal(*pair) for pair in pairs]

    def _note(self, pair: tuple[str, str], result: Verdict, cause: str | None, *, keep: bool = True) -> Verdict:
        """Counts and remembers a verdict; not that of a worker that died, which may not have been the pair's doing."""
        with self._lock:
            if cause:
                self.causes[cause] += 1
            if not keep:
                return result
            if len(self._cache) >= 200_000:
                self._cache.clear()
            self._cache[pair] = result
        return result

    def close(self) -> None:
        """Ends all idle workers. A later question starts new ones."""
        if os.getpid() != self._pid:
            return
        workers = []
        while True:
            try:
                workers.append(self._idle.get_nowait())
            except queue.Empty:
                break
        for worker in workers:
            if worker is not None:
                worker.stop()
            self._idle.put(None)


class _Worker:
    """One worker process and the pipes to it."""

    def __init__(self, memory: int, timeout: float, *, start_timeout: float = 60.0):
        environment = {"PATH": os.environ.get("PATH", ""), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            [sys.executable, "-m", "trl_prism.ports.verify_worker", str(memory), str(timeout)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**environment, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"},
        )
        self.count = 0
        self._rest = b""
        try:
            self._read(start_timeout)
        except WorkerFailed:
            self.stop()
            raise WorkerFailed("start") from None

    def ask(self, pair: tuple[str, str], wall_timeout: float) -> tuple[object, float]:
        self.count += 1
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(pair).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            raise WorkerFailed("died") from None
        result, seconds = json.loads(self._read(wall_timeout))
        return result, float(seconds)

    def _read(self, timeout: float) -> bytes:
        """One line of the worker, or [`WorkerFailed`] with the cause."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + timeout
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise WorkerFailed("timeout")
                chunk = os.read(self.process.stdout.fileno(), 65536)
                if not chunk:
                    code = self.process.wait()
                    raise WorkerFailed({3: "memory", -signal.SIGPROF: "timeout"}.get(code, "died"))
                self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:  # what was still to be flushed has no reader any more
                    continue


def default_num_workers() -> int:
    """This rank's share of the cores that the process may use, between 1 and 8."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(8, cores // max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))))


_shared: Verifier | None = None
_shared_lock = threading.Lock()


def shared_verifier() -> Verifier:
    """The process's own verifier, with default limits."""
    global _shared
    with _shared_lock:
        if _shared is None:
            _shared = Verifier()
        return _shared
