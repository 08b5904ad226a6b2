# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Hypothesis strategies: slices of every bit pattern class, and legal slots that no encoder of ours would choose."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

import oracle
from oracle import TILE, FloatType
from oracle_encoder import NotRepresentable, Ranking, TilePlan, levels_slot
from payloads import FLOAT_PAYLOADS, cast

# The same examples in every run, so that a new failure is a change's fault. UZIP_TEST_EXAMPLES asks for more of them.
EXAMPLES = int(os.environ.get("UZIP_TEST_EXAMPLES", "60"))
examples = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    print_blob=True,
)

Rng = np.random.RandomState
Maker = Callable[[Rng, FloatType, int], bytes]


def _mask(ftype: FloatType) -> tuple[int, int]:
    """Mantissa bits and exponent bits."""
    return {"bf16": (7, 8), "f16": (10, 5), "f32": (23, 8)}[ftype.name]


def _pack(ftype: FloatType, sign: np.ndarray, exponent: np.ndarray, mantissa: np.ndarray) -> bytes:
    m, e = _mask(ftype)
    bits = sign.astype(np.uint64) << np.uint64(m + e) | exponent.astype(np.uint64) << np.uint64(m)
    bits |= mantissa.astype(np.uint64)
    return bits.astype(f"<u{ftype.element_bytes}").tobytes()


def _with_exponents(rng: Rng, ftype: FloatType, exponent: np.ndarray) -> bytes:
    m, _ = _mask(ftype)
    n = len(exponent)
    return _pack(ftype, rng.randint(0, 2, n), exponent, rng.randint(0, 1 << m, n))


def _top(ftype: FloatType) -> int:
    return (1 << _mask(ftype)[1]) - 1


def _named(name: str) -> Maker:
    return lambda rng, ftype, n: cast(FLOAT_PAYLOADS[name](rng, n), ftype.name)


def random_bits(rng: Rng, ftype: FloatType, n: int) -> bytes:
    return rng.bytes(n * ftype.element_bytes)


def nan_payloads(rng: Rng, ftype: FloatType, n: int) -> bytes:
    return _with_exponents(rng, ftype, np.full(n, _top(ftype)))


def infinities(rng: Rng, ftype: FloatType, n: int) -> bytes:
    return _pack(ftype, rng.randint(0, 2, n), np.full(n, _top(ftype)), np.zeros(n))


def signed_zeros(rng: Rng, ftype: FloatType, n: int) -> bytes:
    return _pack(ftype, rng.randint(0, 2, n), np.zeros(n), np.zeros(n))


def denormals(rng: Rng, ftype: FloatType, n: int) -> bytes:
    return _with_exponents(rng, ftype, np.zeros(n))


def constant(rng: Rng, ftype: FloatType, n: int) -> bytes:
    return rng.bytes(ftype.element_bytes) * n


def ones(rng: Rng, ftype: FloatType, n: int) -> bytes:
    return b"\xff" * (n * ftype.element_bytes)


def sparse(rng: Rng, ftype: FloatType, n: int) -> bytes:
    values = 0.02 * rng.standard_normal(n) * (rng.uniform(size=n) < rng.uniform())
    return cast(values, ftype.name)


def ramp(rng: Rng, ftype: FloatType, n: int) -> bytes:
    """All bit patterns in order from a random one, by a random stride."""
    bits = rng.randint(0, 1 << 31) + np.arange(n, dtype=np.uint64) * np.uint64(rng.choice([1, 3, 127, 256, 65537]))
    return bits.astype(f"<u{ftype.element_bytes}").tobytes()


