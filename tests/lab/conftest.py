# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the lab's tests, which use namespaces of their own and nothing of the machine's network."""

from __future__ import annotations

import glob
import os
import subprocess
from collections.abc import Iterator

import pytest

from lab_helpers import ROOT, Runner, lab_command
from perf.lab import net
from perf.lab.owner import PREFIX


@pytest.fixture(scope="session")
def namespaces() -> None:
    """Skip where network namespaces cannot be made at all; anything else that goes wrong is a failure."""
    try:
        os.close(net.new_namespace())
    except PermissionError as err:
        pytest.skip(f"the right to make network namespaces is lacking (CAP_SYS_ADMIN, CAP_NET_ADMIN): {err}")


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


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Fail if interfaces of this namespace or folders of this test's labs are there after the test."""

    def state() -> tuple[set[str], set[str]]:
        return set(os.listdir("/sys/class/net")), set(glob.glob(f"/tmp/{PREFIX}*"))

    interfaces, folders = state()
    yield
    now_interfaces, now_folders = state()
    assert now_interfaces == interfaces
    assert now_folders <= folders
