# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""docs/FORMAT.md agrees with the slow codec and with uzip_format.h."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import golden
import oracle

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "FORMAT.md").read_text()
HEADER = (ROOT / "nccl-uzip" / "src" / "codec" / "uzip_format.h").read_text()


def parse_hexdump(text: str) -> bytes:
    """Bytes of a `hexdump -C` listing; `*` repeats the line above up to the next offset."""
    out = b""
    for line in text.splitlines():
        if line == "*":
            continue
        offset = int(line[:8], 16)
        out += (offset - len(out)) // 16 * out[-16:]
        assert len(out) == offset
        out += bytes.fromhex(line[8:].split("|")[0])
    return out


@pytest.mark.parametrize("title", golden.examples())
def test_worked_example(title: str) -> None:
    raw, slot = golden.examples()[title]
    section = PAGE.split(f"\n### {title}\n")[-1].split("\n### ")[0]
    dump = re.search(r"```\n(0{8}  .*?)\n```", section, re.S)
    assert dump, f"FORMAT.md has no dump under {title!r}"
    assert dump[1] == golden.hexdump(slot)
    printed = parse_hexdump(dump[1])
    assert printed == slot
    if title == "Poison":
        with pytest.raises(oracle.Refused, match="ERR_POISON"):
            oracle.decode_slot(printed, len(raw))
    else:
        assert oracle.decode_slot(printed, len(raw)) == raw


def test_page_has_no_dump_beyond_the_examples() -> None:
    assert len(re.findall(r"```\n0{8}  ", PAGE)) == len(golden.examples())


def test_errors_are_those_of_the_header_file() -> None:
    in_header = {int(n): name for name, n in re.findall(r"UZIP_ERR_(\w+) = (\d+)", HEADER)}
    in_page = {int(n): name for n, name in re.findall(r"^\| (\d+) \| ERR_(\w+) \|", PAGE, re.M)}
    assert in_header == in_page == oracle.ERRORS


def test_numbers_are_those_of_the_header_file() -> None:
    version = int(re.search(r"define UZIP_FORMAT_VERSION (\d+)u", HEADER)[1])  # type: ignore[index]
    assert f"Format version **{version}**" in PAGE
    assert 0x5A55 | version << 16 == oracle.MAGIC
    assert f"`{oracle.MAGIC:#010x}`" in PAGE
    for name, number in re.findall(r"UZIP_TYPE_(BF16|F16|F32) = (\d+)", HEADER):
        ftype = oracle.TYPES[name.lower()]
        assert ftype.number == int(number)
        assert re.search(
            rf"^\| {number} \| {ftype.name} \| {ftype.element_bytes} \| .* \| {ftype.fixed_bytes} \|", PAGE, re.M
        )
