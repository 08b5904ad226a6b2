# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""The warp emulator: its collectives, barriers and functions, and that it finds wrong use of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

FAILURES = {
    "fail-barrier-deadlock": (
        "deadlock",
        "waits at barrier 3 of 64 threads at emu_test.cc:",
        "returned: threads 32-63",
    ),
    "fail-different-collectives": ("threads of one warp are at different collectives", "in thread 4"),
    "fail-missing-lane": ("deadlock", "waits in __syncwarp, mask 0xffffffff, at emu_test.cc:", "threads 0-8 10-31"),
    "fail-returned-lane": ("names lanes that have returned", "returned: threads 0"),
    "fail-outside-mask": ("not in the mask of its own warp collective",),
    "fail-shuffle-outside-mask": ("a shuffle reads from a lane that is not in its mask",),
    "fail-barrier-counts": ("threads name different counts at one barrier",),
    "fail-part-of-warp": ("a barrier was completed by parts of warps",),
    "fail-polls-forever": ("poll for something that nobody will change", "polls at emu_test.cc:"),
}


def run(program: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *args], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("program", ["emu_test", "emu_test_san"])
def test_cases_hold(cpu: Path, program: str) -> None:
    done = run(cpu / program)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "10 cases hold\n"


@pytest.mark.parametrize("case", FAILURES)
def test_wrong_use_is_found(cpu: Path, case: str) -> None:
    done = run(cpu / "emu_test", case)
    assert done.returncode == -6  # abort()
    for text in FAILURES[case]:
        assert text in done.stderr


def test_stack_overflow_ends_the_program(cpu: Path) -> None:
    assert run(cpu / "emu_test", "fail-stack-overflow").returncode == -11


def test_every_failure_case_is_tested(cpu: Path) -> None:
    names = run(cpu / "emu_test", "--list").stdout.split()
    assert {n for n in names if n.startswith("fail-")} == {*FAILURES, "fail-stack-overflow"}
