# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Compressed sizes of named payloads are those in sizes.csv, to the byte; a change is a diff that someone reviews."""

from __future__ import annotations

import csv

import pytest

import sizes
from oracle import TYPES
from payloads import PAYLOADS

LINES = sizes.FILE.read_text().splitlines()
COMMITTED = {(r["payload"], r["type"]): line for r, line in zip(csv.DictReader(LINES), LINES[1:], strict=True)}
RATIOS = {(r["payload"], r["type"]): int(r["wire_bytes"]) / int(r["raw_bytes"]) for r in csv.DictReader(LINES)}


def test_every_payload_has_a_line() -> None:
    assert LINES[0] == sizes.COLUMNS
    assert set(COMMITTED) == {(name, t) for name in PAYLOADS for t in TYPES}


@pytest.mark.parametrize(("name", "type_name"), [(name, t) for t in TYPES for name in PAYLOADS])
def test_size(name: str, type_name: str) -> None:
    assert sizes.row(name, type_name) == COMMITTED[name, type_name], (
        "run tests/codec/sizes.py and review the difference"
    )


def test_ratios_keep_their_promises() -> None:
    """Bounds from the design: what the product promises, and what incompressible data may cost."""
    assert RATIOS["normal", "bf16"] <= 0.69
    assert RATIOS["grad", "bf16"] <= 0.70
    assert RATIOS["normal", "f32"] <= 0.85
    assert RATIOS["normal", "f16"] <= 0.90
    for name in PAYLOADS:
        for t in TYPES:
            assert RATIOS[name, t] <= 1.03, f"{name}.{t} expands"
