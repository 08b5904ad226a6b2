# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Starting ranks, carrying their output, and ending them whatever happens."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import os
import resource
import selectors
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TextIO

from . import net
from .errors import LabError

LAB_VARIABLE = "UZIP_LAB_ID"  # in the environment of everything that a lab starts
EXIT_TIMEOUT = 124
TAIL_LINES = 40

_PR_SET_PDEATHSIG = 1
_STACK_SECONDS = 1.5  # for Python's fault handler to write
_TERM_SECONDS = 5.0
_DRAIN_SECONDS = 2.0  # for output still in the pipes when the ranks are gone
_prctl = ctypes.CDLL(None, use_errno=True).prctl


@dataclass
class RankResult:
    """How one rank ended. ``rc``: exit status, minus the signal's number if one killed it; ``tail``: last lines."""

    rank: int
    rc: int
    tail: list[str]
    hung: bool = False  # still running when the lab ended it


@dataclass
class RunResult:
    """How a run ended. ``reason`` is empty when every rank ended by itself with 0."""

    ranks: list[RankResult]
    seconds: float
    timed_out: bool = False
    reason: str = ""
    output: list[list[str]] = field(default_factory=list, repr=False)  # whole lines per rank, if they were kept

    @property
    def rc(self) -> int:
        """Exit status for the whole: 0, 124 after a time-out, else that of the first rank that failed by itself."""
        if self.timed_out:
            return EXIT_TIMEOUT
        failed = [r for r in self.ranks if r.rc != 0 and not r.hung] or [r for r in self.ranks if r.rc != 0]
        if not failed:
            return 0
        return failed[0].rc if failed[0].rc > 0 else 128 - failed[0].rc


@dataclass
class _Rank:
    rank: int
    process: subprocess.Popen[bytes]
    log: IO[bytes] | None = None
    tail: collections.deque[str] = field(default_factory=lambda: collections.deque(maxlen=TAIL_LINES))
    lines: list[str] = field(default_factory=list)
    partial: bytes = b""
    hung: bool = False

    @property
    def rc(self) -> int | None:
        """Exit status, minus the signal's number after one, None while running.

        The process is not reaped before `_kill`, so that its number stays that of its group.
        """
        if self.process.returncode is not None:
            return self.process.returncode
        info = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if info is None:
            return None
        return info.si_status if info.si_code == os.CLD_EXITED else -info.si_status

    @property
    def running(self) -> bool:
        return self.rc is None


def processes_of(lab_id: str) -> list[int]:
    """Ids of all processes that carry ``lab_id`` in their environment, except the caller."""
    wanted = f"{LAB_VARIABLE}={lab_id}".encode()
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if wanted in Path(entry.path, "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def end_processes(lab_id: str, term_seconds: float = _TERM_SECONDS) -> None:
    """End every process of a lab: SIGTERM, then SIGKILL for those that stay."""
    for signum, seconds in ((signal.SIGTERM, term_seconds), (signal.SIGKILL, 2.0)):
        end = time.monotonic() + seconds
        pids = processes_of(lab_id)
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signum)
        while pids and time.monotonic() < end:
            time.sleep(0.05)
            pids = [pid for pid in processes_of(lab_id) if pid in pids]
        if not pids:
            return


