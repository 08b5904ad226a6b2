# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a perf binary in a lab with a given NCCL library, and reads its JSON (docs/PERF.md)."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perf.lab import Lab
from perf.lab.topo import dumped_speed

SCHEMA = 1


class BenchError(Exception):
    """A measurement that cannot be made; the message names the thing and the way out."""


@dataclass(frozen=True)
class Library:
    """An NCCL library under a short name, with the variables it is to run under."""

    name: str
    path: Path
    env: Mapping[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """Raise BenchError if the file is not there."""
        if not self.path.is_file():
            raise BenchError(
                f"{self.name}: no library {self.path}; build it (make lib, make lib-stock) or give another"
            )


@dataclass(frozen=True)
class Sample:
    """One process run of one library. Keys of ``times`` and ``rows`` are sizes in bytes.

    times: microseconds per collective, out of place, median over cycles. rows: the binary's rows, of the first cycle.
    mbps: the link's speed as NCCL took it, None if it did not say.
    """

    library: str
    times: dict[int, float]
    rows: dict[int, dict[str, Any]]
    mbps: int | None
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """What is kept of a sample: times of both placements, wire and raw bytes per size."""
        sizes = {}
        for size, row in self.rows.items():
            sizes[str(size)] = {
                "time_us": self.times[size],
                "out_of_place_us": row["out_of_place"]["time_us"],
                "in_place_us": row["in_place"]["time_us"],
                "busbw": row["out_of_place"]["busbw"],
                "raw_bytes": row["raw_bytes"],
                "wire_bytes": row["wire_bytes"],
            }
        return {"library": self.library, "sizes": sizes, "nccl_link_mbps": self.mbps, "seconds": round(self.seconds, 2)}


def _read_rows(path: Path, what: str) -> list[dict[str, Any]]:
    try:
        rows = json.loads(path.read_text())
    except (OSError, ValueError) as err:
        raise BenchError(f"{what}: wrote no readable JSON: {err}") from err
    if not isinstance(rows, list) or not rows:
        raise BenchError(f"{what}: its JSON holds no rows")
    if rows[0].get("schema") != SCHEMA:
        raise BenchError(
            f"{what}: JSON schema {rows[0].get('schema')}, {SCHEMA} is known; build perf and bench from one tree"
        )
    return rows


def run_sample(
    lab: Lab, library: Library, binary: Path, args: Sequence[str], *, env: Mapping[str, str], timeout: float
) -> Sample:
    """Run ``binary`` once on every node of ``lab`` with ``library`` preloaded. Raises BenchError when a rank fails."""
    if not binary.is_file():
        raise BenchError(f"no program {binary}; build it (make perf)")
    what = f"{binary.name} with {library.name}"
    out, dump = lab.folder / "sample.json", lab.folder / "nccl-topology.xml"
    for old in (out, dump):
        old.unlink(missing_ok=True)
    result = lab.run(
        [str(binary.resolve()), *args, "--json", str(out)],
        env={"NCCL_TOPO_DUMP_FILE": str(dump), **env, **library.env, "LD_PRELOAD": str(library.path.resolve())},
        timeout=timeout,
    )
    if result.rc != 0:
        tails = "\n".join(f"  [{r.rank}] {line}" for r in result.ranks for line in r.tail[-12:])
        raise BenchError(f"{what}: {result.reason}\n{tails}")
    rows = _read_rows(out, what)
    loaded = rows[0]["library"]["path"]
    if Path(loaded).resolve() != library.path.resolve():
        raise BenchError(f"{what}: ran {loaded} instead of {library.path}; is its SONAME libnccl.so.2?")
    times: dict[int, list[float]] = {}
    first: dict[int, dict[str, Any]] = {}
    for row in rows:
        first.setdefault(row["size"], row)
        times.setdefault(row["size"], []).append(row["out_of_place"]["time_us"])
    medians = {size: statistics.median(values) for size, values in times.items()}
    return Sample(library.name, medians, first, dumped_speed(dump, lab.ifname), result.seconds)
