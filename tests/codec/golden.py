# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Golden slots, made by the slow encoder: must-decode with a digest of what they hold, must-refuse with the error due.

`python tests/codec/golden.py` rewrites tests/codec/golden/; a test checks that the committed files are what this makes.
A file is never changed within a format version: a decoder of this version has to read it for ever.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from oracle import (
    BF16,
    BY_NUMBER,
    ERR_CAPACITY,
    ERR_HEADER,
    ERR_LENGTH,
    ERR_MAGIC,
    ERR_POISON,
    ERR_TILE,
    ERRORS,
    F16,
    F32,
    KIND_CONST,
    KIND_LEVELS,
    KIND_RAW,
    TILE,
    FloatType,
    Header,
    Layout,
)
from oracle_encoder import Ranking, TilePlan, levels_slot, poison_slot, raw_slot
from payloads import payload

FOLDER = Path(__file__).parent / "golden"


@dataclass(frozen=True)
class Good:
    """A slot that must decode to `raw`."""

    slot: bytes
    raw: bytes
    why: str


@dataclass(frozen=True)
class Bad:
    """A slot that must be refused with `error` by a receiver that expects `raw_bytes`."""

    slot: bytes
    raw_bytes: int
    error: int
    why: str
    tile: int | None = None
    also: int | None = None  # another error that applies as well

    def errors(self) -> list[str]:
        return [ERRORS[e] for e in (self.error, self.also) if e is not None]


def elements_of(ftype: FloatType, symbols: np.ndarray, seed: int) -> bytes:
    """Elements with these exponent symbols and random signs and mantissas."""
    rng = np.random.RandomState(seed)
    if ftype is F32:
        rest = rng.randint(0, 1 << 24, len(symbols)).astype(np.uint32)
        return ((rest & 1) << 31 | symbols.astype(np.uint32) << 23 | rest >> 1).astype("<u4").tobytes()
    exponent_bits = 8 if ftype is BF16 else 5
    rest = rng.randint(0, 1 << (16 - exponent_bits), len(symbols)).astype(np.uint32)
    shift = 15 - exponent_bits
    return ((rest & 1) << 15 | symbols.astype(np.uint32) << shift | rest >> 1).astype("<u2").tobytes()


def counted_symbols(counts: dict[int, int]) -> np.ndarray:
    """1024 symbols with the given counts, shuffled."""
    symbols = np.repeat(list(counts), list(counts.values()))
    assert len(symbols) == TILE
    return np.random.RandomState(5).permutation(symbols).astype(np.uint8)