def _is_python(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith("python")
    return False


def _entry(namespace: int | None, parent: int) -> Callable[[], None]:
    """What a rank does between fork and exec: enter its namespace, and die with the lab even if that is killed."""

    def enter() -> None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        if namespace is not None:
            net.setns(namespace)

    return enter


class Ranks:
    """The processes of one run.

    Rank 0's lines go to ``out`` as they are, those of the others behind ``[rank] ``; ``log_dir`` also gets them per
    rank, untouched. When a rank fails, the others have ``grace`` seconds to end by themselves.
    """

    def __init__(
        self,
        command: Sequence[str],
        envs: Sequence[dict[str, str]],
        namespaces: Sequence[int | None],
        *,
        lab_id: str,
        timeout: float,
        grace: float,
        log_dir: Path | None = None,
        out: TextIO | None = None,
        keep: bool = False,
    ) -> None:
        self._command = list(command)
        self._envs = envs
        self._namespaces = namespaces
        self._lab_id = lab_id
        self._timeout = timeout
        self._grace = grace
        self._log_dir = log_dir
        self._out = out
        self._keep = keep
        self._ranks: list[_Rank] = []
        self._selector = selectors.DefaultSelector()

    def run(self) -> RunResult:
        """Start all ranks and wait for them. Raises LabError when the command cannot be started."""
        start = time.monotonic()
        timed_out, reason = False, ""
        try:
            self._start()
            deadline = start + self._timeout
            failed_at: float | None = None
            while any(rank.running for rank in self._ranks):
                self._carry(0.1)
                now = time.monotonic()
                if failed_at is None and (failure := self._failure()):
                    failed_at, reason = now, failure
                if now > deadline:
                    timed_out = True
                    reason = f"no end after {self._timeout:g} s" + (f" ({reason})" if reason else "")
                    break
                if failed_at is not None and now > failed_at + self._grace:
                    reason += f"; the others did not end within {self._grace:g} s"
                    break
            reason = reason or self._failure()
            self._stop()
        finally:
            self._kill()
            self._close()
        results = [RankResult(r.rank, r.process.returncode, list(r.tail), r.hung) for r in self._ranks]
        return RunResult(results, time.monotonic() - start, timed_out, reason, [r.lines for r in self._ranks])

    def _start(self) -> None:
        for rank, (env, namespace) in enumerate(zip(self._envs, self._namespaces, strict=True)):
            try:
                process = subprocess.Popen(
                    self._command,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=_entry(namespace, os.getpid()),
                )
            except OSError as err:
                raise LabError(f"cannot start '{shlex.join(self._command)}': {err.strerror or err}") from err
            started = _Rank(rank, process)
            self._ranks.append(started)
            if self._log_dir is not None:
                self._log_dir.mkdir(parents=True, exist_ok=True)
                started.log = (self._log_dir / f"rank{rank}.log").open("wb")
            assert process.stdout is not None
            os.set_blocking(process.stdout.fileno(), False)
            self._selector.register(process.stdout, selectors.EVENT_READ, started)

    def _failure(self) -> str:
        for rank in self._ranks:
            rc = rank.rc
            if rc:
                return f"rank {rank.rank} ended with {_status(rc)}"
        return ""

    def _carry(self, timeout: float) -> bool:
        """Pass on what the ranks wrote, waiting up to ``timeout`` seconds. False when all pipes are closed."""
        if not self._selector.get_map():
            time.sleep(min(timeout, 0.02))
            return False
        for key, _ in self._selector.select(timeout):
            rank: _Rank = key.data
            data = os.read(key.fd, 1 << 16)
            if not data:
                self._selector.unregister(key.fileobj)
                self._emit(rank, [rank.partial] if rank.partial else [])
                rank.partial = b""
                continue
            if rank.log:
                rank.log.write(data)
            *lines, rank.partial = (rank.partial + data).split(b"\n")
            self._emit(rank, lines)
        return True

    def _emit(self, rank: _Rank, lines: list[bytes]) -> None:
        for raw in lines:
            line = raw.decode(errors="replace").rstrip("\r")
            rank.tail.append(line)
            if self._keep:
                rank.lines.append(line)
            if self._out is not None:
                print(line if rank.rank == 0 else f"[{rank.rank}] {line}", file=self._out, flush=True)

    def _drain(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and self._carry(0.05):
            pass

    def _stop(self) -> None:
        """End what still runs, Python ranks with their stacks, and read what is left of the output."""
        hanging = [rank for rank in self._ranks if rank.running]
        if hanging:
            for rank in hanging:
                rank.hung = True
            pids = [pid for pid in processes_of(self._lab_id) if _is_python(pid)]
            for pid in pids:
                with contextlib.suppress(OSError):  # PYTHONFAULTHANDLER turns SIGABRT into stacks of all threads
                    resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
                    os.kill(pid, signal.SIGABRT)
            if pids:
                self._drain_while_running(_STACK_SECONDS)
            for rank in hanging:
                _signal_group(rank.process.pid, signal.SIGTERM)
            self._drain_while_running(_TERM_SECONDS)
        self._kill()
        self._drain(_DRAIN_SECONDS)

    def _close(self) -> None:
        self._selector.close()
        for rank in self._ranks:
            if rank.log:
                rank.log.close()
            if rank.process.stdout:
                rank.process.stdout.close()

    def _drain_while_running(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and any(rank.running for rank in self._ranks):
            self._carry(0.05)

    def _kill(self) -> None:
        """SIGKILL to the ranks' process groups and to whatever of theirs left the group; the ranks are reaped."""
        for rank in self._ranks:
            if rank.process.returncode is None:
                _signal_group(rank.process.pid, signal.SIGKILL)
        for pid in processes_of(self._lab_id):
            if not _is_daemon(pid):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        for rank in self._ranks:
            rank.process.wait()


def _is_daemon(pid: int) -> bool:
    """Whether a process is part of the lab's MPS daemon, which outlives a run."""
    with contextlib.suppress(OSError):
        return b"nvidia-cuda-mps" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
    return False


def _signal_group(pid: int, signum: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(pid, signum)


def _status(rc: int) -> str:
    if rc >= 0:
        return f"status {rc}"
    try:
        return signal.Signals(-rc).name
    except ValueError:
        return f"signal {-rc}"


def print_tails(result: RunResult, file: TextIO = sys.stderr, lines: int = 15) -> None:
    """Print the last lines of every rank of a run that failed."""
    for rank in result.ranks:
        how = "did not end" if rank.hung else f"ended with {_status(rank.rc)}"
        print(f"lab: rank {rank.rank} {how}; its last lines:", file=file)
        for line in rank.tail[-lines:] or ["(no output)"]:
            print(f"lab: [{rank.rank}] {line}", file=file)
