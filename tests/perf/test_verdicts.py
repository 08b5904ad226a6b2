# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""What counts as a right value of a reduction: every order of summation does, one unit more than its worst does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perf_programs import Tool

RIGHT, WRONG, UNJUDGED = "0", "1", "2"
FLOATS = {"half": np.float16, "float": np.float32, "double": np.float64}
INTS: dict[str, Any] = {name: getattr(np, name) for name in ("int8", "uint8", "int32", "uint32", "int64", "uint64")}


def judge(tool: Tool, dtype: str, op: str, out: np.ndarray, inputs: np.ndarray) -> str:
    """One digit per element; `inputs` has a row per rank."""
    records = np.ascontiguousarray(np.vstack([out[None], inputs]).T)
    done = tool("judge", dtype, op, len(inputs), data=records.tobytes())
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def inputs_of(kind: type, ranks: int, seed: int, n: int = 4000) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((ranks, n)) * 2.0 ** rng.integers(-6, 4, (ranks, n))).astype(kind)


def reduce_in_order(op: str, rows: np.ndarray, order: np.ndarray) -> np.ndarray:
    kind = rows.dtype.type
    ranks = len(rows)
    if op == "avg":
        rows = rows * kind(1.0 / ranks)
    if op == "mulsum":
        rows = rows * np.array([1.5, 0.75] * ranks, kind)[:ranks, None]
    acc: np.ndarray = rows[order[0]]
    for r in order[1:]:
        acc = {"prod": np.multiply, "max": np.maximum, "min": np.minimum}.get(op, np.add)(acc, rows[r])
    return acc


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", ["sum", "prod", "max", "min", "avg", "mulsum"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_any_order_is_right(tool: Tool, dtype: str, op: str, ranks: int) -> None:
    rows = inputs_of(FLOATS[dtype], ranks, ranks)
    for seed in range(3):
        out = reduce_in_order(op, rows, np.random.default_rng(seed).permutation(ranks))
        assert judge(tool, dtype, op, out, rows) == RIGHT * rows.shape[1]


@pytest.mark.parametrize("dtype", ["half", "float"])
@pytest.mark.parametrize("op", ["sum", "prod", "avg", "mulsum", "max", "min"])
def test_an_error_beyond_the_bound_is_wrong(tool: Tool, dtype: str, op: str) -> None:
    rows = np.abs(inputs_of(FLOATS[dtype], 4, 7)) + FLOATS[dtype](
        0.5
    )  # no cancellation: a result's unit is the bound's
    exact = reduce_in_order(op, rows.astype(np.float64), np.arange(4))
    unit = 2.0 ** (-11 if dtype == "half" else -24)
    for sign in (-1, 1):
        out = (exact * (1 + sign * 12 * unit)).astype(FLOATS[dtype])
        assert judge(tool, dtype, op, out, rows) == WRONG * rows.shape[1]


def test_a_lost_rank_and_a_doubled_rank_are_wrong(tool: Tool) -> None:
    rows = inputs_of(np.float16, 3, 5) + np.float16(0.1)
    assert judge(tool, "half", "sum", rows[0] + rows[1], rows).count(WRONG) > 0.99 * rows.shape[1]
    assert judge(tool, "half", "sum", rows[0] + rows[1] + rows[2] + rows[2], rows).count(WRONG) > 0.99 * rows.shape[1]


def test_one_rank_must_be_exact(tool: Tool) -> None:
    rows = inputs_of(np.float32, 1, 3)
    assert judge(tool, "float", "sum", np.nextafter(rows[0], np.float32(np.inf)), rows) == WRONG * rows.shape[1]


def test_values_without_a_bound(tool: Tool) -> None:
    nan, inf, big = np.float32(np.nan), np.float32(np.inf), np.float32(3e38)
    rows = np.array([[nan, nan, inf, big, big, 0, nan, inf], [1, 1, 1, big, -big, 0, 1, 1]], np.float32)
    sums = np.array([nan, 1, inf, inf, 0, 0, inf, nan], np.float32)
    assert judge(tool, "float", "sum", sums, rows) == RIGHT + WRONG + UNJUDGED * 3 + RIGHT + WRONG + UNJUDGED
    largest = np.array([1, nan, inf, big, big, 0, 7, 1], np.float32)
    assert judge(tool, "float", "max", largest, rows) == UNJUDGED * 2 + RIGHT * 4 + UNJUDGED + WRONG


def test_zero_has_either_sign_but_nothing_else(tool: Tool) -> None:
    rows = np.zeros((2, 3), np.float16)
    assert judge(tool, "half", "sum", np.array([0.0, -0.0, 1e-3], np.float16), rows) == RIGHT * 2 + WRONG


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    dtype=st.sampled_from(sorted(INTS)),
    op=st.sampled_from(["sum", "prod", "max", "min", "avg", "mulsum"]),
    ranks=st.integers(1, 6),
    seed=st.integers(0, 2**32),
)
def test_integers_are_exact_and_wrap(tool: Tool, dtype: str, op: str, ranks: int, seed: int) -> None:
    kind = INTS[dtype]
    info = np.iinfo(kind)
    rows = np.random.default_rng(seed).integers(info.min, info.max, (ranks, 500), dtype=kind, endpoint=True)
    rows[:, :4] = [[info.min, info.max, 0, 1]] * ranks
    modulus = 1 << info.bits

    def wrap(v: int) -> int:
        v %= modulus
        return v - modulus if info.min < 0 and v >= modulus // 2 else v

    want = []
    for column in rows.T.tolist():
        if op == "mulsum":
            column = [v * (3 if r % 2 else 2) for r, v in enumerate(column)]
        if op in ("max", "min"):
            v = max(column) if op == "max" else min(column)
        else:
            v = 1 if op == "prod" else 0
            for x in column:
                v = wrap(v * x if op == "prod" else v + x)
            if op == "avg":
                v = abs(v) // ranks * (-1 if v < 0 else 1)
        want.append(v)
    out = np.array(want, kind)
    assert judge(tool, dtype, op, out, rows) == RIGHT * 500
    assert judge(tool, dtype, op, out ^ kind(1), rows) == WRONG * 500
