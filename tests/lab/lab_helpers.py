# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""What the lab's tests share."""

from __future__ import annotations

import glob
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

Runner = Callable[..., "subprocess.CompletedProcess[str]"]


def lab_command(*args: str) -> list[str]:
    """The lab's command line."""
    return [sys.executable, "-m", "perf.lab", *args]


def namespaces_in_use() -> set[int]:
    """Inodes of the network namespaces that some process is in or holds open."""
    found = set()
    for link in [*glob.glob("/proc/[0-9]*/ns/net"), *glob.glob("/proc/[0-9]*/fd/*")]:
        try:
            target = os.readlink(link)
        except OSError:
            continue
        if target.startswith("net:["):
            found.add(int(target[5:-1]))
    return found
