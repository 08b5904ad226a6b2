# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Writes a payload: NAME.bf16, NAME.f32 and NAME.json in one folder."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .floats import bf16_from_f32
from .source import PayloadError, read_values


@dataclass(frozen=True)
class Payload:
    """A payload on disk: ``bf16`` and ``f32`` hold the same ``values`` numbers, raw and little-endian."""

    name: str
    values: int
    bf16: Path
    f32: Path


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _write(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    part = path.with_name(path.name + ".part")
    try:
        part.write_bytes(data)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def load_payload(folder: Path, name: str) -> Payload | None:
    """Return the payload ``name`` in ``folder`` if it is there and whole."""
    try:
        note = json.loads((folder / f"{name}.json").read_text())
        for file, entry in note["files"].items():
            if (folder / file).stat().st_size != entry["bytes"] or _digest((folder / file).read_bytes()) != entry[
                "sha256"
            ]:
                return None
        return Payload(name, int(note["values"]), folder / f"{name}.bf16", folder / f"{name}.f32")
    except (OSError, ValueError, KeyError, AttributeError):
        return None


def make_payload(
    source: Path, folder: Path, name: str, *, origin: str = "", limit: int | None = None, expect: int | None = None
) -> Payload:
    """Read ``source`` (see `read_values`) and write the payload ``name`` into ``folder``.

    origin: what the note says about where the values come from; the file's name if empty. limit: keep only that many
    values from the front. expect: how many values the source must hold. Raises PayloadError, and then leaves no file.
    """
    values, tensors = read_values(source)
    if expect is not None and len(values) != expect:
        raise PayloadError(f"{source}: {len(values)} float values instead of {expect}; get it anew")
    values = values[:limit]
    folder.mkdir(parents=True, exist_ok=True)
    payload = Payload(name, len(values), folder / f"{name}.bf16", folder / f"{name}.f32")
    contents = {
        payload.bf16: ("bf16", bf16_from_f32(values).astype("<u2").tobytes()),
        payload.f32: ("f32", values.astype(np.dtype("<f4"), copy=False).tobytes()),
    }
    note = {
        "name": name,
        "origin": origin or source.name,
        "tensors": tensors,
        "values": len(values),
        "rounding": "to nearest, ties to even",
        "files": {
            path.name: {"dtype": dtype, "bytes": len(data), "sha256": _digest(data)}
            for path, (dtype, data) in contents.items()
        },
    }
    for path, (_, data) in contents.items():
        _write(path, data)
    _write(folder / f"{name}.json", (json.dumps(note, indent=1) + "\n").encode())
    return payload
