# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
STOCK = "int ncclGetVersion(int* v) { *v = 22809; return 0; }\n"


def _compile(source: Path, target: Path) -> Path:
    command = ["cc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-Wl,-soname,libnccl.so.2"]
    subprocess.run([*command, "-o", str(target), str(source), "-lrt"], check=True)
    return target


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A libnccl-uzip.so without a GPU behind it (fake_nccl.c)."""
    return _compile(HERE / "fake_nccl.c", tmp_path_factory.mktemp("fake") / "libnccl-uzip.so")


@pytest.fixture(scope="session")
def stock_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A libnccl.so.2 without any ncclUzip symbol."""
    folder = tmp_path_factory.mktemp("stock")
    source = folder / "stock.c"
    source.write_text(STOCK)
    return _compile(source, folder / "libnccl.so.2")
