# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""The rows of the main job: what is measured, and the bar for each."""

from __future__ import annotations

from dataclasses import dataclass

from .ab import Task

BULK = "128M"
SMALL = "8:64K:2"


@dataclass(frozen=True)
class Row:
    """A named task on links of a rate."""

    name: str
    rate: str
    task: Task


def main_rows(payload: str) -> list[Row]:
    """The rows, with ``payload`` as the real weights; rows of one rate stand together, so that one lab serves them."""
    rows = []
    for rate, bar, iters in (("10gbit", 1.36, 4), ("25gbit", 1.28, 8)):
        for collective in ("all_reduce", "broadcast"):
            task = Task(collective, BULK, payload=payload, iters=iters, bar=bar)
            rows.append(Row(f"{collective} weights {rate}", rate, task))
        if rate != "10gbit":
            continue
        for collective in ("all_reduce", "broadcast"):
            task = Task(collective, BULK, payload="random", iters=iters, bar=0.97)
            rows.append(Row(f"{collective} random {rate}", rate, task))
        for collective in ("all_reduce", "broadcast"):
            task = Task(collective, SMALL, payload=payload, iters=50, warmup=5, cycles=7)
            rows.append(Row(f"{collective} latency {rate}", rate, task))
    return rows
