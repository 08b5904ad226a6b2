# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Named payloads for the codec's tests: fixed seeds, drawn in float64, cast exactly.

The legacy generator is used on purpose: its streams are frozen across numpy versions.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]


def bf16_bits(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """float32 to bf16, to nearest even. NaN stays NaN: its upper bits are kept and made quiet."""
    bits = values.astype(np.float32, copy=False).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + (bits >> np.uint64(16) & np.uint64(1))) >> np.uint64(16)
    return np.where(np.isnan(values), bits >> np.uint64(16) | np.uint64(0x40), rounded).astype(np.uint16)


def cast(values: Doubles, type_name: str) -> bytes:
    """The values as bytes of bf16, f16 or f32. bf16 is rounded from float32, as frameworks do."""
    if type_name == "bf16":
        return bf16_bits(values.astype(np.float32)).astype("<u2").tobytes()
    with np.errstate(over="ignore"):
        return values.astype({"f16": "<f2", "f32": "<f4"}[type_name]).tobytes()


def normal(rng: np.random.RandomState, n: int) -> Doubles:
    return 0.02 * rng.standard_normal(n)


def uniform(rng: np.random.RandomState, n: int) -> Doubles:
    return rng.uniform(-1.0, 1.0, n)


def grad(rng: np.random.RandomState, n: int) -> Doubles:
    """Heavy tails, and a scale that changes every 4096 values."""
    scale = 1e-3 * rng.lognormal(0.0, 1.5, -(-n // 4096))
    return rng.standard_t(3, n) * np.repeat(scale, 4096)[:n]


def laplace(rng: np.random.RandomState, n: int) -> Doubles:
    return rng.laplace(0.0, 0.02, n)


def silu(rng: np.random.RandomState, n: int) -> Doubles:
    x = rng.standard_normal(n)
    return x / (1.0 + np.exp(-x))


FLOAT_PAYLOADS: dict[str, Callable[[np.random.RandomState, int], Doubles]] = {
    "normal": normal,
    "uniform": uniform,
    "grad": grad,
    "laplace": laplace,
    "silu": silu,
}
PAYLOADS = (*FLOAT_PAYLOADS, "random", "zeros")


def payload(name: str, type_name: str, n: int) -> bytes:
    """n values of the named payload as bytes of the type."""
    size = 4 if type_name == "f32" else 2
    if name == "zeros":
        return bytes(n * size)
    rng = np.random.RandomState(zlib.crc32(name.encode()))
    if name == "random":
        return rng.bytes(n * size)
    return cast(FLOAT_PAYLOADS[name](rng, n), type_name)
