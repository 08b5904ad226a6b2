# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""The kernels' codec, under the warp emulator, against the slow codec and the golden files."""

from __future__ import annotations

import ctypes
import hashlib
import json
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import device
import golden
import oracle
import oracle_encoder
from oracle import CODEC_LEVELS, CODEC_RAW, TILE, TYPES, FloatType, Header
from patterns import EXAMPLES, PATTERNS, Slice, Slot, examples, make, slices, slots
from payloads import payload

MANIFEST = json.loads((golden.FOLDER / "manifest.json").read_text())
# Numbers of warps that kernels run with.
WARPS = [1, 2, 4, 15, 16]
warps = st.sampled_from(WARPS)
ftypes = pytest.mark.parametrize("ftype", TYPES.values(), ids=list(TYPES))

SLICE = 128 * 1024  # bytes of a slice with a small NCCL_BUFFSIZE: a step of 64 KiB, two steps a slice


def check_slot(slot: bytes, ftype: FloatType, raw: bytes) -> Header:
    """The slot is well-formed and canonical, and the slow decoder gets the slice back."""
    h = oracle.check_header(slot, len(raw))
    assert h.wire_bytes == len(slot) <= device.max_wire_bytes(len(raw))
    assert h.flags == 0
    assert h.tail[h.tail_bytes :] == bytes(8 - h.tail_bytes)
    if h.codec == CODEC_LEVELS:
        assert h.type == ftype.number
        at = oracle.Layout.of(ftype, len(raw))
        assert not any(slot[at.table + 2 * at.tiles : at.fixed]), "padding behind the table is not zero"
        total = 0
        for tile, (_, words, offset) in enumerate(oracle.tile_extents(slot, h)):
            assert offset == total, f"tile {tile} does not lie behind the one before it"
            total += 4 * words
        assert total == h.var_bytes
    assert oracle.decode_slot(slot, len(raw)) == raw
    return h


@examples
@given(slices(), warps)
def test_encode_then_slow_decode(made: Slice, nwarps: int) -> None:
    ftype, raw = made.ftype, made.raw
    error, slot = device.encode(ftype, raw, nwarps)
    assert error == 0
    check_slot(slot, ftype, raw)


@examples
@given(slots(), warps)
def test_slow_encode_then_decode(made: Slot, nwarps: int) -> None:
    raw = made.slice.raw
    assert device.decode(made.slot, len(raw), nwarps) == (0, raw)


@examples
@given(slices(), warps, warps, st.sampled_from([0, 1, 3]), st.sampled_from([0, 1, 5]))
def test_round_trip(made: Slice, to: int, back: int, source: int, destination: int) -> None:
    """Encode and decode with different numbers of warps, and buffers that are aligned to an element only."""
    ftype, raw = made.ftype, made.raw
    error, slot = device.encode(ftype, raw, to, align_off=source * ftype.element_bytes)
    assert error == 0
    assert device.decode(slot, len(raw), back, align_off=destination * ftype.element_bytes) == (0, raw)


@examples
@given(slices(), warps, warps)
def test_encode_is_deterministic(made: Slice, one: int, other: int) -> None:
    """The same slot every time, whatever the number of warps and the slice's alignment."""
    ftype, raw = made.ftype, made.raw
    assert device.encode(ftype, raw, one) == device.encode(ftype, raw, other, align_off=ftype.element_bytes)


@ftypes
@pytest.mark.parametrize("pattern", [*PATTERNS, "mixture"])
def test_every_pattern(pattern: str, ftype: FloatType) -> None:
    raw = make(pattern, 11, ftype, 5 * TILE + 77)
    error, slot = device.encode(ftype, raw)
    assert error == 0
    check_slot(slot, ftype, raw)
    assert device.decode(slot, len(raw)) == (0, raw)


