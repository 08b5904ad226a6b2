# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Who owns a lab's folder, and removing what a killed lab left."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from .mps import Mps
from .procs import end_processes, processes_of

PREFIX = "uzip-lab-"


def _start_time(pid: int) -> str | None:
    """A process's start time in clock ticks since boot, as text; with the pid it names a process for good."""
    with contextlib.suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[19]
    return None


def write_owner(folder: Path) -> None:
    """Note in ``folder`` that this process owns it."""
    (folder / "owner").write_text(f"{os.getpid()} {_start_time(os.getpid())}\n")


def _alive(folder: Path) -> bool:
    try:
        pid, started = (folder / "owner").read_text().split()
    except (OSError, ValueError):
        pid, started = folder.name[len(PREFIX) :].split("-")[0], ""
    if not pid.isdigit():
        return False
    now = _start_time(int(pid))
    return now is not None and (not started or now == started)


def clean(root: Path = Path("/tmp")) -> list[str]:
    """Remove what labs left whose process is gone: ranks, MPS daemon, folder. Return a line for each."""
    done = []
    for folder in sorted(root.glob(PREFIX + "*")):
        if not folder.is_dir() or folder.stat().st_uid != os.geteuid() or _alive(folder):
            continue
        Mps(folder).stop()
        left = processes_of(folder.name)
        end_processes(folder.name)
        shutil.rmtree(folder, ignore_errors=True)
        done.append(f"{folder}: folder removed, {len(left)} processes ended")
    return done
