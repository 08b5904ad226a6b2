# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""The slow, obvious decoder of UZIP slots, written from docs/FORMAT.md alone.

It shares nothing with the kernels: no constant, no size formula, no trick. Readable first; a few MB/s at best.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

MAGIC = 0x00015A55
HEADER_BYTES = 32
TILE = 1024
TILES_PER_GROUP = 32

CODEC_RAW, CODEC_LEVELS = 0, 1
FLAG_POISON = 1
KIND_LEVELS, KIND_RAW, KIND_CONST = 0, 1, 2

ERRORS = {1: "MAGIC", 2: "HEADER", 3: "LENGTH", 4: "CAPACITY", 5: "TILE", 6: "POISON"}
ERR_MAGIC, ERR_HEADER, ERR_LENGTH, ERR_CAPACITY, ERR_TILE, ERR_POISON = ERRORS

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class FloatType:
    """What the format says about a float type: its number, element bytes, a tile's fixed bytes and RAW words."""

    name: str
    number: int
    element_bytes: int
    fixed_bytes: int
    raw_words: int


BF16 = FloatType("bf16", 1, 2, 1024, 256)
F16 = FloatType("f16", 2, 2, 1024 + 3 * 32 * 4, 5 * 32)
F32 = FloatType("f32", 3, 4, 2048 + 1024, 256)
TYPES = {t.name: t for t in (BF16, F16, F32)}
BY_NUMBER = {t.number: t for t in TYPES.values()}


class Undefined(Exception):
    """A tile that no encoder makes and no decoder refuses, whose content the format leaves open."""


class Refused(Exception):
    """A slot that a decoder must refuse: `code` is the format's error number, `tile` the tile at fault or None."""

    def __init__(self, code: int, why: str, tile: int | None = None) -> None:
        super().__init__(f"ERR_{ERRORS[code]}: {why}")
        self.code = code
        self.why = why
        self.tile = tile


@dataclass(frozen=True)
class Header:
    magic: int
    codec: int
    type: int
    flags: int
    tail_bytes: int
    raw_bytes: int
    wire_bytes: int
    var_bytes: int
    reserved: int
    tail: bytes

    @staticmethod
    def unpack(data: bytes) -> Header:
        return Header(*struct.unpack("<IBBBBIIII8s", data[:HEADER_BYTES]))

    def pack(self) -> bytes:
        return struct.pack(
            "<IBBBBIIII8s",
            self.magic,
            self.codec,
            self.type,
            self.flags,
            self.tail_bytes,
            self.raw_bytes,
            self.wire_bytes,
            self.var_bytes,
            self.reserved,
            self.tail,
        )


