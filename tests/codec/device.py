# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""The kernels' codec under the warp emulator, through the C library libuzip_codec.so, in buffers with guard bytes."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path

import numpy as np

from oracle import FloatType

ROOT = Path(__file__).resolve().parents[2]
GUARD = 64
GUARD_BYTE = 0xA7


@cache
def library() -> ctypes.CDLL:
    """libuzip_codec.so: UZIP_CODEC_LIB, else what the build made."""
    path = Path(os.environ.get("UZIP_CODEC_LIB", ROOT / "build" / "cpu" / "libuzip_codec.so"))
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: run `make cpu`, or name the library in UZIP_CODEC_LIB")
    lib = ctypes.CDLL(str(path))
    u32_p = ctypes.POINTER(ctypes.c_uint32)
    lib.uzip_encode_slot.restype = ctypes.c_int
    lib.uzip_encode_slot.argtypes = [
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.c_void_p,
        ctypes.c_uint64,
        u32_p,
        ctypes.c_int,
        u32_p,
    ]
    lib.uzip_decode_slot.restype = ctypes.c_int
    lib.uzip_decode_slot.argtypes = [
        ctypes.c_void_p,
        ctypes.c_uint64,
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.c_int,
    ]
    lib.uzip_max_wire_bytes.restype = ctypes.c_uint64
    lib.uzip_max_wire_bytes.argtypes = [ctypes.c_uint64]
    lib.uzip_step_pad.restype = ctypes.c_uint32
    lib.uzip_step_pad.argtypes = [ctypes.c_uint32]
    return lib


class Guarded:
    """`size` bytes at an address that is `align_off` past a multiple of 16, between guard bytes."""

    def __init__(self, size: int, align_off: int = 0, fill: int = 0xCC) -> None:
        # Behind the buffer there is room for an encoder that does not stop: that is to fail a test, not to crash it.
        self._all = np.full(GUARD + 16 + size + size // 2 + 8192, GUARD_BYTE, dtype=np.uint8)
        self._at = GUARD + (align_off - self._all.ctypes.data - GUARD) % 16
        self.size = size
        self.bytes = self._all[self._at : self._at + size]
        self.bytes[:] = fill

    @property
    def address(self) -> int:
        return int(self._all.ctypes.data) + self._at

    def check(self) -> None:
        assert (self._all[: self._at] == GUARD_BYTE).all(), "bytes before the buffer were written"
        assert (self._all[self._at + self.size :] == GUARD_BYTE).all(), "bytes behind the buffer were written"


def max_wire_bytes(raw_bytes: int) -> int:
    return int(library().uzip_max_wire_bytes(raw_bytes))


def step_pad(step_bytes: int) -> int:
    return int(library().uzip_step_pad(step_bytes))


def encode(
    ftype: FloatType,
    raw: bytes,
    nwarps: int = 4,
    capacity: int | None = None,
    align_off: int = 0,
    backoff: ctypes.c_uint32 | None = None,
) -> tuple[int, bytes]:
    """(error, slot): the slice encoded into a slot of `capacity` bytes, by default the most one can take."""
    capacity = max_wire_bytes(len(raw)) if capacity is None else capacity
    source, slot = Guarded(len(raw), align_off), Guarded(capacity)
    source.bytes[:] = np.frombuffer(raw, np.uint8)
    wire = ctypes.c_uint32(0)
    state = ctypes.c_uint32(0) if backoff is None else backoff
    error = library().uzip_encode_slot(
        ftype.number, source.address, len(raw), slot.address, capacity, ctypes.byref(wire), nwarps, ctypes.byref(state)
    )
    source.check()
    slot.check()
    assert source.bytes.tobytes() == raw, "the slice was changed"
    if error:
        return error, b""
    assert wire.value <= capacity
    return 0, slot.bytes[: wire.value].tobytes()


def decode(slot: bytes, raw_bytes: int, nwarps: int = 4, align_off: int = 0) -> tuple[int, bytes]:
    """(error, raw): what the slot decodes to for a slice of `raw_bytes`; the slot is all the memory there is."""
    source, out = Guarded(len(slot)), Guarded(raw_bytes, align_off)
    source.bytes[:] = np.frombuffer(slot, np.uint8)
    error = library().uzip_decode_slot(source.address, len(slot), out.address, raw_bytes, nwarps)
    source.check()
    out.check()
    assert source.bytes.tobytes() == slot, "the slot was changed"
    return error, out.bytes.tobytes()
