# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Each part of `make check` sees the fault it is there for; so does the table of registers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from conftest import SPDX, TOOLS

HEAD = "".join(f"# {line}\n" for line in SPDX.splitlines())
CPP_HEAD = HEAD.replace("# ", "// ")


@pytest.fixture
def checkout(tmp_path: Path, root: Path) -> Path:
    """A git checkout with our lint settings and a file of each kind that is as it should be."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    for name in ("pyproject.toml", ".clang-format"):
        (tmp_path / name).write_bytes((root / name).read_bytes())
    (tmp_path / "perf").mkdir()
    (tmp_path / "perf" / "good.py").write_text(HEAD + '"""Good."""\n\n\ndef f(x: int) -> int:\n    return x\n')
    (tmp_path / "good.cc").write_text(CPP_HEAD + "int f(int x) { return x; }\n")
    return tmp_path


def check(checkout: Path, name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([TOOLS / "check", "--root", checkout, name], capture_output=True, text=True, timeout=120)


FAULTS = {
    "ruff": ("perf/bad.py", HEAD + '"""Bad."""\n\nimport os\n', "os"),
    "ruff-format": ("perf/bad.py", HEAD + '"""Bad."""\n\nx = {  1:2 }\n', "bad.py"),
    "mypy": ("perf/bad.py", HEAD + '"""Bad."""\n\n\ndef f(x: int) -> str:\n    return x\n', "bad.py:7"),
    "clang-format": ("bad.cc", CPP_HEAD + "int  f( int x ){return x;}\n", "bad.cc"),
    "spdx": ("bad.sh", "#!/bin/sh\nexit 0\n", "bad.sh"),
    "registry-hosts": ("bad.md", HEAD + "see https://files.python" + "hosted.org/x\n", "bad.md:3"),
    "whitespace": ("bad.md", HEAD + "text \n", "bad.md:3"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_check_passes_good_files_and_sees_a_bad_one(checkout: Path, name: str) -> None:
    good = check(checkout, name)
    assert good.returncode == 0, good.stdout + good.stderr
    file, text, words = FAULTS[name]
    (checkout / file).write_text(text)
    bad = check(checkout, name)
    assert bad.returncode == 1
    assert words in bad.stdout
    assert f"failed: {name}" in bad.stderr


def test_check_refuses_an_unknown_name(checkout: Path) -> None:
    done = check(checkout, "spelling")
    assert done.returncode == 1 and "no check named spelling" in done.stderr


def ptxas(name: str, stores: int, loads: int) -> str:
    return (
        f"ptxas info    : Function properties for _Z{len(name)}{name}v\n"
        f"    64 bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads\n"
        "ptxas info    : Compile time = 1.000 ms\n"
    )


def registers(tmp_path: Path, *reports: str) -> subprocess.CompletedProcess[str]:
    log = tmp_path / "ptxas.log"
    log.write_text("".join(reports))
    return subprocess.run([TOOLS / "registers", log], capture_output=True, text=True)


SIMPLE = ptxas("ncclDevFunc_AllReduce_Sum_bf16_RING_SIMPLE", 632, 1368)
UZIP = "ncclDevFunc_AllReduce_Sum_bf16_RING_UZIP"


def test_registers_compares_with_the_twin(tmp_path: Path) -> None:
    done = registers(tmp_path, SIMPLE, ptxas(UZIP, 632, 1000))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].split() == [
        "AllReduce_Sum_bf16_RING_UZIP",
        "-",
        "-",
        *["64", "64", "632", "632", "1000", "1368"],
    ]


@pytest.mark.parametrize(("stores", "loads"), [(633, 1368), (632, 1369)])
def test_registers_fails_when_uzip_spills_more(tmp_path: Path, stores: int, loads: int) -> None:
    done = registers(tmp_path, SIMPLE, ptxas(UZIP, stores, loads))
    assert done.returncode == 1
    assert f"{UZIP}: spills {stores}/{loads} bytes, its twin 632/1368" in done.stderr


def test_registers_takes_the_last_report_of_a_function(tmp_path: Path) -> None:
    assert registers(tmp_path, SIMPLE, ptxas(UZIP, 9999, 0), ptxas(UZIP, 0, 0)).returncode == 0


@pytest.mark.parametrize(
    ("reports", "words"),
    [((SIMPLE,), "no UZIP function"), ((ptxas(UZIP, 0, 0),), f"{UZIP}: no Simple twin"), ((), "no UZIP function")],
)
def test_registers_fails_when_there_is_nothing_to_compare(tmp_path: Path, reports: tuple[str, ...], words: str) -> None:
    done = registers(tmp_path, *reports)
    assert done.returncode == 1 and words in done.stderr
