# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Element types and named payloads, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from perf_programs import Tool

EDGES = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-320, 5e-324, 1e308]
HALF_EDGES = [65504.0, 65519.99, 65520.0, 65536.0, 448.0, 464.0, 465.0]
UINT = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def samples() -> np.ndarray:
    rng = np.random.default_rng(1)
    spread = rng.standard_normal(200_000) * 2.0 ** rng.integers(-160, 130, 200_000)
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float64)
    with np.errstate(invalid="ignore"):
        ties = (halves[:-1] + halves[1:]) / 2
    return np.concatenate([EDGES, HALF_EDGES, spread, halves, ties])


def encode(tool: Tool, dtype: str, values: np.ndarray, width: int) -> np.ndarray:
    done = tool("encode", dtype, data=values.astype(np.float64).tobytes())
    assert done.returncode == 0, done.stderr
    return np.frombuffer(done.stdout, UINT[width])


def decode(tool: Tool, dtype: str, bits: np.ndarray) -> np.ndarray:
    done = tool("decode", dtype, data=bits.tobytes())
    assert done.returncode == 0, done.stderr
    return np.frombuffer(done.stdout, np.float64)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal values, with equal signs of zero and NaN where NaN is."""
    return bool(np.all((np.isnan(a) & np.isnan(b)) | ((a == b) & (np.signbit(a) == np.signbit(b)))))


@pytest.mark.parametrize(("dtype", "kind"), [("half", np.float16), ("float", np.float32), ("double", np.float64)])
def test_ieee_types_convert_like_numpy(tool: Tool, dtype: str, kind: type) -> None:
    values = samples()
    bits = encode(tool, dtype, values, np.dtype(kind).itemsize)
    with np.errstate(over="ignore", invalid="ignore"):
        want = values.astype(kind).astype(np.float64)
        got = bits.view(kind).astype(np.float64)
    assert same(got, want)
    assert same(decode(tool, dtype, bits), want)


def test_bfloat16_rounds_to_nearest_even(tool: Tool) -> None:
    every = np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(invalid="ignore"):  # signalling NaN
        values = (every.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    assert same(decode(tool, "bfloat16", every), values)
    finite = np.isfinite(values)
    assert np.array_equal(encode(tool, "bfloat16", values[finite], 2), every[finite])
    below, above = every[:-1][finite[:-1] & finite[1:]], every[1:][finite[:-1] & finite[1:]]
    low, high = decode(tool, "bfloat16", below), decode(tool, "bfloat16", above)
    between = (low + high) / 2
    even = np.where(below % 2 == 0, below, above)
    pairs = np.signbit(low) == np.signbit(high)
    assert np.array_equal(encode(tool, "bfloat16", between, 2)[pairs], even[pairs])
    toward_high = np.nextafter(between, high)
    assert np.array_equal(encode(tool, "bfloat16", toward_high, 2)[pairs], above[pairs])


@pytest.mark.parametrize(("dtype", "exp", "man", "largest"), [("f8e4m3", 4, 3, 448.0), ("f8e5m2", 5, 2, 57344.0)])
def test_eight_bit_floats(tool: Tool, dtype: str, exp: int, man: int, largest: float) -> None:
    every = np.arange(256, dtype=np.uint8)
    values = decode(tool, dtype, every)
    bias = 2 ** (exp - 1) - 1
    for bits in range(128):
        e, m = bits >> man, bits & (2**man - 1)
        want = m * 2.0 ** (1 - bias - man) if e == 0 else (1 + m / 2**man) * 2.0 ** (e - bias)
        if want <= largest:
            assert values[bits] == want
            assert values[bits + 128] == -want
        else:
            assert not np.isfinite(values[bits])
    finite = np.isfinite(values)
    assert np.array_equal(encode(tool, dtype, values[finite], 1), every[finite])
    assert np.nanmax(values[finite]) == largest
    overflow = decode(tool, dtype, encode(tool, dtype, np.array([1e9, -1e9, np.inf]), 1))
    assert same(overflow, np.array([448, -448, 448.0]) if dtype == "f8e4m3" else np.array([np.inf, -np.inf, np.inf]))


def payload(tool: Tool, name: object, dtype: str, rank: int, count: int, seed: int = 1) -> bytes:
    done = tool("payload", name, dtype, rank, count, seed)
    assert done.returncode == 0, done.stderr
    return bytes(done.stdout)


@pytest.mark.parametrize("name", ["normal", "uniform", "random", "zeros", "grad", "const", "ramp"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float", "int8", "uint64"])
def test_ranks_see_one_sequence_4099_apart(tool: Tool, name: str, dtype: str) -> None:
    width = {"bfloat16": 2, "float": 4, "int8": 1, "uint64": 8}[dtype]
    whole = payload(tool, name, dtype, 0, 3 * 4099 + 100)
    assert payload(tool, name, dtype, 3, 100) == whole[3 * 4099 * width :]


def test_distributions(tool: Tool) -> None:
    n = 1 << 17

    def values(name: str) -> np.ndarray:
        return np.frombuffer(payload(tool, name, "float", 0, n), np.float32).astype(np.float64)

    normal = values("normal")
    assert abs(normal.mean()) < 3e-4
    assert normal.std() == pytest.approx(0.02, rel=0.01)
    assert np.mean(np.abs(normal) < 0.02) == pytest.approx(0.6827, abs=0.005)
    assert np.mean(np.abs(normal) > 0.06) == pytest.approx(0.0027, abs=0.0006)
    uniform = values("uniform")
    assert uniform.min() >= -1 and uniform.max() < 1
    assert np.histogram(uniform, 16)[0] == pytest.approx(n / 16, rel=0.05)
    grad = values("grad").reshape(-1, 4096)
    spread = np.median(np.abs(grad), axis=1)
    assert spread.max() / spread.min() > 8
    scaled = (grad / spread[:, None]).ravel()
    assert np.mean(scaled**4) / np.mean(scaled**2) ** 2 > 6  # heavier tails than a normal's 3
    assert np.all(values("zeros") == 0) and np.all(values("const") == 1)
    assert np.array_equal(values("ramp"), np.arange(n) % 128)
    bits = np.frombuffer(payload(tool, "random", "bfloat16", 0, n), np.uint8)
    assert np.bincount(bits, minlength=256) == pytest.approx(n * 2 / 256, rel=0.2)
    assert payload(tool, "random", "int8", 0, 64, seed=1) != payload(tool, "random", "int8", 0, 64, seed=2)


def test_normal_bfloat16_has_the_exponent_entropy_of_weights(tool: Tool) -> None:
    bits = np.frombuffer(payload(tool, "normal", "bfloat16", 0, 1 << 18), np.uint16)
    counts = np.bincount((bits >> 7) & 0xFF)
    p = counts[counts > 0] / counts.sum()
    assert (8 - np.sum(p * np.log2(p))) / 16 == pytest.approx(0.6591, abs=0.001)


def test_hash_depends_on_values_and_places(tool: Tool) -> None:
    def digest(values: list[int]) -> bytes:
        done = tool("hash", "half", data=np.array(values, np.uint16).tobytes())
        assert done.returncode == 0
        return bytes(done.stdout)

    assert digest([1, 2, 3]) == digest([1, 2, 3])
    assert len({digest(v) for v in ([], [0], [0, 0], [1, 2, 3], [2, 1, 3], [1, 2, 3, 0])}) == 6
