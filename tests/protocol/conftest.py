# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Payload files and the programs of nccl-uzip/emu for the protocol's tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from emulated_ranks import Ranks, write_payloads


@pytest.fixture(scope="session")
def cpu(build: Path) -> Path:
    """Where the programs are: UZIP_CPU, else where the build puts them."""
    return Path(os.environ.get("UZIP_CPU", build / "cpu"))


@pytest.fixture(scope="session")
def payloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with NAME.TYPE files: normal, random and zeros in bf16, f16 and f32."""
    folder = tmp_path_factory.mktemp("payloads")
    write_payloads(folder)
    return folder


@pytest.fixture
def ranks(cpu: Path, payloads: Path, tmp_path: Path) -> Ranks:
    """Runs uzip_ranks."""
    return Ranks(cpu / "uzip_ranks", payloads, tmp_path)


@pytest.fixture
def ranks_san(cpu: Path, payloads: Path, tmp_path: Path) -> Ranks:
    """Runs uzip_ranks built with AddressSanitizer and UndefinedBehaviorSanitizer."""
    return Ranks(cpu / "uzip_ranks_san", payloads, tmp_path)
