# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""The slow decoder and the slow encoder against each other and against the golden files."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from hypothesis import given

import golden
import oracle
import oracle_encoder
from patterns import Slice, Slot, examples, slices, slots
from payloads import bf16_bits, payload

MANIFEST = json.loads((golden.FOLDER / "manifest.json").read_text())


@examples
@given(slots())
def test_round_trip(made: Slot) -> None:
    assert oracle.decode_slot(made.slot, len(made.slice.raw)) == made.slice.raw


@examples
@given(slices())
def test_raw_round_trip(made: Slice) -> None:
    assert oracle.decode_slot(oracle_encoder.raw_slot(made.raw), len(made.raw)) == made.raw


def test_golden_files_are_what_the_script_makes() -> None:
    made = golden.files()
    committed = {str(p.relative_to(golden.FOLDER)): p for p in golden.FOLDER.rglob("*") if p.is_file()}
    assert sorted(committed) == sorted(made)
    for name, content in made.items():
        assert committed[name].read_bytes() == content, f"{name}: run tests/codec/golden.py and review the difference"


@pytest.mark.parametrize("name", MANIFEST["must-decode"])
def test_must_decode(name: str) -> None:
    entry = MANIFEST["must-decode"][name]
    slot = (golden.FOLDER / "must-decode" / f"{name}.slot").read_bytes()
    raw = oracle.decode_slot(slot, entry["raw_bytes"])
    assert hashlib.sha256(raw).hexdigest() == entry["sha256"]


@pytest.mark.parametrize("name", MANIFEST["must-refuse"])
def test_must_refuse(name: str) -> None:
    entry = MANIFEST["must-refuse"][name]
    slot = (golden.FOLDER / "must-refuse" / f"{name}.slot").read_bytes()
    with pytest.raises(oracle.Refused) as refused:
        oracle.decode_slot(slot, entry["raw_bytes"])
    assert oracle.ERRORS[refused.value.code] == entry["errors"][0]
    assert refused.value.tile == entry["tile"]


def test_every_error_has_a_must_refuse_file() -> None:
    assert {e["errors"][0] for e in MANIFEST["must-refuse"].values()} == set(oracle.ERRORS.values())


def test_value_order() -> None:
    """FORMAT.md's formula, spelled the other way round."""
    for v in range(oracle.TILE):
        k, rest = divmod(v, 256)
        lane, j = divmod(rest, 8)
        h, b = divmod(j, 4)
        i = 2 * k + h
        assert oracle.BYTE_PLANE[32 * lane + 8 * b + i] == v
        assert oracle.LEVEL_PLANE[32 * lane + 16 * (b % 2) + 8 * (i // 4) + 4 * (b // 2) + i % 4] == v


def test_bf16_cast_is_to_nearest_even() -> None:
    upper = np.arange(0x10000, dtype=np.uint32) << 16
    finite = np.isfinite(upper.view(np.float32))
    values = np.float32
    for low, up_if_odd, up in ((0, 0, 0), (0x7FFF, 0, 0), (0x8000, 1, 0), (0x8001, 1, 1), (0xFFFF, 1, 1)):
        got = bf16_bits((upper | np.uint32(low)).view(values))[finite]
        even = (upper[finite] >> 16 & 1) == 0
        expected = (upper[finite] >> 16) + np.where(even, up, up_if_odd)
        assert np.array_equal(got, expected)
    nan = np.array([0x7F800001, 0xFF800001, 0x7FFFFFFF, 0x7FC00000], dtype=np.uint32).view(np.float32)
    assert [hex(x) for x in bf16_bits(nan)] == ["0x7fc0", "0xffc0", "0x7fff", "0x7fc0"]


def test_payloads_are_fixed() -> None:
    """The named payloads are the same bytes on every machine; sizes.csv relies on it."""
    digest = {n: hashlib.sha256(payload(n, "bf16", 4096)).hexdigest()[:16] for n in ("normal", "random")}
    assert digest["random"] == "cdfc782523986fd9"
    assert digest["normal"] == "6f0028eb63222133"
