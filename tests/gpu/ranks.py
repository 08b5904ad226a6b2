# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Start a command as N ranks on one GPU, over unshaped loopback sockets, and never hang.

Each rank claims a host of its own (``NCCL_HOSTID``), so NCCL takes its network transport between them. The CUDA MPS
daemon, where there is one, lets the ranks' kernels run side by side; without it they time-slice, which is slower and
still right.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

POLL_S = 0.05
# After the first rank fails the others get this long to report what they see.
GRACE_S = 8.0
TAIL_LINES = 15


@dataclass(frozen=True)
class RankResult:
    """How one rank ended: its exit status (negative: the signal that ended it) and its log."""

    rank: int
    returncode: int
    log: Path

    def tail(self, lines: int = TAIL_LINES) -> str:
        text = self.log.read_text(errors="replace").splitlines()
        return "\n".join(f"    [{self.rank}] {line}" for line in text[-lines:])


@dataclass(frozen=True)
class RunResult:
    """How a run ended."""

    ranks: tuple[RankResult, ...]
    timed_out: bool
    seconds: float

    @property
    def ok(self) -> bool:
        return not self.timed_out and all(r.returncode == 0 for r in self.ranks)

    def describe(self) -> str:
        """Why the run failed, with each rank's last lines."""
        codes = ", ".join(f"rank {r.rank}: {r.returncode}" for r in self.ranks)
        head = f"timed out after {self.seconds:.0f} s" if self.timed_out else f"failed after {self.seconds:.0f} s"
        return "\n".join([f"{head} (exit status {codes}); last lines of each rank:", *(r.tail() for r in self.ranks)])


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def rank_environment(rank: int, ranks: int, port: int, extra: Mapping[str, str]) -> dict[str, str]:
    """The environment of one rank. NCCL's own variables of the caller are dropped: ``extra`` decides."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("NCCL_") and k != "LD_PRELOAD"}
    env.update(
        RANK=str(rank),
        WORLD_SIZE=str(ranks),
        LOCAL_RANK="0",
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        CUDA_VISIBLE_DEVICES=env.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0],
        NCCL_HOSTID=f"uzip-rank-{rank}",
        NCCL_SOCKET_IFNAME="lo",
        NCCL_NET="Socket",
        NCCL_NET_PLUGIN="none",
        NCCL_MNNVL_ENABLE="0",
        NCCL_NVLS_ENABLE="0",
        GLOO_SOCKET_IFNAME="lo",
        PYTHONUNBUFFERED="1",
        OMP_NUM_THREADS=str(max(1, (os.cpu_count() or 1) // ranks)),
    )
    env.update(extra)
    return env


@contextlib.contextmanager
def mps_daemon() -> Iterator[dict[str, str]]:
    """A private CUDA MPS daemon. Yields the variables its clients need; empty when there is none to be had."""
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="uzip-mps-") as folder:
        pipe, log = Path(folder, "pipe"), Path(folder, "log")
        pipe.mkdir()
        log.mkdir()
        env = {"CUDA_MPS_PIPE_DIRECTORY": str(pipe), "CUDA_MPS_LOG_DIRECTORY": str(log)}
        started = subprocess.run([control, "-d"], env={**os.environ, **env}, check=False, stdin=subprocess.DEVNULL)
        if started.returncode != 0:
            print(f"{control} -d failed with status {started.returncode}: ranks will time-slice", file=sys.stderr)
            yield {}
            return
        try:
            if _mps_works(env):
                yield env
            else:
                print("the CUDA MPS daemon takes no clients here: ranks will time-slice", file=sys.stderr)
                yield {}
        finally:
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run([control], input=b"quit\n", env={**os.environ, **env}, check=False, timeout=20)


def _mps_works(env: Mapping[str, str]) -> bool:
    """Whether a process can make a CUDA context through the daemon."""
    code = (
        "import ctypes; c = ctypes.CDLL('libcuda.so.1'); x = ctypes.c_void_p(); "
        "raise SystemExit(c.cuInit(0) or c.cuDevicePrimaryCtxRetain(ctypes.byref(x), 0))"
    )
    try:
        probe = subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, **env}, check=False, timeout=60, capture_output=True
        )
    except subprocess.TimeoutExpired:
        return False
    return probe.returncode == 0


def run_ranks(
    argv: Sequence[str], ranks: int, *, timeout_s: float, env: Mapping[str, str], logs: Path, follow: bool = True
) -> RunResult:
    """Run ``argv`` as ``ranks`` processes and wait for them.

    A rank that fails takes the others down after a few seconds; after ``timeout_s`` seconds every rank is asked for
    its Python stacks (SIGUSR1, see :func:`arm_worker`) and killed with its children. With ``follow``, rank 0's output
    is shown as it comes.
    """
    logs.mkdir(parents=True, exist_ok=True)
    port = free_port()
    paths = [logs / f"rank{r}.log" for r in range(ranks)]
    procs: list[subprocess.Popen[bytes]] = []
    begin = time.monotonic()
    timed_out = False
    shown = 0
    try:
        for r in range(ranks):
            with open(paths[r], "wb") as out:
                procs.append(
                    subprocess.Popen(
                        argv,
                        env=rank_environment(r, ranks, port, env),
                        stdin=subprocess.DEVNULL,
                        stdout=out,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                )
        first_failure: float | None = None
        while True:
            codes = [p.poll() for p in procs]
            now = time.monotonic()
            if follow:
                shown = _show(paths[0], shown)
            if all(c is not None for c in codes):
                break
            if first_failure is None and any(c not in (None, 0) for c in codes):
                first_failure = now
            if first_failure is not None and now - first_failure > GRACE_S:
                break
            if now - begin > timeout_s:
                timed_out = True
                break
            time.sleep(POLL_S)
        if any(p.poll() is None for p in procs):
            for p in procs:
                if p.poll() is None:
                    p.send_signal(signal.SIGUSR1)
            time.sleep(1.0)
    finally:
        for p in procs:
            # The group may outlive its leader: children are killed also when the rank itself has ended.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(p.pid, signal.SIGKILL)
        for p in procs:
            p.wait()
    if follow:
        _show(paths[0], shown)
    results = tuple(RankResult(r, procs[r].returncode, paths[r]) for r in range(ranks))
    return RunResult(results, timed_out, time.monotonic() - begin)


def _show(path: Path, offset: int) -> int:
    with open(path, "rb") as f:
        f.seek(offset)
        data = f.read()
    if data:
        sys.stdout.write(data.decode(errors="replace"))
        sys.stdout.flush()
    return offset + len(data)


def arm_worker() -> None:
    """For a rank: print all Python stacks on SIGUSR1 and on a crash."""
    import faulthandler

    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)


@contextlib.contextmanager
def terminate_as_interrupt() -> Iterator[None]:
    """Let SIGTERM unwind like Ctrl-C, so that ranks and the MPS daemon are cleaned up."""

    def raise_interrupt(_signum: int, _frame: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, raise_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
