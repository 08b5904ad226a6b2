# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""libuzip_codec.so as a C library: arguments, and calls from several threads. tests/codec tests what it encodes."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from emulated_ranks import CAPACITY, OK

BAD_ARGUMENT = 100  # UZIP_LIB_ERR_ARGUMENT
MAX_RAW_BYTES = 1 << 28


class Codec:
    def __init__(self, path: Path) -> None:
        self.lib = ctypes.CDLL(str(path))
        self.lib.uzip_max_wire_bytes.restype = ctypes.c_uint64
        self.lib.uzip_max_wire_bytes.argtypes = [ctypes.c_uint64]

    def room(self, raw_bytes: int) -> int:
        return int(self.lib.uzip_max_wire_bytes(raw_bytes))

    def encode(self, ftype: int, raw: bytes, warps: int = 4, capacity: int | None = None) -> tuple[int, bytes]:
        room = self.room(len(raw)) if capacity is None else capacity
        slot = ctypes.create_string_buffer(max(room, 1))
        wire = ctypes.c_uint32()
        code = self.lib.uzip_encode_slot(
            ftype, raw, len(raw), slot, ctypes.c_uint64(room), ctypes.byref(wire), warps, None
        )
        return code, slot.raw[: wire.value]

    def decode(self, slot: bytes, raw_bytes: int, warps: int = 4) -> tuple[int, bytes]:
        raw = ctypes.create_string_buffer(b"\xaa" * raw_bytes, raw_bytes)
        code = self.lib.uzip_decode_slot(slot, ctypes.c_uint64(len(slot)), raw, raw_bytes, warps)
        return code, raw.raw


@pytest.fixture(scope="module")
def codec(cpu: Path) -> Codec:
    return Codec(cpu / "libuzip_codec.so")


@pytest.fixture(scope="module")
def values(payloads: Path) -> bytes:
    return (payloads / "normal.bf16").read_bytes()


def test_calls_from_several_threads(codec: Codec, values: bytes) -> None:
    sizes = [4096 + 977 * i for i in range(48)]

    def round_trip(size: int) -> tuple[int, bool, bytes]:
        code, slot = codec.encode(1, values[:size], warps=1 + size % 16)
        again, raw = codec.decode(slot, size, warps=1 + size % 15)
        return code | again, raw == values[:size], slot

    alone = [round_trip(size) for size in sizes]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(round_trip, sizes))
    assert together == alone
    assert all(code == OK and same for code, same, _ in alone)


def test_arguments(codec: Codec, values: bytes) -> None:
    raw = values[:8192]
    for code, _ in (
        codec.encode(4, raw),
        codec.encode(-1, raw),
        codec.encode(1, b""),
        codec.encode(1, raw, warps=0),
        codec.encode(1, raw, warps=17),
    ):
        assert code == BAD_ARGUMENT
    assert codec.encode(1, raw, capacity=codec.room(len(raw)) - 1)[0] == CAPACITY
    _, slot = codec.encode(1, raw)
    assert codec.decode(slot, 8192, warps=17)[0] == BAD_ARGUMENT
    assert codec.decode(slot, 0)[0] == BAD_ARGUMENT
    assert codec.lib.uzip_decode_slot(None, ctypes.c_uint64(32), raw, 32, 4) == BAD_ARGUMENT
    # No memory of that size is touched.
    assert codec.lib.uzip_decode_slot(slot, ctypes.c_uint64(len(slot)), raw, MAX_RAW_BYTES + 1, 4) == BAD_ARGUMENT


@pytest.mark.parametrize("keep", [0, 1, 31])
def test_slot_smaller_than_a_header(codec: Codec, values: bytes, keep: int) -> None:
    _, slot = codec.encode(1, values[:8192])
    assert codec.decode(slot[:keep], 8192) == (CAPACITY, bytes(8192))
