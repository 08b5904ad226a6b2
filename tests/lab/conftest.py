# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the lab's tests, which use namespaces of their own and nothing of the machine's network."""

from __future__ import annotations

import glob
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from perf.lab import net  # noqa: E402
from perf.lab.owner import PREFIX  # noqa: E402

Runner = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def namespaces() -> None:
    """Skip where network namespaces cannot be made at all; anything else that goes wrong is a failure."""
    try:
        os.close(net.new_namespace())
    except PermissionError as err:
        pytest.skip(f"the right to make network namespaces is lacking (CAP_SYS_ADMIN, CAP_NET_ADMIN): {err}")


def lab_command(*args: str) -> list[str]:
    return [sys.executable, "-m", "perf.lab", *args]


@pytest.fixture
def lab_env() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.fixture
def run_lab(lab_env: dict[str, str]) -> Runner:
    """Run the lab's command line to its end."""

    def run(*args: str, timeout: float = 60, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            lab_command(*args), env={**lab_env, **env}, capture_output=True, text=True, timeout=timeout, check=False
        )

    return run


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


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Fail if interfaces of this namespace or folders of labs differ after the test."""

    def state() -> tuple[list[str], list[str]]:
        folders = [f for f in glob.glob(f"/tmp/{PREFIX}*")]
        return sorted(os.listdir("/sys/class/net")), sorted(folders)

    before = state()
    yield
    assert state() == before
