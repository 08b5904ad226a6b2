# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Many rows in one go: a lab per rate, a file per row, a time budget, and going on where the last call stopped."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perf.lab import Lab

from .ab import compare
from .perfbin import BenchError, Library
from .report import ROW_HEADER, row_lines, table, yes
from .rows import Row

FIRST_ROW_SECONDS = 60.0  # what a row is taken to need until one was slower


def write_json(path: Path, data: Any) -> None:
    """Write ``data`` to ``path`` whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(data, indent=1) + "\n")
    os.replace(part, path)


@dataclass
class Campaign:
    """Rows measured into the folder ``out``.

    setting: machine, versions and command, kept beside the results; its ``libraries`` decide whether a row that is
    there counts as measured. budget: seconds after which no row is to end. options: further arguments of `compare`.
    """

    out: Path
    a: Library
    b: Library
    setting: dict[str, Any]
    budget: float
    strict: bool
    say: Callable[[str], None]
    options: dict[str, Any]
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    unfinished: list[str] = field(default_factory=list)

    def run(self, rows: Sequence[Row], *, redo: bool = False) -> None:
        """Measure what is not there yet, as far as the budget goes. A row that fails is noted and passed over."""
        start = time.monotonic()
        longest = FIRST_ROW_SECONDS
        todo = [row for row in rows if redo or not self._load(row)]
        while todo:
            rate = todo[0].rate
            with Lab(2, rate, strict=self.strict) as lab:
                while todo and todo[0].rate == rate:
                    began = time.monotonic()
                    if began - start + longest > self.budget:
                        self.unfinished = [row.name for row in todo]
                        return
                    self._measure(lab, todo.pop(0))
                    longest = max(longest, time.monotonic() - began)

    def write(self, rows: Sequence[Row]) -> str:
        """Write results.json and results.md with what is there, in the order of ``rows``; return the latter."""
        ordered = {row.name: self.results[row.name] for row in rows if row.name in self.results}
        summary = {**self.setting, "rows": ordered, "errors": self.errors, "unfinished": self.unfinished}
        write_json(self.out / "results.json", summary)
        text = self._markdown(ordered)
        (self.out / "results.md").write_text(text)
        return text

    def _path(self, row: Row) -> Path:
        return self.out / f"{row.name.replace(' ', '-')}.json"

    def _load(self, row: Row) -> bool:
        try:
            result = json.loads(self._path(row).read_text())
            hashes = [library["sha256"] for library in result["libraries_used"]]
        except (OSError, ValueError, KeyError, TypeError):
            return False
        if hashes != [library["sha256"] for library in self.setting["libraries"]]:
            return False
        self.results[row.name] = result
        self.say(f"{row.name}: there already")
        return True

    def _measure(self, lab: Lab, row: Row) -> None:
        self.say(f"{row.name} ...")
        began = time.monotonic()
        try:
            compared = compare(lab, self.a, self.b, row.task, say=self.say, **self.options)
        except BenchError as err:
            self.errors[row.name] = str(err)
            self.say(f"{row.name}: error: {err}")
            return
        result = {
            **compared.as_dict(),
            "rate": row.rate,
            "shaped": lab.shaped,
            "mps": lab.mps,
            "expected_mbps": lab.rate // 10**6 if lab.rate else None,
            "seconds": round(time.monotonic() - began, 1),
            "libraries_used": self.setting["libraries"],
        }
        write_json(self._path(row), result)
        self.results[row.name] = result
        self.say(f"{row.name}: reached {yes(compared.passed)} ({result['seconds']} s)")

    def _markdown(self, ordered: dict[str, dict[str, Any]]) -> str:
        lines = [line for name, result in ordered.items() for line in row_lines(name, result)]
        host = self.setting["machine"]
        notes = [
            f"- {host['gpu']}, driver {host['driver']}, {host['cpus']} x {host['cpu']}, Linux {host['kernel']}",
            f"- commit {self.setting['commit']}",
            *(f"- {lib['name']}: {lib['path']}, SHA-256 {lib['sha256']}" for lib in self.setting["libraries"]),
            f"- `{self.setting['command']}`",
        ]
        for name, result in ordered.items():
            if not result["shaped"]:
                notes.append(f"- {name}: over UNSHAPED loopback")
            elif result["nccl_link_mbps"] != result["expected_mbps"]:
                notes.append(f"- {name}: NCCL took the link for {result['nccl_link_mbps']} Mbit/s")
        notes += [f"- {name}: FAILED: {error.splitlines()[0]}" for name, error in self.errors.items()]
        notes += [f"- {name}: not measured yet" for name in self.unfinished]
        legend = "A is stock, B is nccl-uzip. Times are medians; speed-up is the median of the pairs' ratios A/B."
        return "\n".join([table(ROW_HEADER, lines), "", legend, "", *notes, ""])
