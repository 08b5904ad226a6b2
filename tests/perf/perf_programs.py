# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Builds the perf programs for the CPU: real sources, a fake CUDA runtime and a fake libnccl.so.2 (see fake/)."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "perf" / "src"
FAKE = Path(__file__).resolve().parent / "fake"
FLAGS = ["-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fPIC", f"-I{SOURCES}"]
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
HOST_PARTS = ["json", "options", "payload_file", "rendezvous", "util"]
LAUNCHER_PREFIXES = (
    "OMPI_",
    "PMI_",
    "PMIX_",
    "SLURM_",
    "TORCHELASTIC_",
    "MASTER_",
    "UZIP_PERF_",
    "NCCL_",
    "FAKE_",
    "MPI_",
)
LAUNCHER_NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LD_PRELOAD", "LD_LIBRARY_PATH")


@dataclass(frozen=True)
class Programs:
    """Paths of what was built."""

    tool: Path
    all_reduce: Path
    broadcast: Path
    plain: Path  # folder with a fake libnccl.so.2
    uzip: Path  # folder with one that has ncclUzip*


def build_programs(out: Path) -> Programs:
    """Compiles everything into `out`."""
    cxx = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if not cxx:
        raise RuntimeError("no C++ compiler: install g++ or set CXX")

    def call(*args: str | Path) -> None:
        done = subprocess.run([cxx, *map(str, args)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def compile_one(source: Path) -> Path:
        target = out / f"{source.stem}.o"
        call(*FLAGS, *SANITIZE, f"-I{FAKE}", "-c", source, "-o", target)
        return target

    host = [SOURCES / f"{name}.cc" for name in HOST_PARTS]
    program = [SOURCES / f"{name}.cc" for name in ("runner", "watchdog", "nccl_api")] + [FAKE / "fake_cuda.cc"]
    mains = [SOURCES / f"{name}.cc" for name in ("test_perf", "all_reduce_perf", "broadcast_perf")]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = dict(zip(host + program + mains, pool.map(compile_one, host + program + mains), strict=True))
    host_objects = [objects[s] for s in host]
    program_objects = host_objects + [objects[s] for s in program]
    test_perf, all_reduce, broadcast = (objects[s] for s in mains)
    link = [*SANITIZE, "-rdynamic", "-pthread"]
    call(*link, test_perf, *host_objects, "-o", out / "test_perf")
    for main, name in ((all_reduce, "all_reduce_perf"), (broadcast, "broadcast_perf")):
        call(*link, main, *program_objects, "-ldl", "-o", out / name)
    for name, define in (("plain", []), ("uzip", ["-DFAKE_UZIP"])):
        (out / name).mkdir()
        library = out / name / "libnccl.so.2"
        call(*FLAGS, *define, "-shared", "-Wl,-soname,libnccl.so.2", FAKE / "fake_nccl.cc", "-o", library)
    return Programs(out / "test_perf", out / "all_reduce_perf", out / "broadcast_perf", out / "plain", out / "uzip")


def clean_env(**extra: str) -> dict[str, str]:
    """The environment without any launcher's or NCCL's variables, plus `extra`."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHER_PREFIXES) and k not in LAUNCHER_NAMES}
    env["ASAN_OPTIONS"] = "detect_leaks=0:verify_asan_link_order=0"
    return env | extra


def free_port() -> int:
    """A port at which 17 in a row are probably free."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return min(int(s.getsockname()[1]), 65000)


Tool = Callable[..., "subprocess.CompletedProcess[bytes]"]


@dataclass(frozen=True)
class Ended:
    """How a rank ended."""

    status: int
    out: str
    err: str


def launch(commands: list[list[str]], envs: list[dict[str, str]], timeout: float = 120) -> list[Ended]:
    """Runs one process per command at once; a process that outlives `timeout` seconds is killed and fails the test."""
    ranks = [
        subprocess.Popen(c, env=e, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for c, e in zip(commands, envs, strict=True)
    ]
    try:
        ended = []
        with ThreadPoolExecutor(len(ranks)) as pool:
            for p, (out, err) in zip(ranks, pool.map(lambda p: p.communicate(timeout=timeout), ranks), strict=True):
                ended.append(Ended(p.returncode, out, err))
        return ended
    finally:
        for p in ranks:
            p.kill()


Ranks = Callable[..., list[Ended]]
