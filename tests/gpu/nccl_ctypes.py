# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""The few calls of NCCL that the GPU tests need, by ctypes. Needs neither torch nor the nccl_uzip package."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

DTYPES = {"i8": 0, "u8": 1, "i32": 2, "i64": 4, "f16": 6, "f32": 7, "f64": 8, "bf16": 9}
ELEMENT_BYTES = {"i8": 1, "u8": 1, "i32": 4, "i64": 8, "f16": 2, "f32": 4, "f64": 8, "bf16": 2}
OPS = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4}
SCALAR_DEVICE, SCALAR_HOST = 0, 1
SUCCESS, IN_PROGRESS = 0, 7


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


class UzipStats(ctypes.Structure):
    """ncclUzipStats_t of nccl_uzip.h."""

    COUNTERS = (
        *("sendRawBytes", "sendWireBytes", "recvRawBytes", "recvWireBytes"),
        *("sendSlices", "sendSlicesRaw", "fwdSlices", "recvSlices", "ops", "padBytes"),
    )
    _fields_ = [("size", ctypes.c_size_t), *((name, ctypes.c_uint64) for name in COUNTERS)]

    def as_dict(self) -> dict[str, int]:
        return {name: int(getattr(self, name)) for name in self.COUNTERS}


class UzipPolicy(ctypes.Structure):
    """ncclUzipPolicy_t of nccl_uzip.h."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("enabled", ctypes.c_int),
        ("reason", ctypes.c_char * 256),
        ("links", ctypes.c_uint32),
        ("types", ctypes.c_uint32),
        ("minBytes", ctypes.c_uint64),
        ("exact", ctypes.c_int),
        ("forced", ctypes.c_int),
    ]


class NcclFailure(RuntimeError):
    """A call of NCCL that did not return ncclSuccess."""


class Nccl:
    """libnccl-uzip.so, loaded so that everything loaded later (torch) uses it too: load it before importing torch."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise SystemExit(f"error: no NCCL library at {path}; build it (make lib) or name it with --lib")
        self.lib = ctypes.CDLL(str(path.resolve()), mode=os.RTLD_NOW | os.RTLD_GLOBAL)
        self.lib.ncclGetLastError.restype = ctypes.c_char_p
        self.lib.ncclGetErrorString.restype = ctypes.c_char_p
        size, ptr, i = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int
        prototypes: dict[str, list[Any]] = {
            "ncclGetUniqueId": [ptr],
            "ncclCommInitRank": [ptr, i, UniqueId, i],
            "ncclCommDestroy": [ptr],
            "ncclCommAbort": [ptr],
            "ncclCommGetAsyncError": [ptr, ptr],
            "ncclAllReduce": [ptr, ptr, size, i, i, ptr, ptr],
            "ncclBroadcast": [ptr, ptr, size, i, i, ptr, ptr],
            "ncclAllGather": [ptr, ptr, size, i, ptr, ptr],
            "ncclReduceScatter": [ptr, ptr, size, i, i, ptr, ptr],
            "ncclReduce": [ptr, ptr, size, i, i, i, ptr, ptr],
            "ncclRedOpCreatePreMulSum": [ptr, ptr, i, i, ptr],
            "ncclRedOpDestroy": [i, ptr],
            "ncclGroupStart": [],
            "ncclGroupEnd": [],
            "ncclUzipCommGetStats": [ptr, ptr],
            "ncclUzipCommResetStats": [ptr],
            "ncclUzipCommGetPolicy": [ptr, ptr],
        }
        for name, argtypes in prototypes.items():
            try:
                function = getattr(self.lib, name)
            except AttributeError:
                raise SystemExit(f"error: {path} has no {name}: it is not libnccl-uzip.so") from None
            function.argtypes, function.restype = argtypes, i

    def check(self, what: str, code: int, comm: int | None = None) -> None:
        if code != SUCCESS:
            text = self.lib.ncclGetErrorString(code).decode()
            last = (self.lib.ncclGetLastError(ctypes.c_void_p(comm)) or b"").decode(errors="replace").strip()
            raise NcclFailure(f"{what}: {text} ({code}){': ' + last if last else ''}")

    def unique_id(self) -> bytes:
        uid = UniqueId()
        self.check("ncclGetUniqueId", self.lib.ncclGetUniqueId(ctypes.byref(uid)))
        return bytes(uid)

    def init_rank(self, ranks: int, uid: bytes, rank: int) -> int:
        comm = ctypes.c_void_p()
        code = self.lib.ncclCommInitRank(ctypes.byref(comm), ranks, UniqueId.from_buffer_copy(uid), rank)
        self.check("ncclCommInitRank", code)
        assert comm.value is not None
        return comm.value

    def async_error(self, comm: int) -> int:
        code = ctypes.c_int()
        self.check("ncclCommGetAsyncError", self.lib.ncclCommGetAsyncError(comm, ctypes.byref(code)), comm)
        return code.value

    def stats(self, comm: int) -> dict[str, int]:
        stats = UzipStats(size=ctypes.sizeof(UzipStats))
        self.check("ncclUzipCommGetStats", self.lib.ncclUzipCommGetStats(comm, ctypes.byref(stats)), comm)
        return stats.as_dict()

    def policy(self, comm: int) -> dict[str, object]:
        policy = UzipPolicy(size=ctypes.sizeof(UzipPolicy))
        self.check("ncclUzipCommGetPolicy", self.lib.ncclUzipCommGetPolicy(comm, ctypes.byref(policy)), comm)
        return {"enabled": policy.enabled, "reason": policy.reason.decode(errors="replace"), "forced": policy.forced}