def must_decode() -> dict[str, Good]:
    good: dict[str, Good] = {}

    def levels(name: str, ftype: FloatType, raw: bytes, why: str, *args: Any, **kwargs: Any) -> None:
        good[name] = Good(levels_slot(ftype, raw, *args, **kwargs), raw, why)

    for name, raw in (
        ("raw-1", b"\x80"),
        ("raw-13", bytes(range(200, 213))),
        ("raw-2048", payload("random", "bf16", 1024)),
    ):
        good[name] = Good(raw_slot(raw), raw, f"codec RAW, {len(raw)} bytes")
    for ftype in (BF16, F16, F32):
        t = ftype.name
        size = ftype.element_bytes
        levels(f"{t}-tile", ftype, payload("normal", t, TILE), "one whole tile of kind LEVELS")
        levels(f"{t}-one-value", ftype, payload("normal", t, 1), "one element; 1023 are missing")
        levels(f"{t}-1023", ftype, payload("silu", t, 1023), "one element less than a tile")
        levels(f"{t}-1025-tail", ftype, payload("normal", t, 1025) + b"\xa5" * (size - 1), "two tiles, longest tail")
        levels(f"{t}-raw-tile", ftype, payload("random", t, TILE), "kind RAW", TilePlan(KIND_RAW))
        levels(f"{t}-const", ftype, payload("zeros", t, TILE), "kind CONST")
        levels(
            f"{t}-dirty-padding",
            ftype,
            payload("grad", t, 1500) + b"\xa5" * (size - 1),
            "all padding is ones; missing elements are random",
            TilePlan(padding=0xFF),
            missing=lambda n: np.frombuffer(np.random.RandomState(3).bytes(n), np.uint8),
            padding=0xFF,
        )
        kinds = payload("zeros", t, TILE) + payload("random", t, TILE) + payload("normal", t, TILE)
        levels(f"{t}-kinds", ftype, kinds, "tiles of kind CONST, RAW and LEVELS", [TilePlan(k) for k in (2, 1, 0)])
    levels("bf16-two-groups", BF16, bytes(2 * TILE * 32) + payload("normal", "bf16", TILE + 3), "34 tiles, two groups")

    near = Ranking(127, tuple(range(13)))
    shallow = counted_symbols({127: 500, 126: 300, 125: 224})
    levels(
        "bf16-levels-66-words", BF16, elements_of(BF16, shallow, 1), "every value ends in level 1", TilePlan(0, near)
    )
    # 66 + 2 ceil(n2/32) + 3 ceil(n3/32) + ceil(n4/4) = 255 with n2 = n3 = n4 = 454: 66 + 30 + 45 + 114.
    deep = counted_symbols({127: 570, 7: 454})
    levels("bf16-levels-255-words", BF16, elements_of(BF16, deep, 2), "the largest LEVELS tile", TilePlan(0, near))
    levels(
        "bf16-levels-full-words",
        BF16,
        elements_of(BF16, counted_symbols({127: 672, 124: 256, 121: 64, 7: 32}), 3),
        "n2, n3 and n4 are multiples of 32: no padding at all",
        TilePlan(0, near),
    )
    low = Ranking(3, (0, 14, 4, 3, 5, 1, 15, 6, 2, 8, 9, 10, 13))
    levels(
        "bf16-w-small",
        BF16,
        elements_of(BF16, counted_symbols({3: 400, 2: 300, 1: 200, 0: 60, 200: 40, 255: 24}), 4),
        "W = 3: ranks more than 3 below it name nothing and are not used; larger exponents go down to bytes",
        TilePlan(0, low),
    )
    levels(
        "f16-levels-159-words",
        F16,
        elements_of(F16, counted_symbols({31: 780, 28: 20, 3: 224}), 8),
        "the largest LEVELS tile of f16",
        TilePlan(0, Ranking(31, tuple(range(13)))),
    )
    zero_first = Ranking(126, (15, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11))
    levels(
        "bf16-zero-rank-first",
        BF16,
        elements_of(BF16, counted_symbols({0: 600, 126: 200, 125: 100, 122: 100, 116: 20, 200: 4}), 5),
        "exponent 0 by distance 15 in rank 0",
        TilePlan(0, zero_first),
    )
    levels(
        "bf16-ranks-repeat",
        BF16,
        elements_of(BF16, counted_symbols({127: 800, 120: 224}), 6),
        "all 13 ranks are the same exponent; the other goes down to bytes",
        TilePlan(0, Ranking(127, (0,) * 13)),
    )
    steps = iter(np.random.RandomState(9).randint(0, 12, TILE).tolist())
    levels(
        "bf16-sent-down",
        BF16,
        elements_of(BF16, counted_symbols({127: 700, 126: 324}), 7),
        "values sent further down than their rank needs",
        TilePlan(
            0, Ranking(127, (0, 1, 2, 0, 1, 2, 0, 1, 2, 3, 4, 5, 6)), lambda symbol, lowest: max(1, next(steps) - 7)
        ),
    )
    return good


