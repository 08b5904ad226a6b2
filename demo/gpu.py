# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""The demo with a GPU: stock NCCL and nccl-uzip in the lab, in interleaved pairs, same binary."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from perf.bench import BenchError, Library, Task, compare
from perf.lab import Lab, LabError

from .table import DemoError

COLLECTIVES = ("all_reduce", "broadcast")
SIZE = 128 << 20


def run_gpu(stock: Path, uzip: Path, perf_dir: Path, payload: Path, rate: str, pairs: int) -> list[dict[str, Any]]:
    """Measure both collectives with two ranks on links of ``rate``. Raises DemoError."""
    try:
        with Lab(2, rate) as lab:
            return [_measure(lab, stock, uzip, perf_dir, payload, rate, pairs, name) for name in COLLECTIVES]
    except (BenchError, LabError) as err:
        raise DemoError(str(err)) from err


def _measure(
    lab: Lab, stock: Path, uzip: Path, perf_dir: Path, payload: Path, rate: str, pairs: int, collective: str
) -> dict[str, Any]:
    def say(text: str) -> None:
        print(f"demo: {text}", file=sys.stderr, flush=True)

    task = Task(collective, str(SIZE), payload=str(payload.resolve()))
    a, b = Library("stock", stock), Library("uzip", uzip)
    result = compare(lab, a, b, task, perf_dir=perf_dir, pairs=pairs, say=say)
    row = result.of(b.name)[0].rows[SIZE]
    wire = result.wire(SIZE)
    if wire is None:
        reason = (row.get("uzip") or {}).get("reason") or "it gives no reason"
        raise DemoError(f"{collective}: {uzip} sent nothing compressed: {reason}")
    return {
        "collective": collective,
        "mode": "gpu",
        "payload": payload.name,
        "dtype": "bf16",
        "ranks": lab.nodes,
        "count": SIZE // 2,
        "bytes": SIZE,
        "raw_bytes": wire[0],
        "wire_bytes": wire[1],
        "ratio": wire[1] / wire[0],
        "identical": result.identical[SIZE] and result.wrong == 0,
        "time_us": result.median_us(b.name, SIZE),
        "busbw": result.busbw(b.name, SIZE),
        "stock_time_us": result.median_us(a.name, SIZE),
        "stock_busbw": result.busbw(a.name, SIZE),
        "speedup": result.outcomes[SIZE].median,
        "pairs": pairs,
        "rate": rate if lab.shaped else None,
        "shaped": lab.shaped,
        "mps": lab.mps,
        "device": row.get("device"),
    }