def integers(rng: Rng, ftype: FloatType, n: int) -> bytes:
    return cast(np.arange(n, dtype=np.float64) - n // 3, ftype.name)


def outliers(rng: Rng, ftype: FloatType, n: int) -> bytes:
    """Normal values, and a few of any bits."""
    values = np.frombuffer(cast(0.02 * rng.standard_normal(n), ftype.name), f"<u{ftype.element_bytes}").copy()
    hit = rng.uniform(size=n) < 10.0 ** -rng.uniform(1, 4)
    values[hit] = np.frombuffer(rng.bytes(n * ftype.element_bytes), values.dtype)[hit]
    return values.tobytes()


def wide_exponents(rng: Rng, ftype: FloatType, n: int) -> bytes:
    """Exponents geometric from a random one over a random width: LEVELS tiles of all sizes, up to RAW and CONST."""
    top = _top(ftype)
    width = np.exp(rng.uniform(-2, 4))
    exponent = rng.randint(0, top + 1) - (rng.exponential(width, n)).astype(np.int64)
    return _with_exponents(rng, ftype, exponent % (top + 1))


def two_exponents(rng: Rng, ftype: FloatType, n: int) -> bytes:
    pair = rng.randint(0, _top(ftype) + 1, 2)
    return _with_exponents(rng, ftype, pair[(rng.uniform(size=n) < rng.uniform()).astype(np.int64)])


def zeros_and_one_scale(rng: Rng, ftype: FloatType, n: int) -> bytes:
    """Exponent 0 and exponents near another, which need the rank for exponent 0."""
    top = _top(ftype)
    exponent = np.maximum(rng.randint(1, top + 1) - rng.geometric(0.4, n), 0)
    exponent[rng.uniform(size=n) < rng.uniform()] = 0
    return _with_exponents(rng, ftype, exponent)


def upcast(rng: Rng, ftype: FloatType, n: int) -> bytes:
    """f32 that were bf16: low halves are zero. Others: normal values."""
    if ftype is not oracle.F32:
        return cast(rng.standard_normal(n), ftype.name)
    bits = np.frombuffer(cast(rng.standard_normal(n), "bf16"), "<u2").astype(np.uint32) << 16
    return bits.astype("<u4").tobytes()


PATTERNS: dict[str, Maker] = {
    **{name: _named(name) for name in FLOAT_PAYLOADS},
    "random bits": random_bits,
    "NaN payloads": nan_payloads,
    "infinities": infinities,
    "signed zeros": signed_zeros,
    "denormals": denormals,
    "constant": constant,
    "ones": ones,
    "sparse": sparse,
    "ramp": ramp,
    "integers": integers,
    "outliers": outliers,
    "wide exponents": wide_exponents,
    "two exponents": two_exponents,
    "zeros and one scale": zeros_and_one_scale,
    "upcast": upcast,
}


def make(pattern: str, seed: int, ftype: FloatType, n: int) -> bytes:
    """n elements of the pattern; `mixture` changes the pattern every 100 to 1500 elements."""
    rng = Rng(seed)
    if pattern != "mixture":
        return PATTERNS[pattern](rng, ftype, n)
    out = b""
    names = list(PATTERNS)
    while len(out) < n * ftype.element_bytes:
        out += PATTERNS[names[rng.randint(len(names))]](rng, ftype, rng.randint(100, 1500))
    return out[: n * ftype.element_bytes]


types = st.sampled_from(list(oracle.TYPES.values()))
pattern_names = st.sampled_from([*PATTERNS, "mixture"])
seeds = st.integers(0, 2**32 - 1)
lengths = st.one_of(
    st.sampled_from(
        [1, 2, 7, 8, 31, 32, 33, 255, 256, 257, TILE - 1, TILE, TILE + 1, 2 * TILE - 1, 2 * TILE, 3 * TILE + 5]
    ),
    st.integers(1, 4 * TILE),
)


@dataclass(frozen=True)
class Slice:
    """A slice under test: `n` elements of a pattern and `tail` bytes more."""

    ftype: FloatType = field(repr=False)
    type_name: str
    pattern: str
    seed: int
    n: int
    tail: int
    raw: bytes = field(repr=False)


@dataclass(frozen=True)
class Slot:
    """A slot that the slow encoder made of a slice."""

    slice: Slice
    slot: bytes = field(repr=False)


@st.composite
def slices(draw: st.DrawFn) -> Slice:
    """A slice of at least one element, now and then with bytes behind the last one."""
    ftype = draw(types)
    pattern, seed, n = draw(pattern_names), draw(seeds), draw(lengths)
    tail = draw(st.sampled_from([0, 0, 0, *range(1, ftype.element_bytes)]))
    raw = make(pattern, seed, ftype, n) + b"\x5a\xa5\xff"[:tail]
    return Slice(ftype, ftype.name, pattern, seed, n, tail, raw)


@st.composite
def plans(draw: st.DrawFn) -> TilePlan:
    """How to code a tile, any way the format has; a plan may turn out not to fit a tile."""
    kind = draw(st.sampled_from([None, None, 0, 0, 1, 2]))
    ranking = None
    if draw(st.booleans()):
        ranking = Ranking(
            draw(st.integers(0, 255)), tuple(draw(st.lists(st.integers(0, 15), min_size=13, max_size=13)))
        )
    one_in = draw(st.sampled_from([0, 0, 2, 5, 20, 200]))
    rng = Rng(draw(seeds))

    def level_of(symbol: int, lowest: int) -> int:
        return lowest if one_in == 0 or rng.randint(one_in) else int(rng.randint(1, 5))

    return TilePlan(kind, ranking, level_of, draw(st.sampled_from([0, 0, 0xFF, 0x5A])))


@st.composite
def slots(draw: st.DrawFn) -> Slot:
    """A legal slot of codec LEVELS for some slice, made by the slow encoder."""
    made = draw(slices())
    tile_plans = [draw(plans()) for _ in range(oracle.Layout.of(made.ftype, len(made.raw)).tiles)]
    filler = Rng(draw(seeds))
    missing = draw(st.sampled_from([None, lambda n: np.frombuffer(filler.bytes(n), np.uint8)]))
    padding = draw(st.sampled_from([0, 0xFF]))
    try:
        return Slot(made, levels_slot(made.ftype, made.raw, tile_plans, missing, padding))
    except NotRepresentable:
        for plan in tile_plans:
            plan.kind = None
        return Slot(made, levels_slot(made.ftype, made.raw, tile_plans, missing, padding))
