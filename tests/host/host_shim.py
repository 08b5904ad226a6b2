# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""The host logic for its tests: compiling it, and calling policy and model through shim.cc."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "nccl-uzip" / "src"
HERE = Path(__file__).parent
FLAGS = ["-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fPIC"]


def compile_cxx(output: Path, sources: Sequence[Path], flags: Sequence[str] = ()) -> Path:
    """Compile and link with the C++ compiler; the test fails with the compiler's own words."""
    cxx = os.environ.get("CXX") or "g++"
    if not shutil.which(cxx):
        pytest.fail(f"{cxx}: C++ compiler not found; install g++ or set CXX")
    done = subprocess.run(
        [cxx, *FLAGS, *map(str, sources), *flags, "-o", str(output)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return output


class Policy(ctypes.Structure):
    """struct uzipPolicy."""

    _fields_ = [
        ("version", ctypes.c_uint32),
        ("format", ctypes.c_uint32),
        ("enable", ctypes.c_uint32),
        ("exact", ctypes.c_uint32),
        ("min_bytes", ctypes.c_uint64),
        ("functions", ctypes.c_uint64),
        ("buff_bytes", ctypes.c_int64),
        ("type_mask", ctypes.c_uint32),
        ("net_device", ctypes.c_uint32),
        ("unpadded", ctypes.c_uint32),
        ("unaligned", ctypes.c_uint32),
        ("threads", ctypes.c_uint32),
        ("model", ctypes.c_uint32),
        ("modes", ctypes.c_uint8 * 8),
    ]


class Ring(ctypes.Structure):
    """struct uzipRing."""

    _fields_ = [
        ("ranks", ctypes.c_int),
        ("nodes", ctypes.c_int),
        ("graph_channels", ctypes.c_int),
        ("channels", ctypes.c_int),
        ("threads", ctypes.c_int),
        ("bw_intra", ctypes.c_float),
        ("bw_inter", ctypes.c_float),
    ]


class Host:
    """The policy and the model, through shim.cc."""

    TEXT = 4096

    def __init__(self, library: ctypes.CDLL) -> None:
        self.lib = library
        for name in ("shimRatio", "shimCopyRatio", "shimGain", "shimTime"):
            getattr(library, name).restype = ctypes.c_double
        for name in ("shimWord", "shimThreads", "shimModelWord"):
            getattr(library, name).restype = ctypes.c_uint32
        library.shimErrorText.restype = ctypes.c_char_p

    def parse(
        self,
        enable: str | None = None,
        min_bytes: str | None = None,
        exact: str | None = None,
        proto: str | None = None,
    ) -> tuple[bool, Policy, str, str]:
        """(accepted, policy, NCCL_PROTO for NCCL's parser, error)."""
        policy = Policy()
        upstream, error = (ctypes.create_string_buffer(self.TEXT) for _ in range(2))
        values = [None if v is None else v.encode() for v in (enable, min_bytes, exact, proto)]
        size = ctypes.c_size_t(self.TEXT)
        ok = self.lib.shimParseKnobs(*values, ctypes.byref(policy), upstream, error, size)
        return bool(ok), policy, upstream.value.decode(), error.value.decode()

    def text(self, function: str, *args: object) -> str:
        out = ctypes.create_string_buffer(self.TEXT)
        getattr(self.lib, function)(*args, out, ctypes.c_size_t(self.TEXT))
        return out.value.decode()

    def agree(self, words: Sequence[int]) -> tuple[int, str]:
        """(0 agreed, 1 a rank is absent, 2 they differ; message)."""
        message = ctypes.create_string_buffer(self.TEXT)
        array = (ctypes.c_uint32 * len(words))(*words)
        result = self.lib.shimAgree(array, len(words), message, ctypes.c_size_t(self.TEXT))
        return result, message.value.decode()

    def ratio(self, kind: int) -> float:
        return float(self.lib.shimRatio(ctypes.c_uint32(kind)))

    def gain(self, ring: Ring, ratio: float) -> float:
        return float(self.lib.shimGain(ctypes.byref(ring), ctypes.c_double(ratio)))

    def time(self, simple: float, transfer: float, gain: float, steps: int, ops: int = 1) -> float:
        doubles = [ctypes.c_double(v) for v in (simple, transfer, gain)]
        return float(self.lib.shimTime(*doubles, steps, ops))