@dataclass(frozen=True)
class Layout:
    """Where the sections of a LEVELS slot begin, in bytes."""

    elems: int
    tiles: int
    groups: int
    table: int
    fixed: int
    var: int

    @staticmethod
    def of(ftype: FloatType, raw_bytes: int) -> Layout:
        elems = raw_bytes // ftype.element_bytes
        tiles = -(-elems // TILE)
        table = HEADER_BYTES + 4 * -(-tiles // TILES_PER_GROUP)
        fixed = -(-(table + 2 * tiles) // 16) * 16
        return Layout(elems, tiles, HEADER_BYTES, table, fixed, fixed + tiles * ftype.fixed_bytes)


def byte_plane_bit(i: int, b: int) -> int:
    """Bit of a lane's word in a byte plane that belongs to byte b of exponent word i."""
    return 8 * b + i


def level_plane_bit(i: int, b: int) -> int:
    """The same for a level plane."""
    return 16 * (b & 1) + 8 * (i >> 2) + 4 * (b >> 1) + (i & 3)


def values_of_plane(bit_of: Callable[[int, int], int]) -> npt.NDArray[np.int64]:
    """The value v that bit `bit` of lane l's plane word belongs to, at index 32 l + bit."""
    values = np.empty(TILE, dtype=np.int64)
    for lane in range(32):
        for i in range(8):
            for b in range(4):
                k, h = divmod(i, 2)
                j = 4 * h + b
                values[32 * lane + bit_of(i, b)] = 256 * k + 8 * lane + j
    return values


BYTE_PLANE = values_of_plane(byte_plane_bit)
LEVEL_PLANE = values_of_plane(level_plane_bit)  # lane order


def bits_of(words: Words, count: int) -> Bytes:
    """The first `count` bits of words: bit q is bit q % 32 of word q / 32."""
    return np.unpackbits(words.astype("<u4").view(np.uint8), bitorder="little")[:count]


def byte_plane(words: Words) -> Bytes:
    """The bits of a byte plane in value order."""
    bits = np.empty(TILE, dtype=np.uint8)
    bits[BYTE_PLANE] = bits_of(words, TILE)
    return bits


def check_header(slot: bytes, expected_raw_bytes: int) -> Header:
    """The slot's header, if it is one that a decoder takes for a slice of `expected_raw_bytes`; raises Refused."""
    if len(slot) < HEADER_BYTES:
        raise Refused(ERR_CAPACITY, f"a slot of {len(slot)} bytes holds no header")
    h = Header.unpack(slot)
    if h.magic != MAGIC:
        raise Refused(ERR_MAGIC, f"magic is {h.magic:#010x}")
    if h.codec not in (CODEC_RAW, CODEC_LEVELS):
        raise Refused(ERR_HEADER, f"codec is {h.codec}")
    if h.flags & ~FLAG_POISON:
        raise Refused(ERR_HEADER, f"flags are {h.flags:#04x}")
    if h.reserved != 0:
        raise Refused(ERR_HEADER, f"reserved is {h.reserved}")
    if h.raw_bytes != expected_raw_bytes:
        raise Refused(ERR_LENGTH, f"rawBytes is {h.raw_bytes}, the slice holds {expected_raw_bytes}")
    if h.codec == CODEC_RAW:
        if h.type or h.tail_bytes or h.var_bytes:
            raise Refused(ERR_HEADER, "RAW with type, tailBytes or varBytes")
        wire = HEADER_BYTES if h.flags & FLAG_POISON else HEADER_BYTES + h.raw_bytes
    else:
        if h.flags & FLAG_POISON:
            raise Refused(ERR_HEADER, "POISON with codec LEVELS")
        if h.type not in BY_NUMBER:
            raise Refused(ERR_HEADER, f"LEVELS of type {h.type}")
        ftype = BY_NUMBER[h.type]
        if h.raw_bytes < ftype.element_bytes:
            raise Refused(ERR_HEADER, "LEVELS without an element")
        if h.tail_bytes != h.raw_bytes % ftype.element_bytes:
            raise Refused(ERR_HEADER, f"tailBytes is {h.tail_bytes}")
        if h.var_bytes % 4:
            raise Refused(ERR_HEADER, f"varBytes is {h.var_bytes}")
        wire = Layout.of(ftype, h.raw_bytes).var + h.var_bytes
    if h.wire_bytes != wire:
        raise Refused(ERR_HEADER, f"wireBytes is {h.wire_bytes}, the sections make {wire}")
    if h.wire_bytes > len(slot):
        raise Refused(ERR_CAPACITY, f"wireBytes is {h.wire_bytes}, the slot holds {len(slot)}")
    return h


def decode_tile(ftype: FloatType, kind: int, var: Words) -> Bytes:
    """The 1024 exponent symbols in value order of a tile whose variable part is `var`; raises Refused, Undefined."""
    symbols = np.empty(TILE, dtype=np.uint8)
    if kind == KIND_CONST:
        if len(var) != 1:
            raise Refused(ERR_TILE, f"CONST of {len(var)} words")
        symbols[:] = int(var[0]) & 0xFF
        return symbols
    if kind == KIND_RAW:
        if len(var) != ftype.raw_words:
            raise Refused(ERR_TILE, f"RAW of {len(var)} words")
        if ftype is F16:
            symbols[:] = sum(byte_plane(var[32 * p : 32 * p + 32]) << p for p in range(5))
            return symbols
        for lane in range(32):
            for i in range(8):
                for b in range(4):
                    k, h = divmod(i, 2)
                    symbols[256 * k + 8 * lane + 4 * h + b] = int(var[32 * i + lane]) >> 8 * b & 0xFF
        return symbols
    if kind != KIND_LEVELS:
        raise Refused(ERR_TILE, f"kind {kind}")
    if not 66 <= len(var) < ftype.raw_words:
        raise Refused(ERR_TILE, f"LEVELS of {len(var)} words")

    head = int(var[0]) | int(var[1]) << 32
    w = head & 0xFF
    distance = [head >> (8 + 4 * r) & 0xF for r in range(13)]
    no_exponent = -1
    exponent = np.array([0 if d == 15 else w - d if d <= w else no_exponent for d in distance])

    in_lane_order = np.zeros(TILE, dtype=np.int64)
    places = np.arange(TILE)  # of the values that reach the current level
    at = 2

    def take(words: int) -> Words:
        nonlocal at
        if at + words > len(var):
            raise Refused(ERR_TILE, f"counts ask for more than the {len(var)} words of the tile")
        at += words
        return var[at - words : at]

    # Level 1: a plane for each bit, whose bits are in lane order.
    code = bits_of(take(32), TILE) + 2 * bits_of(take(32), TILE)
    in_lane_order[places[code < 3]] = exponent[code[code < 3]]
    places = places[code == 3]
    # Levels 2 and 3: runs of the values left.
    for bits, first_rank in ((2, 3), (3, 6)):
        run_words = -(-len(places) // 32)
        code = np.zeros(len(places), dtype=np.uint8)
        for bit in range(bits):
            code += bits_of(take(run_words), len(places)) << bit
        down = 2**bits - 1
        in_lane_order[places[code < down]] = exponent[first_rank + code[code < down]]
        places = places[code == down]
    # Level 4: bytes.
    in_lane_order[places] = take(-(-len(places) // 4)).astype("<u4").view(np.uint8)[: len(places)]
    if at != len(var):
        raise Refused(ERR_TILE, f"counts make {at} words, the table says {len(var)}")
    if (in_lane_order == no_exponent).any():
        raise Undefined("a rank that names no exponent is used")
    symbols[LEVEL_PLANE] = in_lane_order
    return symbols


def join(ftype: FloatType, symbols: Bytes, fixed: Bytes) -> Bytes:
    """The bytes of a tile's 1024 elements from its exponent symbols (value order) and its fixed section."""
    if ftype is BF16:
        r = symbols.astype(np.uint32) << 8 | fixed
        w = (r >> 1 | (r & 1) << 15).astype("<u2")
    elif ftype is F16:
        r = (symbols & 31).astype(np.uint32) << 11 | fixed[:1024]
        planes = fixed[1024:].view("<u4").reshape(3, 32)
        for p in range(3):
            r |= byte_plane(planes[p]).astype(np.uint32) << (8 + p)
        w = (r >> 1 | (r & 1) << 15).astype("<u2")
    else:
        low = fixed[:2048].view("<u2").astype(np.uint32)
        upper = fixed[2048:].astype(np.uint32)
        r = symbols.astype(np.uint32) << 24 | upper << 16 | low
        w = (r >> 1 | (r & 1) << 31).astype("<u4")
    return w.view(np.uint8)


def tile_extents(slot: bytes, h: Header) -> list[tuple[int, int, int]]:
    """(kind, words, byte offset in the variable section) of every tile of a LEVELS slot; checks nothing."""
    at = Layout.of(BY_NUMBER[h.type], h.raw_bytes)
    offset = 0
    extents = []
    for tile in range(at.tiles):
        if tile % TILES_PER_GROUP == 0:
            (offset,) = struct.unpack_from("<I", slot, at.groups + 4 * (tile // TILES_PER_GROUP))
        (entry,) = struct.unpack_from("<H", slot, at.table + 2 * tile)
        extents.append((entry >> 12, entry & 0xFFF, offset))
        offset += 4 * (entry & 0xFFF)
    return extents


def decode_one(slot: bytes, h: Header, tile: int, kind: int, words: int, offset: int) -> bytes:
    """The 1024 elements of a tile of a LEVELS slot whose header is in order; raises Refused or Undefined."""
    ftype = BY_NUMBER[h.type]
    at = Layout.of(ftype, h.raw_bytes)
    try:
        if offset % 4:
            raise Refused(ERR_TILE, f"group offset {offset}")
        if offset + 4 * words > h.var_bytes:
            raise Refused(ERR_TILE, f"bytes {offset} to {offset + 4 * words} of a section of {h.var_bytes}")
        symbols = decode_tile(ftype, kind, np.frombuffer(slot, "<u4", words, at.var + offset))
    except Refused as e:
        raise Refused(e.code, f"tile {tile}: {e.why}", tile) from None
    fixed = np.frombuffer(slot, np.uint8, ftype.fixed_bytes, at.fixed + tile * ftype.fixed_bytes)
    return join(ftype, symbols, fixed).tobytes()


def decode_tiles(slot: bytes, h: Header) -> list[bytes | Refused | Undefined]:
    """What each tile of a LEVELS slot holds whose header is in order, or what decode_one raises for it."""
    tiles: list[bytes | Refused | Undefined] = []
    for tile, extent in enumerate(tile_extents(slot, h)):
        try:
            tiles.append(decode_one(slot, h, tile, *extent))
        except (Refused, Undefined) as e:
            tiles.append(e)
    return tiles


def decode_slot(slot: bytes, expected_raw_bytes: int) -> bytes:
    """The slice of `expected_raw_bytes` bytes that `slot` (all the memory there is) stands for.

    Raises Refused, or Undefined when a tile's content is left open.
    """
    h = check_header(slot, expected_raw_bytes)
    if h.flags & FLAG_POISON:
        raise Refused(ERR_POISON, "an upstream rank met an error")
    if h.codec == CODEC_RAW:
        return slot[HEADER_BYTES : HEADER_BYTES + h.raw_bytes]
    ftype = BY_NUMBER[h.type]
    at = Layout.of(ftype, h.raw_bytes)
    out = b"".join(decode_one(slot, h, tile, *extent) for tile, extent in enumerate(tile_extents(slot, h)))
    return out[: at.elems * ftype.element_bytes] + h.tail[: h.tail_bytes]
