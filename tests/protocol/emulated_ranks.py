# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Running uzip_ranks, and what its results must be, computed with numpy alone."""

from __future__ import annotations

import json
import math
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Option = str | int | bool | list[str]

TYPES = ("bf16", "f16", "f32")
ELEMENT_BYTES = {"bf16": 2, "f16": 2, "f32": 4}
PAYLOAD_ELEMENTS = 50_021  # odd, so that ranks' rotations never line up with tiles or slices
RANK_SHIFT = 4099

# Exit codes of uzip_ranks.
OK, DIFFERS, USAGE, HANG, FAILED, SLOT_ERRORS = range(6)
# enum uzipError
MAGIC, HEADER, LENGTH, CAPACITY, TILE, POISON = range(1, 7)


def to_bytes(values: Floats, dtype: str) -> bytes:
    """Values rounded to the type, to nearest even, as little-endian bytes."""
    if dtype == "bf16":
        bits = values.astype(np.float32).view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2").tobytes()
    with np.errstate(over="ignore"):
        return values.astype({"f16": "<f2", "f32": "<f4"}[dtype]).tobytes()


def from_bytes(data: bytes, dtype: str) -> Floats:
    if dtype == "bf16":
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(data, {"f16": "<f2", "f32": "<f4"}[dtype]).astype(np.float32)


def write_payloads(folder: Path) -> None:
    rng = np.random.RandomState(20)
    normal = (0.02 * rng.standard_normal(PAYLOAD_ELEMENTS)).astype(np.float32)
    for dtype in TYPES:
        size = PAYLOAD_ELEMENTS * ELEMENT_BYTES[dtype]
        (folder / f"normal.{dtype}").write_bytes(to_bytes(normal, dtype))
        (folder / f"random.{dtype}").write_bytes(rng.bytes(size))
        (folder / f"zeros.{dtype}").write_bytes(bytes(size))


@dataclass
class Outcome:
    """How a run ended: exit code, what it said, its JSON, and the outputs by rank when they were asked for."""

    code: int
    stderr: str
    json: dict[str, Any]
    outputs: list[bytes] = field(default_factory=list)

    @property
    def errors(self) -> dict[int, dict[str, int]]:
        """Error records by rank."""
        return {e["rank"]: e for e in self.json["errors"]}


@dataclass
class Ranks:
    """Runs uzip_ranks. Options are keywords: count=9 is --count 9, in_place=True is --in-place; lists repeat theirs."""

    program: Path
    payloads: Path
    folder: Path

    def command(self, payload: str, **options: Option) -> list[str]:
        words = [str(self.program), "--payload", str(self.payloads / payload)]
        for key, value in options.items():
            name = "--" + key.replace("_", "-")
            if isinstance(value, bool):
                words += [name] if value else []
                continue
            for one in value if isinstance(value, list) else [value]:
                words += [name, str(one)]
        return words

    def __call__(self, payload: str, *, outputs: bool = False, time_limit: float = 300, **options: Option) -> Outcome:
        """Run with the payload and the options. Does not judge how it ends."""
        result = self.folder / "result.json"
        result.unlink(missing_ok=True)
        if outputs:
            options["out"] = str(self.folder / "out")
        done = subprocess.run(
            self.command(payload, **options, json=str(result)),
            capture_output=True,
            text=True,
            timeout=time_limit,
            check=False,
            # Threads have stacks that the leak checker does not know.
            env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1"},
        )
        parsed = json.loads(result.read_text()) if result.exists() else {}
        files = [self.folder / f"out.{r}" for r in range(int(parsed.get("ranks", 0)))] if outputs else []
        return Outcome(done.returncode, done.stderr, parsed, [f.read_bytes() for f in files])

    def identical(self, payload: str, **options: Option) -> Outcome:
        """Run with --compare; the outputs must be those of mode simple, and nothing may be refused."""
        options["compare"] = True
        outcome = self(payload, outputs=False, time_limit=300, **options)
        assert outcome.code == OK, outcome.stderr
        assert outcome.json["identical"] is True and outcome.json["different_bytes"] == 0
        assert outcome.json["errors"] == [] and outcome.json["aborted"] is False
        return outcome


# --- Reference ----------------------------------------------------------------------------------------------------


def inputs(payload: Path, dtype: str, ranks: int, count: int) -> list[bytes]:
    """Rank r's input: the payload from element r * 4099 on, repeated."""
    size = ELEMENT_BYTES[dtype]
    values = np.frombuffer(payload.read_bytes(), dtype=f"V{size}")
    return [values[(np.arange(count) + r * RANK_SHIFT) % len(values)].tobytes() for r in range(ranks)]


def ring(ranks: int, channel: int) -> list[int]:
    """Ranks in the order of a channel's ring."""
    strides = [s for s in range(1, ranks) if math.gcd(s, ranks) == 1]
    stride = strides[channel % len(strides)]
    return [(i * stride + channel) % ranks for i in range(ranks)]


def _rounded(values: Floats, dtype: str) -> Floats:
    return from_bytes(to_bytes(values, dtype), dtype)


def _reduce(op: str, mine: Floats, received: Floats, dtype: str) -> Floats:
    if op in ("sum", "avg", "premulsum"):
        return _rounded(mine + received, dtype)
    if op == "prod":
        return _rounded(mine * received, dtype)
    return np.minimum(mine, received) if op == "min" else np.maximum(mine, received)


def all_reduce(payload: Path, dtype: str, op: str, ranks: int, count: int, channels: int, buffsize: int) -> bytes:
    """What every rank holds after a ring all-reduce: each chunk in the order in which the ring adds its ranks up."""
    values = [from_bytes(data, dtype) for data in inputs(payload, dtype, ranks, count)]
    if op in ("avg", "premulsum"):
        scalar = _rounded(np.full(1, 1 / ranks if op == "avg" else 1.5, np.float32), dtype)[0]
        values = [_rounded(v * scalar, dtype) for v in values]
    size = ELEMENT_BYTES[dtype]
    grain = 512 // size
    part = -(-(-(-count // channels)) // grain) * grain
    out = np.zeros(count, np.float32)
    for channel in range(channels):
        order = ring(ranks, channel)
        begin, end = min(count, channel * part), min(count, (channel + 1) * part)
        chunk = buffsize // 8 * 4 // 512 * grain
        for loop in range(begin, end, ranks * chunk):
            left = end - loop
            if left < ranks * chunk:
                align = 16 // size
                chunk = -(-(-(-left // ranks)) // align) * align
            for place in range(ranks):
                at = slice(loop + place * chunk, min(end, loop + (place + 1) * chunk))
                acc = values[order[(place + 1) % ranks]][at]
                for step in range(2, ranks + 1):
                    acc = _reduce(op, values[order[(place + step) % ranks]][at], acc, dtype)
                out[at] = acc
    return to_bytes(out, dtype)
