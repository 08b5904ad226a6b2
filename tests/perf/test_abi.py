# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""The structures that perf/src/nccl_api.h declares for itself are those of nccl_uzip.h."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FIELDS = {
    "Stats": [
        "size", "sendRawBytes", "sendWireBytes", "recvRawBytes", "recvWireBytes", "sendSlices", "sendSlicesRaw",
        "fwdSlices", "recvSlices", "ops", "padBytes",
    ],
    "Policy": ["size", "enabled", "reason", "links", "types", "minBytes", "exact", "forced"],
}  # fmt: skip


def compiles(tmp_path: Path, checks: list[str]) -> bool:
    (tmp_path / "nccl.h").write_text("typedef int ncclResult_t;\ntypedef struct ncclComm* ncclComm_t;\n")
    source = tmp_path / "abi.cc"
    source.write_text('#include "nccl_api.h"\n#include "nccl_uzip.h"\n' + "\n".join(checks) + "\n")
    include = [f"-I{tmp_path}", f"-I{ROOT}/perf/src", f"-I{ROOT}/nccl-uzip/src/include"]
    done = subprocess.run(["g++", "-std=c++17", *include, "-fsyntax-only", str(source)], capture_output=True, text=True)
    assert done.returncode == 0 or "static assertion failed" in done.stderr, done.stderr
    return done.returncode == 0


def offset(struct: str, field: str, other: str) -> str:
    ours, theirs = f"perf::Uzip{struct}", f"ncclUzip{struct}_t"
    return f"static_assert(offsetof({ours}, {field}) == offsetof({theirs}, {other}));"


@pytest.mark.parametrize("struct", FIELDS)
def test_same_layout(tmp_path: Path, struct: str) -> None:
    ours, theirs = f"perf::Uzip{struct}", f"ncclUzip{struct}_t"
    checks = [f"static_assert(sizeof({ours}) == sizeof({theirs}));"]
    for field in FIELDS[struct]:
        checks += [offset(struct, field, field)]
        checks += [f"static_assert(sizeof({ours}::{field}) == sizeof({theirs}::{field}));"]
    assert compiles(tmp_path, checks)
    header = (ROOT / "nccl-uzip/src/include/nccl_uzip.h").read_text()
    body = re.search(r"typedef struct \{([^}]*)\} " + theirs, header)
    assert body is not None
    assert re.findall(r"(\w+)(?:\[\d+\])?[,;]", re.sub(r"//.*", "", body[1])) == FIELDS[struct]


def test_a_different_layout_is_seen(tmp_path: Path) -> None:
    assert not compiles(tmp_path, [offset("Stats", "ops", "padBytes")])
