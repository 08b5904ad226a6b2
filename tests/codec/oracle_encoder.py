# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""A slow encoder of UZIP slots, written from docs/FORMAT.md alone, that can make any legal tile.

The format leaves an encoder choices: the kind of a tile, the ranking of its exponents, how far down a value is sent.
The device code always chooses alike; this encoder lets the caller choose, so that decoders meet what they would
not otherwise.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from oracle import (
    BF16,
    BYTE_PLANE,
    CODEC_LEVELS,
    CODEC_RAW,
    F16,
    FLAG_POISON,
    HEADER_BYTES,
    KIND_CONST,
    KIND_LEVELS,
    KIND_RAW,
    LEVEL_PLANE,
    MAGIC,
    TILE,
    TILES_PER_GROUP,
    Bytes,
    FloatType,
    Header,
    Layout,
)


class NotRepresentable(ValueError):
    """The tile asked for does not exist in the format: too many words, or a CONST tile of several exponents."""


@dataclass(frozen=True)
class Ranking:
    """Head of a LEVELS tile: exponent W and the 13 distances below it; 15 stands for exponent 0."""

    w: int
    distances: tuple[int, ...]

    def exponents(self) -> list[int | None]:
        """By rank; None for one that names no exponent."""
        return [0 if d == 15 else self.w - d if d <= self.w else None for d in self.distances]

    def words(self) -> list[int]:
        head = self.w | sum(d << (8 + 4 * r) for r, d in enumerate(self.distances))
        return [head & 0xFFFFFFFF, head >> 32]


@dataclass
class TilePlan:
    """How to code a tile. `level_of`, (symbol, lowest level) -> level 1 to 4, may send a value deeper than needed."""

    kind: int | None = None
    ranking: Ranking | None = None
    level_of: Callable[[int, int], int] = field(default=lambda symbol, lowest: lowest)
    padding: int = 0  # byte that fills what is padding within the tile's variable part


def rank_by_frequency(symbols: Bytes) -> Ranking:
    """The ranking with W the exponent below which 15 consecutive ones (and 0) cover most values, commonest first."""
    count = Counter(symbols.tolist())
    cover = {w: sum(count[w - d] for d in range(15)) for w in range(256)}
    w = max(range(256), key=lambda candidate: (cover[candidate], candidate))
    choices = [*range(15), 15] if w > 14 else list(range(15))
    choices.sort(key=lambda d: (-count[0 if d == 15 else w - d], d))
    return Ranking(w, tuple(choices[:13]))


def split(ftype: FloatType, elements: Bytes) -> tuple[Bytes, bytes]:
    """Exponent symbols in value order and the fixed section of a tile's 1024 elements."""
    if ftype.element_bytes == 2:
        w = elements.view("<u2").astype(np.uint32)
        r = (w << 1 | w >> 15) & 0xFFFF
        low = (r & 0xFF).astype(np.uint8).tobytes()
        if ftype is BF16:
            return (r >> 8).astype(np.uint8), low
        assert ftype is F16
        planes = [bits_to_words((r[BYTE_PLANE] >> (8 + p) & 1).tolist()) for p in range(3)]
        return (r >> 11).astype(np.uint8), low + b"".join(struct.pack("<32I", *plane) for plane in planes)
    w = elements.view("<u4").astype(np.uint32)
    r = w << 1 | w >> 31
    low_halves = (r & 0xFFFF).astype("<u2").tobytes()
    upper = (r >> 16 & 0xFF).astype(np.uint8).tobytes()
    return (r >> 24).astype(np.uint8), low_halves + upper


