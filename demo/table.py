# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""The demo's table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perf.bench.report import table, yes


class DemoError(Exception):
    """The demo cannot go on; the message names the thing."""


def _mib(count: int) -> str:
    return f"{count / (1 << 20):.1f}"


def _share(result: dict[str, Any]) -> str:
    count, values = int(result["count"]), int(result.get("payload_values", result["count"]))
    return f"{result['payload']}" + ("" if count >= values else f", first {100 * count / values:.0f} %")


def render(results: Sequence[dict[str, Any]]) -> str:
    """The results as a table: with times for the GPU mode, without for the CPU mode, whose times mean nothing."""
    timed = "time_us" in results[0]
    header = ["collective", "payload", "MiB", "ranks", "raw MiB", "wire MiB", "ratio"]
    header += ["stock ms", "uzip ms", "stock busbw", "uzip busbw", "speed-up"] if timed else []
    lines = []
    for r in results:
        cells = [
            r["collective"],
            _share(r),
            _mib(r["bytes"]),
            str(r["ranks"]),
            _mib(r["raw_bytes"]),
            _mib(r["wire_bytes"]),
        ]
        cells.append("-" if r["ratio"] is None else f"{r['ratio']:.4f}")
        if timed:
            cells += [f"{r['stock_time_us'] / 1e3:.2f}", f"{r['time_us'] / 1e3:.2f}"]
            cells += [f"{r['stock_busbw']:.3f}", f"{r['busbw']:.3f}", f"{r['speedup']:.3f}"]
        lines.append([*cells, yes(r["identical"])])
    return table([*header, "bit-identical"], lines)
