# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""A CUDA MPS daemon of the lab's own, so that kernels of several ranks run side by side on one GPU."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

_CONTROL = "nvidia-cuda-mps-control"


def available() -> bool:
    """Whether the MPS control program is installed."""
    return shutil.which(_CONTROL) is not None


class Mps:
    """The daemon with pipe and log folders under ``folder``, which must be short: socket paths end at 107 bytes.

    The daemon stays outside the lab's namespaces; clients reach it through sockets and FIFOs in the pipe folder, which
    are not bound to a network namespace.
    """

    def __init__(self, folder: Path) -> None:
        self._pipe = folder / "mps"
        self._log = folder / "mps-log"
        self.env = {"CUDA_MPS_PIPE_DIRECTORY": str(self._pipe), "CUDA_MPS_LOG_DIRECTORY": str(self._log)}

    def start(self, env: dict[str, str]) -> str | None:
        """Start the daemon with ``env`` and have a client connect. Return None, or why it cannot be used."""
        self._pipe.mkdir(mode=0o700)
        self._log.mkdir(mode=0o700)
        env = {**env, **self.env}
        try:
            done = subprocess.run(
                [_CONTROL, "-d"],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # the daemon keeps its streams: a pipe would never end
                stderr=subprocess.DEVNULL,
                timeout=30,
                check=False,
            )
            if done.returncode != 0:
                return f"{_CONTROL} -d ended with {done.returncode}: {self._last_log()}"
            if self._control("get_server_list", 10) is None:
                return f"{_CONTROL} does not answer: {self._last_log()}"
        except (OSError, subprocess.TimeoutExpired) as err:
            return f"{_CONTROL} -d: {err}"
        return None

    def stop(self) -> None:
        """End the daemon and its servers: asked first, then by signal. Never raises."""
        if not self._pipe.exists():
            return
        pids = self._pids()
        if pids:
            self._control("quit -t 3", 15)
        end = time.monotonic() + 3
        while time.monotonic() < end and any(Path(f"/proc/{pid}").exists() for pid in pids):
            time.sleep(0.05)
        for pid in pids:
            with contextlib.suppress(OSError):
                if "nvidia-cuda-mps" in Path(f"/proc/{pid}/cmdline").read_text():
                    os.kill(pid, signal.SIGKILL)

    def _control(self, command: str, timeout: float) -> str | None:
        try:
            done = subprocess.run(
                [_CONTROL],
                input=command + "\n",
                env={**os.environ, **self.env},
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout if done.returncode == 0 else None

    def _pids(self) -> list[int]:
        pids = []
        with contextlib.suppress(OSError, ValueError):
            pids.append(int((self._pipe / f"{_CONTROL}.pid").read_text()))
        servers = self._control("get_server_list", 5) if pids else None
        return pids + [int(line) for line in (servers or "").split() if line.isdigit()]

    def _last_log(self) -> str:
        with contextlib.suppress(OSError, IndexError):
            return (self._log / "control.log").read_text(errors="replace").strip().splitlines()[-1]
        return "its log is empty"