def must_refuse() -> dict[str, Bad]:
    bad: dict[str, Bad] = {}
    raw = payload("normal", "bf16", TILE) + b"\x07"  # one LEVELS tile and a tail byte
    base = levels_slot(BF16, raw)
    n = len(raw)
    at = Layout.of(BF16, n)
    # A tile beyond group 0, for the offsets of a later group.
    two_groups_raw = bytes(2 * TILE * 32) + payload("normal", "bf16", TILE)
    two_groups = levels_slot(BF16, two_groups_raw)

    def header(name: str, error: int, why: str, slot: bytes = base, **fields: Any) -> None:
        h = dataclasses.replace(Header.unpack(slot), **fields)
        poison = ERR_POISON if h.flags & 1 and error != ERR_POISON else None
        bad[name] = Bad(h.pack() + slot[32:], n, error, why, also=poison)

    header("magic-zero", ERR_MAGIC, "memory that was never written", magic=0)
    header("magic-letters", ERR_MAGIC, "other letters", magic=0x00015A54)
    header("magic-version-2", ERR_MAGIC, "a later format version", magic=0x00025A55)
    header("magic-swapped", ERR_MAGIC, "written in the other byte order", magic=0x555A0100)

    header("codec-2", ERR_HEADER, "unknown codec", codec=2)
    header("codec-255", ERR_HEADER, "unknown codec", codec=255)
    header("type-none", ERR_HEADER, "LEVELS of type NONE", type=0)
    header("type-4", ERR_HEADER, "LEVELS of an unknown type", type=4)
    header("type-f32", ERR_HEADER, "LEVELS of another type than the sections were made for", type=3)
    header("flags-unknown", ERR_HEADER, "a flag of the future", flags=2)
    header("flags-poison-and-unknown", ERR_HEADER, "POISON with a flag of the future", poison_slot(n), flags=0x81)
    header("poison-levels", ERR_HEADER, "POISON with codec LEVELS", flags=1)
    header("poison-with-payload", ERR_HEADER, "POISON with the length of a payload", raw_slot(raw), flags=1)
    header("reserved", ERR_HEADER, "reserved is not 0", reserved=1)
    header("reserved-raw", ERR_HEADER, "reserved is not 0, codec RAW", raw_slot(raw), reserved=0x80000000)
    header("raw-type", ERR_HEADER, "RAW with a type", raw_slot(raw), type=1)
    header("raw-tail", ERR_HEADER, "RAW with tailBytes", raw_slot(raw), tail_bytes=1)
    header("raw-var", ERR_HEADER, "RAW with varBytes", raw_slot(raw), var_bytes=4)
    header("raw-wire-short", ERR_HEADER, "RAW with fewer bytes than rawBytes", raw_slot(raw), wire_bytes=32 + n - 1)
    header(
        "raw-wire-long", ERR_HEADER, "RAW with more bytes than rawBytes", raw_slot(raw) + b"\0", wire_bytes=32 + n + 1
    )
    header("raw-wire-header", ERR_HEADER, "RAW without its payload and without POISON", raw_slot(raw), wire_bytes=32)
    header("tail-missing", ERR_HEADER, "tailBytes is 0, rawBytes is odd", tail_bytes=0)
    header("tail-of-a-whole-element", ERR_HEADER, "tailBytes is an element and a byte", tail_bytes=3)
    header("tail-huge", ERR_HEADER, "tailBytes is larger than the field tail", tail_bytes=255)
    var = len(base) - at.var
    header(
        "var-odd",
        ERR_HEADER,
        "varBytes is not whole words",
        base + b"\0\0",
        var_bytes=var + 2,
        wire_bytes=len(base) + 2,
    )
    header("wire-not-the-sum", ERR_HEADER, "wireBytes is a word short", wire_bytes=len(base) - 4)
    header("wire-beyond-the-sum", ERR_HEADER, "wireBytes is a word long", base + bytes(4), wire_bytes=len(base) + 4)
    header("wire-zero", ERR_HEADER, "wireBytes is 0", wire_bytes=0)
    header("var-zero", ERR_HEADER, "varBytes is 0, wireBytes is not", var_bytes=0)
    header(
        "var-wraps",
        ERR_HEADER,
        "varBytes so large that the sum wraps at 32 bits to a small wireBytes",
        wire_bytes=64,
        var_bytes=2**32 + 64 - at.var,
    )
    short = Header(0x00015A55, 1, BF16.number, 0, 1, 1, 32, 0, 0, b"\x07" + bytes(7)).pack()
    bad["levels-no-element"] = Bad(short, 1, ERR_HEADER, "LEVELS of a slice shorter than an element")

    header("length-short", ERR_LENGTH, "a well-formed slot of a smaller slice", raw_slot(raw[:-1]))
    header("length-long", ERR_LENGTH, "a well-formed slot of a larger slice", raw_slot(raw + b"\0"))
    header("length-levels", ERR_LENGTH, "a well-formed LEVELS slot of a smaller slice", levels_slot(BF16, raw[:-2]))
    header("length-poison", ERR_LENGTH, "a poison slot of another slice", poison_slot(n + 2))
    header("length-zero", ERR_LENGTH, "a slot of no bytes", raw_slot(b""))

    bad["capacity-levels"] = Bad(base[:-1], n, ERR_CAPACITY, "LEVELS, one byte is missing")
    bad["capacity-raw"] = Bad(raw_slot(raw)[:-1], n, ERR_CAPACITY, "RAW, one byte is missing")
    bad["capacity-header-only"] = Bad(base[:32], n, ERR_CAPACITY, "LEVELS, the slot ends behind the header")
    bad["capacity-in-table"] = Bad(base[: at.table + 1], n, ERR_CAPACITY, "LEVELS, the slot ends in the tile table")
    bad["capacity-in-header"] = Bad(base[:31], n, ERR_CAPACITY, "the slot is too small for a header")

    def entry(name: str, kind: int, words: int, why: str, grow: int = 0) -> None:
        """The base slot with another table entry; `grow` more words so that only the entry is wrong."""
        slot = bytearray(base + bytes(4 * grow))
        h = Header.unpack(base)
        slot[:32] = dataclasses.replace(h, wire_bytes=len(slot), var_bytes=h.var_bytes + 4 * grow).pack()
        struct.pack_into("<H", slot, at.table, kind << 12 | words)
        bad[name] = Bad(bytes(slot), n, ERR_TILE, why, 0)

    words = var // 4
    for kind in (3, 7, 8, 15):
        entry(f"tile-kind-{kind}", kind, words, "unknown kind")
    entry("tile-kind-3-empty", 3, 0, "unknown kind, no words")
    entry("tile-all-ones", 15, 0xFFF, "an entry of ones", grow=4095)
    entry("tile-raw-255", KIND_RAW, 255, "RAW, a word short", grow=256)
    entry("tile-raw-257", KIND_RAW, 257, "RAW, a word long", grow=256)
    entry("tile-raw-0", KIND_RAW, 0, "RAW without words")
    entry("tile-const-0", KIND_CONST, 0, "CONST without its word")
    entry("tile-const-2", KIND_CONST, 2, "CONST with two words")
    entry("tile-levels-0", KIND_LEVELS, 0, "LEVELS without words")
    entry("tile-levels-65", KIND_LEVELS, 65, "LEVELS shorter than head and level 1")
    entry("tile-levels-66", KIND_LEVELS, 66, "LEVELS whose level 2 is beyond its words")
    entry("tile-words-short", KIND_LEVELS, words - 1, "LEVELS, a word less than the counts make")
    entry("tile-words-long", KIND_LEVELS, words + 1, "LEVELS, a word more than the counts make", grow=1)
    entry("tile-past-the-section", KIND_RAW, 256, "RAW whose words run past the variable section")
    entry("tile-past-the-section-by-1", KIND_LEVELS, words + 1, "LEVELS that runs a word past the variable section")
    entry("tile-levels-4095", KIND_LEVELS, 4095, "LEVELS with the most words an entry can say", grow=4095)

    f16_raw = payload("random", "f16", TILE)
    f16_base = levels_slot(F16, f16_raw, TilePlan(KIND_RAW))
    for name, words_said, why in (
        ("tile-f16-raw-159", 159, "RAW of f16, a word short"),
        ("tile-f16-raw-256", 256, "RAW of f16 with the words of RAW of bf16"),
    ):
        slot = bytearray(f16_base + bytes(4 * 96))
        h = Header.unpack(f16_base)
        slot[:32] = dataclasses.replace(h, wire_bytes=len(slot), var_bytes=256 * 4).pack()
        struct.pack_into("<H", slot, Layout.of(F16, len(f16_raw)).table, KIND_RAW << 12 | words_said)
        bad[name] = Bad(bytes(slot), len(f16_raw), ERR_TILE, why, 0)
    # n2 = 260, n3 = n4 = 220: 66 + 2 * 9 + 3 * 7 + 55 = 160 words, fine for bf16.
    near = TilePlan(KIND_LEVELS, Ranking(31, tuple(range(13))))
    bf16_levels = levels_slot(BF16, elements_of(BF16, counted_symbols({31: 764, 28: 40, 3: 220}), 8), near)
    f16_slot = levels_slot(F16, bytes(2 * TILE))
    at16 = Layout.of(F16, 2 * TILE)
    var16 = bf16_levels[Layout.of(BF16, 2 * TILE).var :]
    f16_long = bytearray(f16_slot[: at16.var] + var16)
    h = Header.unpack(f16_slot)
    f16_long[:32] = dataclasses.replace(h, wire_bytes=len(f16_long), var_bytes=len(var16)).pack()
    struct.pack_into("<H", f16_long, at16.table, len(var16) // 4)
    why = "LEVELS of f16 of 160 words whose counts agree"
    assert len(var16) == 4 * 160
    bad["tile-f16-levels-160"] = Bad(bytes(f16_long), 2 * TILE, ERR_TILE, why, 0)

    def group(name: str, offset: int, why: str) -> None:
        slot = bytearray(base)
        struct.pack_into("<I", slot, at.groups, offset)
        bad[name] = Bad(bytes(slot), n, ERR_TILE, why, 0)

    group("group-all-ones", 0xFFFFFFFF, "a group offset of ones")
    for offset in (1, 2, 3):  # the tile is whole, but lies between words
        shifted = bytearray(base[: at.var] + bytes(offset) + base[at.var :] + bytes(4 - offset))
        h = Header.unpack(base)
        shifted[:32] = dataclasses.replace(h, wire_bytes=len(shifted), var_bytes=h.var_bytes + 4).pack()
        struct.pack_into("<I", shifted, at.groups, offset)
        bad[f"group-misaligned-{offset}"] = Bad(bytes(shifted), n, ERR_TILE, "a group offset within a word", 0)
    group("group-past-the-section", 4, "the tile ends a word past the variable section")
    group("group-at-the-end", var, "the tile begins where the variable section ends")
    group("group-beyond", 0x7FFFFFFC, "the tile begins far beyond the slot")
    group("group-wraps", 2**32 - 4, "offset and words wrap at 32 bits to a place within the section")
    group("group-wraps-address", 2**32 - (at.var - at.fixed), "offset wraps at 32 bits to the fixed section")
    second = bytearray(two_groups)
    struct.pack_into("<I", second, 36, struct.unpack_from("<I", two_groups, 36)[0] + 4)
    bad["group-second"] = Bad(
        bytes(second), len(two_groups_raw), ERR_TILE, "the second group runs past the section", 32
    )

    def counts(name: str, change: Callable[[bytearray], None], why: str) -> None:
        slot = bytearray(base)
        change(slot)
        bad[name] = Bad(bytes(slot), n, ERR_TILE, why, 0)

    level1 = at.var + 8
    n2_words = words_of_level2(base, at)

    def fill(start_word: int, end_word: int, byte: int) -> Callable[[bytearray], None]:
        def change(slot: bytearray) -> None:
            slot[level1 + 4 * start_word : level1 + 4 * end_word] = bytes([byte]) * 4 * (end_word - start_word)

        return change

    counts("counts-n2-all", fill(0, 64, 0xFF), "every value goes down in level 1")
    counts("counts-n2-none", fill(0, 64, 0x00), "no value goes down in level 1, words say otherwise")
    counts("counts-n3-all", fill(64, 64 + 2 * n2_words, 0xFF), "every value goes down in level 2")
    counts("counts-n3-none", fill(64, 64 + 2 * n2_words, 0x00), "no value goes down in level 2, words say otherwise")
    counts("counts-all-ones", fill(0, words - 2, 0xFF), "every value goes down everywhere")
    # 66 + 30 + 45 + 115 = 256 words with n2 = n3 = n4 = 457: the counts agree, but such a tile has to be RAW.
    big = levels_256_words()
    bad["tile-levels-256"] = Bad(big, 2 * TILE, ERR_TILE, "LEVELS of 256 words whose counts agree", 0)

    bad["poison"] = Bad(poison_slot(n), n, ERR_POISON, "a poison slot")
    bad["poison-1"] = Bad(poison_slot(1), 1, ERR_POISON, "a poison slot of a slice of one byte")
    bad["poison-in-a-larger-slot"] = Bad(poison_slot(n) + raw, n, ERR_POISON, "a poison slot; old bytes lie behind it")
    return bad


def words_of_level2(slot: bytes, at: Layout) -> int:
    """ceil(n2 / 32) of the only tile of a slot."""
    planes = np.frombuffer(slot, "<u4", 64, at.var + 8)
    n2 = sum(bin(int(a & b)).count("1") for a, b in zip(planes[:32], planes[32:], strict=True))
    return -(-n2 // 32)


def levels_256_words() -> bytes:
    """A slot whose only tile is LEVELS of 256 words with counts that agree, which no encoder makes."""
    raw = elements_of(BF16, counted_symbols({127: 570, 7: 454}), 2)
    slot = bytearray(levels_slot(BF16, raw, TilePlan(0, Ranking(127, tuple(range(13))))))
    at = Layout.of(BF16, len(raw))
    # 455 values down to the bytes instead of 454: runs are as long as before, the bytes take one word more at 457.
    planes = np.frombuffer(bytes(slot), "<u4", 64, at.var + 8).copy()
    added = 0
    for lane in range(32):
        for bit in range(32):
            if added < 3 and not int(planes[lane]) >> bit & int(planes[32 + lane]) >> bit & 1:
                planes[lane] |= np.uint32(1 << bit)
                planes[32 + lane] |= np.uint32(1 << bit)
                added += 1
    slot[at.var + 8 : at.var + 8 + 256] = planes.tobytes()
    # All run bits up to 457 are ones; so are the 23 behind them, which are padding.
    slot[at.var + 264 : at.var + 264 + 4 * 75] = b"\xff" * 300
    slot += bytes(4)
    h = Header.unpack(bytes(slot))
    slot[:32] = dataclasses.replace(h, wire_bytes=len(slot), var_bytes=1024).pack()
    struct.pack_into("<H", slot, at.table, 256)
    return bytes(slot)


def files() -> dict[str, bytes]:
    """Path below the golden folder -> content of every golden file."""
    out: dict[str, bytes] = {}
    decode, refuse = must_decode(), must_refuse()
    for name, good in decode.items():
        out[f"must-decode/{name}.slot"] = good.slot
    for name, bad in refuse.items():
        out[f"must-refuse/{name}.slot"] = bad.slot
    manifest = {
        "must-decode": {
            name: {"raw_bytes": len(g.raw), "sha256": hashlib.sha256(g.raw).hexdigest(), "why": g.why}
            for name, g in decode.items()
        },
        "must-refuse": {
            name: {"raw_bytes": b.raw_bytes, "errors": b.errors(), "tile": b.tile, "why": b.why}
            for name, b in refuse.items()
        },
    }
    out["manifest.json"] = (json.dumps(manifest, indent=1) + "\n").encode()
    return out


def examples() -> dict[str, tuple[bytes, bytes]]:
    """Title in FORMAT.md -> (raw, slot) of its worked examples."""
    bf16 = struct.pack("<10H", 0x3F80, 0xBF80, 0x3F00, 0x3E80, 0x3F81, 0x3E00, 0x3C00, 0x0000, 0x7F80, 0x3F80)
    near = Ranking(127, (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 15))
    f16 = struct.pack("<3H", 0x3C00, 0xBE00, 0x3D55)
    f32 = struct.pack("<2I", 0x3F800000, 0xBFC90FDB) + b"\xee"
    return {
        "RAW": (b"uzip!", raw_slot(b"uzip!")),
        "Poison": (bytes(5), poison_slot(5)),
        "LEVELS, bf16": (bf16, levels_slot(BF16, bf16, TilePlan(KIND_LEVELS, near))),
        "LEVELS, f16": (f16, levels_slot(F16, f16)),
        "LEVELS, f32 with a tail": (f32, levels_slot(F32, f32)),
    }


def hexdump(data: bytes) -> str:
    """What `hexdump -C` prints."""
    lines: list[str] = []
    last = b""
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        if row == last and len(row) == 16:
            if lines[-1] != "*":
                lines.append("*")
            continue
        last = row
        left = " ".join(f"{b:02x}" for b in row[:8])
        right = " ".join(f"{b:02x}" for b in row[8:])
        text = "".join(chr(b) if 32 <= b < 127 else "." for b in row)
        lines.append(f"{at:08x}  {left:<23}  {right:<23}  |{text}|")
    lines.append(f"{len(data):08x}")
    return "\n".join(lines)


def main() -> None:
    wanted = files()
    for path in FOLDER.rglob("*"):
        if path.is_file() and str(path.relative_to(FOLDER)) not in wanted:
            path.unlink()
    for name, content in wanted.items():
        path = FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    print(f"{len(wanted)} files, {sum(map(len, wanted.values()))} bytes in {FOLDER}")


if __name__ == "__main__":
    assert set(BY_NUMBER) == {1, 2, 3}
    main()
