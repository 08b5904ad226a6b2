# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""What a result was measured on and with."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

from perf.lab.gpu import first_gpu

from .perfbin import Library


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def git_commit(folder: Path) -> str:
    """The commit of the tree ``folder`` is in, with -dirty when it was changed; UZIP_COMMIT where there is no git."""
    if given := os.environ.get("UZIP_COMMIT"):
        return given
    git = shutil.which("git")
    if git:
        done = subprocess.run(
            [git, "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=40"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            return done.stdout.strip()
    return "unknown"


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def machine() -> dict[str, Any]:
    """GPU, driver, CPU and kernel of this machine."""
    gpu = first_gpu()
    return {
        "gpu": gpu.name if gpu else None,
        "driver": gpu.driver if gpu else None,
        "cpus": len(os.sched_getaffinity(0)),
        "cpu": _cpu_model(),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def library_note(library: Library) -> dict[str, Any]:
    """Name, file and hash of a library. The path is given as the user gave it."""
    return {
        "name": library.name,
        "path": str(library.path),
        "bytes": library.path.stat().st_size,
        "sha256": sha256(library.path),
        "env": dict(library.env),
    }


def torch_nccl() -> Path | None:
    """The libnccl.so.2 that PyTorch would load, if torch and its NCCL package are installed. Imports neither."""
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("nvidia") is None:
        return None
    spec = importlib.util.find_spec("nvidia.nccl")
    for place in (spec.submodule_search_locations or []) if spec else []:
        path = Path(place, "lib", "libnccl.so.2")
        if path.is_file():
            return path
    return None
