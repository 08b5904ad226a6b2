# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""The build of the library: nothing twice, what a change touches and no more, errors that say what to do."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest


def settings(library: Path) -> dict[str, str]:
    """Environment that asks for the library as it was built."""
    info = json.loads((library.parent / "build.json").read_text())
    return os.environ | {"UZIP_FUNCS": info["funcs"], "CUDA_ARCHS": ";".join(info["archs"])}


def build_again(root: Path, env: dict[str, str], timeout: float = 300) -> list[str]:
    """Names of what was compiled or linked."""
    done = subprocess.run(
        [root / "nccl-uzip" / "tools" / "build"], env=env, capture_output=True, text=True, timeout=timeout
    )
    assert done.returncode == 0, done.stderr
    return re.findall(r"^\[ *\d+\].*(?:compiling|linking) (\S+)", done.stderr, re.MULTILINE)


def would_compile(library: Path, folder: str) -> list[str]:
    """What upstream's makefile in src/`folder` of the tree would compile now."""
    work = Path(json.loads((library.parent / "build.json").read_text())["work"])
    config = json.loads((work / "config.json").read_text())
    config.pop("compilers")
    source = library.parents[1] / "nccl" / "src" / folder
    target = [] if folder else ["lib"]
    command = ["make", "-n", "-C", str(source), *target, *(f"{key}={value}" for key, value in config.items())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return re.findall(r"""SAY "Compiling" (\S+);|printf "Compiling  .*?" (\S+\.cc) """, done.stdout)


def test_nothing_changed_compiles_nothing_and_takes_seconds(library: Path, root: Path) -> None:
    env = settings(library)
    build_again(root, env)
    before = library.stat()
    start = time.monotonic()
    assert build_again(root, env) == []
    assert time.monotonic() - start < 30
    assert library.stat().st_mtime_ns == before.st_mtime_ns


def test_a_header_of_the_host_code_recompiles_what_includes_it(library: Path, root: Path) -> None:
    """Its copy in the tree gets a new time stamp and the old content, so the library stays the same afterwards."""
    env = settings(library)
    build_again(root, env)
    copy = library.parents[1] / "nccl" / "src" / "uzip" / "host" / "uzip_policy.h"
    os.utime(copy)
    compiled = [name for name in build_again(root, env) if not name.startswith("libnccl.so")]
    assert any(Path(name).name == "uzip_policy.cc" for name in compiled)
    assert not [name for name in compiled if "device/" in name]
    assert len(compiled) < 15


def test_a_header_of_the_device_code_recompiles_the_collectives(library: Path, root: Path) -> None:
    build_again(root, settings(library))
    copy = library.parents[1] / "nccl" / "src" / "uzip" / "device" / "prims_uzip.h"
    old = copy.stat()
    try:
        os.utime(copy)
        names = [Path(a or b).name for a, b in would_compile(library, "device")]
    finally:
        os.utime(copy, ns=(old.st_atime_ns, old.st_mtime_ns))
    assert any(name.startswith("all_reduce_sum_bf16") for name in names)
    assert not [name for name in names if "_gin" in name or name == "host_table.cc"]


def test_registers_no_uzip_function_spills_more_than_its_simple_twin(library: Path, root: Path) -> None:
    done = subprocess.run([root / "nccl-uzip" / "tools" / "registers"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^AllReduce_Sum_bf16_RING_UZIP +", done.stdout, re.MULTILINE)
    assert re.search(r"^Broadcast_RING_UZIP +", done.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"CUDA_ARCHS": "70"}, ["CUDA_ARCHS", "'70'", "90"]),
        ({"CUDA_ARCHS": "banana"}, ["CUDA_ARCHS", "'banana'", "90"]),
        ({"CUDA_HOME": "/nowhere"}, ["CUDA_HOME=/nowhere", "bin/nvcc"]),
        ({"CXX": "no-such-compiler"}, ["no-such-compiler", "CXX"]),
        ({"NCCL_TARBALL": "/nowhere.tar.gz", "UZIP_BUILD": "TMP"}, ["NCCL_TARBALL=/nowhere.tar.gz", "apt-get source"]),
    ],
    ids=lambda value: shlex.join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else "",
)
def test_wrong_settings_are_one_clear_error(
    variables: dict[str, str], words: list[str], root: Path, tmp_path: Path
) -> None:
    env = os.environ | {"UZIP_FUNCS": "ci", "UZIP_BUILD": str(tmp_path)}
    env |= {key: str(tmp_path) if value == "TMP" else value for key, value in variables.items()}
    done = subprocess.run([root / "nccl-uzip" / "tools" / "build"], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    for word in words:
        assert word in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("error:") == 1
    assert not [path.name for path in tmp_path.iterdir() if path.name in ("lib", "nccl")]


def test_without_any_nvcc_the_error_names_the_ways(root: Path, tmp_path: Path) -> None:
    """PATH holds what the build needs but nvcc, .venv does not exist, and there is no toolkit elsewhere."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("python3", "sh", "env", "g++", "make", "git"):
        found = subprocess.run(["sh", "-c", f"command -v {name}"], capture_output=True, text=True).stdout.strip()
        if found:
            (programs / name).symlink_to(found)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import uziplib.cuda as c\n"
        "c.SYSTEM_HOME = c.Path('/nowhere')\n"
        "try:\n  c.find_toolkit()\nexcept c.Failure as f:\n  print(f)\n"
    )
    env = {"PATH": str(programs), "UZIP_VENV": str(tmp_path / "venv"), "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code, str(root / "nccl-uzip" / "tools")],
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    for word in ("nvcc: not found", "CUDA_HOME", "WHEELS=DIR", "nvidia-cuda-nvcc"):
        assert word in done.stdout
