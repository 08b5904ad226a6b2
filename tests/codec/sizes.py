# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Sizes of named payloads, encoded by the kernels' codec.

`python tests/codec/sizes.py` rewrites sizes.csv, whose diff is reviewed.
"""

from __future__ import annotations

from pathlib import Path

import device
from oracle import CODEC_LEVELS, TYPES, Header
from payloads import PAYLOADS, payload

FILE = Path(__file__).parent / "sizes.csv"
VALUES = 65536  # of a slice
COLUMNS = "payload,type,values,codec,raw_bytes,wire_bytes,ratio"


def row(name: str, type_name: str) -> str:
    """The line of a payload and type."""
    raw = payload(name, type_name, VALUES)
    error, slot = device.encode(TYPES[type_name], raw)
    if error:
        raise RuntimeError(f"{name}.{type_name}: the encoder failed with error {error}")
    codec = "levels" if Header.unpack(slot).codec == CODEC_LEVELS else "raw"
    return f"{name},{type_name},{VALUES},{codec},{len(raw)},{len(slot)},{len(slot) / len(raw):.4f}"


def main() -> None:
    lines = [COLUMNS, *(row(name, t) for t in TYPES for name in PAYLOADS)]
    FILE.write_text("\n".join(lines) + "\n")
    print(FILE.read_text(), end="")


if __name__ == "__main__":
    main()
