# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""docs/HOOKS.md lists every hook of the patch series, and nothing else."""

from __future__ import annotations

import re

from host_shim import ROOT

PATCHES = ROOT / "nccl-uzip" / "patches" / "2.29.7"


def hooks() -> dict[str, str]:
    """`file:line` in the unpatched source of each hunk, to the number of the patch that holds it."""
    found = {}
    for patch in sorted(PATCHES.glob("*.patch")):
        file = ""
        for line in patch.read_text().splitlines():
            if line.startswith("--- a/"):
                file = line.removeprefix("--- a/")
            elif hunk := re.match(r"@@ -(\d+)", line):
                found[f"{file}:{hunk[1]}"] = patch.name[:4]
    return found


def test_page_lists_the_series() -> None:
    page = (ROOT / "docs" / "HOOKS.md").read_text()
    listed: dict[str, list[str]] = {}
    numbers: list[str] = []
    for line in page.splitlines():
        if heading := re.match(r"## .*\((`.*`)\)", line):
            first, *last = re.findall(r"\d{4}", heading[1])
            numbers = [f"{n:04}" for n in range(int(first), int(last[0] if last else first) + 1)]
        elif place := re.match(r"\| `([\w./]+:\d+)` \|", line):
            assert place[1] not in listed, f"{place[1]} is listed twice"
            listed[place[1]] = numbers
    series = hooks()
    assert set(listed) == set(series)
    assert [place for place, number in series.items() if number not in listed[place]] == []


def test_page_counts_the_lines() -> None:
    lines = [line for patch in PATCHES.glob("*.patch") for line in patch.read_text().splitlines()]
    added = sum(line.startswith("+") and not line.startswith("+++") for line in lines)
    removed = sum(line.startswith("-") and not line.startswith("---") for line in lines)
    page = (ROOT / "docs" / "HOOKS.md").read_text()
    assert removed == 1
    assert f"by {added} added lines and one removed line" in page.replace("\n", " ")
