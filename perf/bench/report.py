# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Tables of results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table with aligned columns: the first to the left, the others to the right."""
    widths = [max(len(line[i]) for line in [header, *rows]) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        padded = [c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True))]
        return "| " + " | ".join(padded) + " |"

    rule = "|" + "|".join("-" * (w + 2) if i == 0 else "-" * (w + 1) + ":" for i, w in enumerate(widths)) + "|"
    return "\n".join([line(header), rule, *(line(row) for row in rows)])


def size_text(size: int) -> str:
    """A size in bytes as 8, 64K, 128M."""
    for unit, scale in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if size >= scale and size % scale == 0:
            return f"{size // scale}{unit}"
    return str(size)


def yes(value: bool) -> str:
    """yes or NO."""
    return "yes" if value else "NO"


def row_lines(name: str, result: dict[str, Any]) -> list[list[str]]:
    """Cells for one comparison: a line per size."""
    lines = []
    for size, entry in result["sizes"].items():
        needed = f"{entry['needed']:.3f}" + ("" if entry["bar"] is not None else " (as stock)")
        extra = next(iter(entry["extra"].values()), None)
        lines.append(
            [
                name,
                size_text(int(size)),
                f"{entry['a_time_us']:.1f}",
                f"{entry['b_time_us']:.1f}",
                f"{extra['time_us']:.1f}" if extra else "-",
                f"{entry['a_busbw']:.3f}",
                f"{entry['b_busbw']:.3f}",
                f"{entry['ratio']:.4f}" if entry["ratio"] is not None else "-",
                f"{entry['median']:.3f}",
                f"{100 * entry['spread']:.1f} %",
                needed,
                yes(entry["identical"]),
                yes(entry["passed"] and entry["identical"] and result["wrong"] == 0)
                + (" (noisy)" if entry["noisy"] else ""),
            ]
        )
    return lines


ROW_HEADER = [
    "row",
    "size",
    "A us",
    "B us",
    "torch us",
    "A busbw",
    "B busbw",
    "wire/raw",
    "speed-up",
    "A/A spread",
    "needed",
    "same bits",
    "reached",
]