def bits_to_words(bits: Sequence[int], padding: int = 0) -> list[int]:
    """Bits as words, bit q at bit q % 32 of word q / 32; what is left of the last word is filled from a byte."""
    words = [0] * -(-len(bits) // 32)
    for q, bit in enumerate(bits):
        words[q // 32] |= int(bit) << (q % 32)
    for q in range(len(bits), 32 * len(words)):
        words[q // 32] |= (padding >> (q % 8) & 1) << (q % 32)
    return words


def encode_tile(ftype: FloatType, symbols: Bytes, plan: TilePlan) -> tuple[int, list[int]]:
    """Kind and words of the variable part of a tile with these 1024 symbols (value order); raises NotRepresentable."""
    fill = plan.padding
    if plan.kind is None:
        if len(set(symbols.tolist())) == 1:
            return encode_tile(ftype, symbols, TilePlan(KIND_CONST, padding=fill))
        try:
            return encode_tile(ftype, symbols, TilePlan(KIND_LEVELS, plan.ranking, plan.level_of, fill))
        except NotRepresentable:
            return encode_tile(ftype, symbols, TilePlan(KIND_RAW))
    if plan.kind == KIND_CONST:
        if len(set(symbols.tolist())) != 1:
            raise NotRepresentable("CONST with several exponents")
        return KIND_CONST, [int(symbols[0]) | fill << 8 | fill << 16 | fill << 24]
    if plan.kind == KIND_RAW:
        if ftype is F16:
            return KIND_RAW, [w for p in range(5) for w in bits_to_words((symbols[BYTE_PLANE] >> p & 1).tolist())]
        words = [0] * 256
        for v, symbol in enumerate(symbols.tolist()):
            k, lane, h, b = v // 256, v // 8 % 32, v // 4 % 2, v % 4
            words[32 * (2 * k + h) + lane] |= symbol << (8 * b)
        return KIND_RAW, words

    ranking = plan.ranking or rank_by_frequency(symbols)
    exponents = ranking.exponents()
    codes: dict[int, list[int]] = {1: [], 2: [], 3: [], 4: []}
    ranks_of_level = {1: exponents[0:3], 2: exponents[3:6], 3: exponents[6:13]}
    for symbol in symbols[LEVEL_PLANE].tolist():
        lowest = next((level for level in (1, 2, 3) if symbol in ranks_of_level[level]), 4)
        wanted = plan.level_of(symbol, lowest)
        # Only a level whose ranks hold the symbol (or the bytes) can end the descent.
        end = next((level for level in (1, 2, 3) if level >= wanted and symbol in ranks_of_level[level]), 4)
        for level in range(1, end):
            codes[level].append(7 if level == 3 else 3)
        codes[end].append(symbol if end == 4 else ranks_of_level[end].index(symbol))
    words = ranking.words()
    for bit in range(2):
        words += bits_to_words([c >> bit & 1 for c in codes[1]])
    for level, bits in ((2, 2), (3, 3)):
        for bit in range(bits):
            words += bits_to_words([c >> bit & 1 for c in codes[level]], fill)
    tail = bytes(codes[4]) + bytes([fill]) * (-len(codes[4]) % 4)
    words += struct.unpack(f"<{len(tail) // 4}I", tail)
    if len(words) >= ftype.raw_words:
        raise NotRepresentable(f"LEVELS of {len(words)} words")
    return KIND_LEVELS, words


def raw_slot(raw: bytes) -> bytes:
    """The slot of codec RAW for a slice."""
    return Header(MAGIC, CODEC_RAW, 0, 0, 0, len(raw), HEADER_BYTES + len(raw), 0, 0, bytes(8)).pack() + raw


def poison_slot(raw_bytes: int) -> bytes:
    """The slot that tells of an error upstream instead of a slice of `raw_bytes` bytes."""
    return Header(MAGIC, CODEC_RAW, 0, FLAG_POISON, 0, raw_bytes, HEADER_BYTES, 0, 0, bytes(8)).pack()


def levels_slot(
    ftype: FloatType,
    raw: bytes,
    plan: TilePlan | Sequence[TilePlan] | None = None,
    missing: Callable[[int], npt.NDArray[np.uint8]] | None = None,
    padding: int = 0,
) -> bytes:
    """A slot of codec LEVELS for a slice; at least one element.

    plan: of all tiles, or one a tile. missing: makes the bytes that stand for the last tile's missing elements; by
    default they are copies of the last element. padding: byte to fill the sections' padding with.
    """
    at = Layout.of(ftype, len(raw))
    if at.elems == 0:
        raise NotRepresentable("LEVELS without an element")
    whole = at.elems * ftype.element_bytes
    tail = raw[whole:]
    elements = np.frombuffer(raw, np.uint8, whole)
    lack = at.tiles * TILE - at.elems
    filler = missing(lack * ftype.element_bytes) if missing else np.tile(elements[-ftype.element_bytes :], lack)
    per_tile = np.concatenate([elements, filler]).reshape(at.tiles, -1)

    groups, table, fixed, var = b"", b"", b"", b""
    for tile in range(at.tiles):
        if tile % TILES_PER_GROUP == 0:
            groups += struct.pack("<I", len(var))
        tile_plan = plan[tile] if isinstance(plan, Sequence) else plan or TilePlan()
        symbols, fixed_part = split(ftype, np.ascontiguousarray(per_tile[tile]))
        kind, words = encode_tile(ftype, symbols, tile_plan)
        table += struct.pack("<H", kind << 12 | len(words))
        fixed += fixed_part
        var += struct.pack(f"<{len(words)}I", *words)
    gap = bytes([padding]) * (at.fixed - at.table - len(table))
    header_tail = tail + bytes([padding]) * (8 - len(tail))
    header = Header(
        MAGIC, CODEC_LEVELS, ftype.number, 0, len(tail), len(raw), at.var + len(var), len(var), 0, header_tail
    )
    return header.pack() + groups + table + gap + fixed + var
