# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""The CUDA toolkit that compiles the library, and the GPU architectures it compiles for."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, overload

from .common import ROOT, Failure, run, say

# What the build takes of the toolkit. All of one release, they unpack to one folder, nvidia/cu13.
WHEELS = (
    "nvidia-cuda-nvcc>=13.0,<13.1",
    "nvidia-nvvm>=13.0,<13.1",
    "nvidia-cuda-crt>=13.0,<13.1",
    "nvidia-cuda-runtime>=13.0,<13.1",
    "nvidia-cuda-cccl>=13.0,<13.1",
)
NEEDED = ("bin/nvcc", "include/cuda_runtime.h")
SYSTEM_HOME = Path("/usr/local/cuda")
MIN_ARCH = 80  # bf16 arithmetic and warp reductions
DEFAULT_ARCH = "90"


@dataclass(frozen=True)
class Toolkit:
    home: Path
    version: str

    @property
    def nvcc(self) -> Path:
        return self.home / "bin" / "nvcc"

    @property
    def libdir(self) -> Path:
        return next(self.home / d for d in ("lib64", "lib") if (self.home / d / "libcudart_static.a").is_file())


@overload
def find_toolkit(install: Literal[True] = ...) -> Toolkit: ...
@overload
def find_toolkit(install: bool) -> Toolkit | None: ...
def find_toolkit(install: bool = True) -> Toolkit | None:
    """CUDA_HOME, else nvcc on PATH, else /usr/local/cuda, else the wheels in .venv, installed there or None."""
    given = os.environ.get("CUDA_HOME")
    if given:
        return _toolkit(Path(given), f"CUDA_HOME={given}")
    found = shutil.which("nvcc")
    for home in (_home_of(found) if found else None, SYSTEM_HOME):
        if home and not _missing(home):
            return _toolkit(home, str(home))
    wheels = _from_wheels(install)
    return _toolkit(wheels, "CUDA wheels in .venv") if wheels else None


def gencode(archs: list[str]) -> str:
    return " ".join(f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in archs)


def find_archs(toolkit: Toolkit) -> list[str]:
    """CUDA_ARCHS (`90` or `80;90`), else those of the GPUs present, else 90."""
    given = os.environ.get("CUDA_ARCHS", "")
    archs = [arch for arch in re.split(r"[;, ]+", given) if arch] or _present() or [DEFAULT_ARCH]
    known = re.findall(r"^sm_(\d+)$", run([toolkit.nvcc, "--list-gpu-code"]).decode(), re.MULTILINE)
    usable = sorted((arch for arch in known if int(arch) >= MIN_ARCH), key=int)
    for arch in archs:
        if arch not in usable:
            raise Failure(
                f"CUDA_ARCHS: {arch!r} is not an architecture that CUDA {toolkit.version} and nccl-uzip support; "
                f"choose from {' '.join(usable)}, separated by ;"
            )
    return sorted(dict.fromkeys(archs), key=int)


def _present() -> list[str]:
    if not shutil.which("nvidia-smi"):
        return []
    done = subprocess.run(
        ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"], capture_output=True, text=True, check=False
    )
    return ["".join(pair) for pair in re.findall(r"^(\d+)\.(\d+)\s*$", done.stdout, re.MULTILINE)]


def _home_of(nvcc: str) -> Path | None:
    """The toolkit's folder: nvcc on PATH may be a wrapper, so it is asked."""
    done = subprocess.run([nvcc, "--dryrun", "-E", "x.cu"], capture_output=True, text=True, check=False)
    here = re.search(r"^#\$ _HERE_=(.+)$", done.stderr, re.MULTILINE)
    return Path(here[1].strip()).parent if here else None


def _missing(home: Path) -> list[str]:
    missing = [name for name in NEEDED if not (home / name).is_file()]
    if not any((home / d / "libcudart_static.a").is_file() for d in ("lib64", "lib")):
        missing.append("lib64/libcudart_static.a")
    return missing


def _toolkit(home: Path, what: str) -> Toolkit:
    missing = _missing(home)
    if missing:
        raise Failure(f"{what}: not a CUDA toolkit, {', '.join(missing)} missing there")
    text = run([home / "bin" / "nvcc", "--version"]).decode()
    release = re.search(r"release (\d+)\.(\d+)", text)
    if not release:
        raise Failure(f"{what}: nvcc does not tell its release")
    if int(release[1]) not in (12, 13):
        raise Failure(f"{what}: CUDA {release[1]}.{release[2]} is not supported; use 12.x or 13.x")
    return Toolkit(home.resolve(), f"{release[1]}.{release[2]}")


def _from_wheels(install: bool) -> Path | None:
    venv = Path(os.environ.get("UZIP_VENV") or ROOT / ".venv")
    python = venv / "bin" / "python"
    no_way = (
        "nvcc: not found, and cannot be had: {}\n"
        "Install a CUDA toolkit (12.x or 13.x) and put nvcc on PATH or set CUDA_HOME, or give its wheels with "
        "WHEELS=DIR: " + ", ".join(WHEELS)
    )
    if not python.is_file():
        if not install:
            return None
        raise Failure(no_way.format(f"{venv} does not exist (`make venv` makes it)"))
    site = run([python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"]).decode().strip()
    home = Path(site) / "nvidia" / "cu13"
    if _missing(home) and not install:
        return None
    if _missing(home):
        say(f"no nvcc on this machine: installing CUDA's compiler wheels into {venv} ...")
        wheels = os.environ.get("WHEELS")
        where = ["--no-index", "--find-links", str(Path(wheels).resolve())] if wheels else []
        done = subprocess.run(
            [str(python), "-m", "pip", "install", "--no-deps", *where, *WHEELS], stdout=sys.stderr, check=False
        )
        if done.returncode != 0:
            raise Failure(no_way.format("pip install failed, see above"))
    return home