@ftypes
@pytest.mark.parametrize("nwarps", WARPS)
@pytest.mark.parametrize("size", [SLICE - 1, SLICE, SLICE + 1])
def test_whole_slices(size: int, nwarps: int, ftype: FloatType) -> None:
    """Slices of 32 to 64 tiles: several groups, several rounds of tiles, bytes behind the last element."""
    raw = make("mixture", size, ftype, SLICE // ftype.element_bytes + 1)[:size]
    error, slot = device.encode(ftype, raw, nwarps)
    assert error == 0
    h = check_slot(slot, ftype, raw)
    assert h.codec == CODEC_LEVELS
    assert device.decode(slot, size, nwarps) == (0, raw)


@pytest.mark.parametrize("ftype", [oracle.BF16], ids=["bf16"])
def test_a_large_slice(ftype: FloatType) -> None:
    """A slice of NCCL's default size: 2 steps of 512 KiB."""
    raw = payload("normal", ftype.name, 512 * TILE)
    error, slot = device.encode(ftype, raw, 16)
    assert error == 0
    check_slot(slot, ftype, raw)
    assert device.decode(slot, len(raw), 15) == (0, raw)


@pytest.mark.parametrize("first", range(0, 1 << 16, 1 << 13))
@pytest.mark.parametrize("type_name", ["bf16", "f16"])
def test_every_bit_pattern(type_name: str, first: int) -> None:
    """All 65536 values, in order (near exponents) and shuffled (all exponents in a tile)."""
    ftype = TYPES[type_name]
    values = np.arange(1 << 16, dtype="<u2")
    for order in (values, np.random.RandomState(1).permutation(values)):
        raw = order[first : first + (1 << 13)].tobytes()
        error, slot = device.encode(ftype, raw)
        assert error == 0
        check_slot(slot, ftype, raw)
        assert device.decode(slot, len(raw)) == (0, raw)


def test_an_empty_slice_has_no_slot() -> None:
    assert device.encode(oracle.BF16, b"")[0] != 0
    assert device.decode(oracle_encoder.raw_slot(b""), 0)[0] != 0


def test_bytes_of_no_type_are_sent_raw() -> None:
    raw = make("normal", 1, oracle.BF16, 4 * TILE) + b"\x01"
    error, slot = device.encode(FloatType("none", 0, 1, 0, 0), raw)
    assert error == 0
    assert slot == oracle_encoder.raw_slot(raw)
    assert device.decode(slot, len(raw)) == (0, raw)


def test_unknown_types_are_refused() -> None:
    for number in (-1, 4, 255):
        error, _ = device.encode(FloatType("unknown", number, 2, 1024, 256), bytes(8192))
        assert error != 0, f"type {number}"


# --- Refusals --------------------------------------------------------------------------------------------------------


def expect_refusal(slot: bytes, raw_bytes: int, refused: oracle.Refused, errors: set[int], nwarps: int) -> None:
    """The device code refuses the slot with one of `errors`, and what it leaves of the slice is as FORMAT.md says."""
    error, out = device.decode(slot, raw_bytes, nwarps)
    assert error in errors, f"expected {[oracle.ERRORS[e] for e in errors]} ({refused.why}), got {error}"
    if error != oracle.ERR_TILE:
        assert not any(out), "a slice refused by its header is not zeros"
        return
    h = Header.unpack(slot)
    ftype = oracle.BY_NUMBER[h.type]
    size = TILE * ftype.element_bytes
    expected = oracle.decode_tiles(slot, h)
    assert any(isinstance(content, oracle.Refused) for content in expected)
    for tile, content in enumerate(expected):
        got = out[tile * size : (tile + 1) * size]
        # The last tile's bytes end with the slice's tail, which belongs to no tile.
        got = got[: len(got) - (len(got) % ftype.element_bytes)]
        if isinstance(content, oracle.Undefined):
            continue
        if isinstance(content, oracle.Refused) or content[: len(got)] != got:
            assert not any(got), f"tile {tile} is neither what the slot holds nor zeros"


@pytest.mark.parametrize("name", MANIFEST["must-decode"])
def test_must_decode(name: str) -> None:
    entry = MANIFEST["must-decode"][name]
    slot = (golden.FOLDER / "must-decode" / f"{name}.slot").read_bytes()
    for nwarps in (1, 4):
        error, raw = device.decode(slot, entry["raw_bytes"], nwarps)
        assert error == 0
        assert hashlib.sha256(raw).hexdigest() == entry["sha256"]


@pytest.mark.parametrize("name", MANIFEST["must-refuse"])
def test_must_refuse(name: str) -> None:
    entry = MANIFEST["must-refuse"][name]
    slot = (golden.FOLDER / "must-refuse" / f"{name}.slot").read_bytes()
    errors = {code for code, error in oracle.ERRORS.items() if error in entry["errors"]}
    with pytest.raises(oracle.Refused) as refused:
        oracle.decode_slot(slot, entry["raw_bytes"])
    for nwarps in (1, 4):
        expect_refusal(slot, entry["raw_bytes"], refused.value, errors, nwarps)


HEADER_ERRORS = {oracle.ERR_MAGIC, oracle.ERR_HEADER, oracle.ERR_LENGTH, oracle.ERR_CAPACITY, oracle.ERR_POISON}


@dataclass(frozen=True)
class BrokenSlot:
    whole: Slot
    changes: list[str]
    slot: bytes = field(repr=False)


@st.composite
def broken_slots(draw: st.DrawFn) -> BrokenSlot:
    """A legal slot with one to four words, halves, bytes or bits changed, mostly where sizes and counts are."""
    whole = draw(slots())
    raw = whole.slice.raw
    at = oracle.Layout.of(whole.slice.ftype, len(raw))
    slot = bytearray(whole.slot)
    places = st.one_of(
        st.integers(0, 31),
        st.integers(at.groups, at.fixed - 1),
        st.integers(at.var, len(slot) - 1),
        st.integers(0, len(slot) - 1),
    )
    changes = []
    for _ in range(draw(st.integers(1, 4))):
        place = draw(places)
        size = draw(st.sampled_from([1, 2, 4]))
        place -= place % size
        if place + size > len(slot):
            continue
        old = int.from_bytes(slot[place : place + size], "little")
        one_bit = [old ^ 1 << bit for bit in range(8 * size)]
        limits = [0, 1, 66, 255, 256, 0x1100, 0x2001, 0x3000, 0xFFFF, 0xFFFFFFFC, 0xFFFFFFFF]
        new = draw(
            st.one_of(
                st.sampled_from(one_bit),
                st.integers(old - 8, old + 8),
                st.sampled_from(limits),
                st.integers(0, (1 << 8 * size) - 1),
            )
        )
        changes.append(f"{size} bytes at {place}: {old:#x} -> {new % (1 << 8 * size):#x}")
        slot[place : place + size] = (new % (1 << 8 * size)).to_bytes(size, "little")
    if draw(st.integers(0, 9)) == 0:
        del slot[draw(st.integers(0, len(slot) - 1)) :]
        changes.append(f"cut to {len(slot)} bytes")
    return BrokenSlot(whole, changes, bytes(slot))


@settings(examples, max_examples=4 * EXAMPLES)
@given(broken_slots(), warps)
def test_broken_slots_are_refused_alike(made: BrokenSlot, nwarps: int) -> None:
    """What the slow decoder takes the device code takes, with the same result; what one refuses the other does."""
    raw_bytes, slot = len(made.whole.slice.raw), made.slot
    try:
        raw = oracle.decode_slot(slot, raw_bytes)
    except oracle.Refused as refused:
        errors = {oracle.ERR_TILE} if refused.code == oracle.ERR_TILE else HEADER_ERRORS
        expect_refusal(slot, raw_bytes, refused, errors, nwarps)
    except oracle.Undefined:
        assert device.decode(slot, raw_bytes, nwarps)[0] in (0, oracle.ERR_TILE)
    else:
        assert device.decode(slot, raw_bytes, nwarps) == (0, raw)


@examples
@given(st.binary(min_size=0, max_size=200), st.integers(1, 5000), warps)
def test_arbitrary_bytes_are_refused(slot: bytes, raw_bytes: int, nwarps: int) -> None:
    error, out = device.decode(slot, raw_bytes, nwarps)
    assert error in HEADER_ERRORS
    assert not any(out)


@examples
@given(slices(), st.data())
def test_a_slot_cut_short_is_refused(made: Slice, data: st.DataObject) -> None:
    ftype, raw = made.ftype, made.raw
    _, slot = device.encode(ftype, raw)
    cut = data.draw(
        st.sampled_from([len(slot) - 1, len(slot) - 4, 32, 31, 16, 0, data.draw(st.integers(0, len(slot) - 1))])
    )
    error, out = device.decode(slot[: max(cut, 0)], len(raw))
    assert error in (oracle.ERR_CAPACITY, oracle.ERR_MAGIC)
    assert not any(out)


# --- Capacity --------------------------------------------------------------------------------------------------------


@examples
@given(slices(), warps, st.sampled_from([1, 2, 16, 1000, 10**9]))
def test_a_slot_too_small_for_the_slice(made: Slice, nwarps: int, short: int) -> None:
    """With less room than the slot takes, encoding finds another way to fit or fails; it never writes beyond."""
    ftype, raw = made.ftype, made.raw
    _, slot = device.encode(ftype, raw, nwarps)
    capacity = max(len(slot) - short, 0)
    error, smaller = device.encode(ftype, raw, nwarps, capacity=capacity)
    if error:
        assert error == oracle.ERR_CAPACITY
    else:
        assert len(smaller) <= capacity
        check_slot(smaller, ftype, raw)


@pytest.mark.parametrize("step", [4096, 16384, 65536, 131072, 524288, 1 << 22])
@pytest.mark.parametrize("steps", [1, 2, 4])
def test_pads_hold_a_slice_of_raw_tiles(step: int, steps: int) -> None:
    """A slice of some steps, every tile of kind RAW where that can be, fits in as many strides."""
    assert device.step_pad(step) % 128 == 0
    room = steps * (step + device.step_pad(step))
    for raw_bytes in (1, step // 2 + 1, steps * step - 1, steps * step):
        assert 32 + raw_bytes <= device.max_wire_bytes(raw_bytes) <= room
        for ftype in (oracle.BF16, oracle.F32):
            at = oracle.Layout.of(ftype, max(raw_bytes, ftype.element_bytes))
            assert at.var + 1024 * at.tiles <= device.max_wire_bytes(raw_bytes)


@ftypes
@pytest.mark.parametrize("pattern", ["random bits", "wide exponents", "mixture", "ones"])
def test_slots_never_outgrow_their_stride(pattern: str, ftype: FloatType) -> None:
    """Data that does not compress costs the header and a little; it never needs more than the pad."""
    step = 65536
    for seed in range(4):
        raw = make(pattern, seed, ftype, 2 * step // ftype.element_bytes)
        error, slot = device.encode(ftype, raw, 16, capacity=2 * (step + device.step_pad(step)))
        assert error == 0
        check_slot(slot, ftype, raw)


# --- Back-off --------------------------------------------------------------------------------------------------------


def codec_of(slot: bytes) -> int:
    return Header.unpack(slot).codec


@ftypes
def test_back_off_after_incompressible_slices(ftype: FloatType) -> None:
    """After slices that did not compress the encoder sends some raw, more each time, and then tries again."""
    random = make("random bits", 1, ftype, 32 * TILE)
    normal = make("normal", 1, ftype, 32 * TILE)
    state = ctypes.c_uint32(0)
    for _ in range(200):
        error, slot = device.encode(ftype, random, backoff=state)
        assert error == 0
        assert oracle.decode_slot(slot, len(random)) == random
    raw_in_a_row = 0
    while codec_of(slot := device.encode(ftype, normal, backoff=state)[1]) == CODEC_RAW:
        assert oracle.decode_slot(slot, len(normal)) == normal
        raw_in_a_row += 1
        assert raw_in_a_row <= 64, "the encoder does not try again"
    # It compresses again, and goes on.
    for _ in range(3):
        assert codec_of(device.encode(ftype, normal, backoff=state)[1]) == CODEC_LEVELS
    # One slice that does not compress costs at most a few.
    device.encode(ftype, random, backoff=state)
    following = [codec_of(device.encode(ftype, normal, backoff=state)[1]) for _ in range(4)]
    assert following[-1] == CODEC_LEVELS
