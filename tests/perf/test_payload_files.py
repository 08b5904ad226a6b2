# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Payload files: tiling and rotation, conversion between types, and files that must be refused."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from perf_programs import Tool
from test_numbers import payload


def to_bf16(values: np.ndarray) -> np.ndarray:
    """Round finite float32 to bf16 bits, nearest even."""
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def test_tiled_and_rotated(tool: Tool, tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 1 << 16, 1000, dtype=np.uint16)
    path = tmp_path / "x.bf16"
    path.write_bytes(values.tobytes())
    for rank in range(4):
        got = np.frombuffer(payload(tool, path, "bfloat16", rank, 2500), np.uint16)
        assert np.array_equal(got, values[(np.arange(2500) + rank * 4099) % 1000])  # bits, NaN patterns included


@pytest.mark.parametrize(("suffix", "kind"), [("f32", np.float32), ("f16", np.float16)])
def test_converted_to_the_run_type(tool: Tool, tmp_path: Path, suffix: str, kind: type) -> None:
    values: np.ndarray = (np.random.default_rng(1).standard_normal(5000) * 0.02).astype(kind)
    path = tmp_path / f"x.{suffix}"
    path.write_bytes(values.tobytes())
    assert payload(tool, path, "bfloat16", 0, 5000) == to_bf16(values).tobytes()
    assert payload(tool, path, "half", 0, 5000) == values.astype(np.float16).tobytes()
    assert payload(tool, path, "float", 0, 5000) == values.astype(np.float32).tobytes()
    assert payload(tool, path, "double", 0, 5000) == values.astype(np.float64).tobytes()


def test_safetensors_joins_its_float_tensors(tool: Tool, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    a = rng.standard_normal((7, 11)).astype(np.float32)
    b = rng.standard_normal(13).astype(np.float16)
    path = tmp_path / "model.safetensors"
    tensors: dict[str, Any] = {"a": a, "ids": np.arange(5), "b": b, "none": np.zeros((0, 4), np.float32)}
    save_file(tensors, path, {"made by": "a \\u0022 test"})
    header_bytes = struct.unpack("<Q", path.read_bytes()[:8])[0]
    header = json.loads(path.read_bytes()[8 : 8 + header_bytes])
    order = sorted(("a", "b"), key=lambda name: header[name]["data_offsets"])
    want = np.concatenate([tensors[name].astype(np.float32).ravel() for name in order])
    assert payload(tool, path, "float", 0, len(want)) == want.tobytes()
    assert payload(tool, path, "float", 1, len(want)) == np.roll(want, -4099).tobytes()


def refused(tool: Tool, path: Path, dtype: str = "bfloat16") -> str:
    done = tool("payload", path, dtype, 0, 1, 1)
    assert done.returncode in (1, 2)
    text = str(done.stderr.decode())
    assert text.count("\n") == 1 and "Sanitizer" not in text and "runtime error" not in text
    return text


def test_files_that_cannot_be_used(tool: Tool, tmp_path: Path) -> None:
    def made(name: str, content: bytes) -> Path:
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    assert "No such file" in refused(tool, tmp_path / "none.bf16")
    (tmp_path / "folder.bf16").mkdir()
    assert "not a regular file" in refused(tool, tmp_path / "folder.bf16")
    assert "empty" in refused(tool, made("empty.f32", b""))
    assert "5 bytes" in refused(tool, made("odd.f32", b"12345"))
    assert ".safetensors" in refused(tool, made("x.npy", b"1234"))
    assert "-d int32" in refused(tool, made("x.f32", b"1234"), "int32")


def safetensors(header: Any, data: int = 64, claim: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if claim is None else claim) + text + bytes(data)


GOOD: dict[str, Any] = {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64]}


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "empty"),
        (b"1234567", "shorter"),
        (safetensors({"a": GOOD}, claim=2**63), "claims"),
        (safetensors({"a": GOOD}, claim=2**64 - 1), "claims"),
        (safetensors({"a": GOOD}, claim=1 << 20), "claims"),
        (safetensors(b"[]"), "not an object"),
        (safetensors(b"{"), "not JSON"),
        (safetensors(b'{"a": {}} x'), "not JSON"),
        (safetensors(b"[" * 5000), "nested"),
        (safetensors(b'{"a": 1, "a": 2}'), "twice"),
        (safetensors({"a": 1}), "lacks"),
        (safetensors({"a": {**GOOD, "dtype": 7}}), "lacks"),
        (safetensors({"a": {**GOOD, "dtype": "F33"}}), "F33"),
        (safetensors({"a": {**GOOD, "data_offsets": [0, 65]}}), "outside"),
        (safetensors({"a": {**GOOD, "data_offsets": [64, 0]}}), "outside"),
        (safetensors({"a": {**GOOD, "data_offsets": [-64, 0]}}), "lacks"),
        (safetensors({"a": {**GOOD, "data_offsets": [0, 2**64]}}), "lacks"),
        (safetensors({"a": {**GOOD, "data_offsets": [2**64 - 1, 2**64 - 1]}}), "outside"),
        (safetensors({"a": {**GOOD, "data_offsets": [0]}}), "lacks"),
        (safetensors({"a": {**GOOD, "shape": [4, 5]}}), "contradict"),
        (safetensors({"a": {**GOOD, "shape": [2**32, 2**32]}}), "impossible"),
        (safetensors({"a": {**GOOD, "shape": [-4, -4]}}), "impossible"),
        (safetensors({"a": {**GOOD, "shape": [4.0, 4]}}), "impossible"),
        (safetensors({"a": GOOD, "b": GOOD}), "overlap"),
        (safetensors({"a": {"dtype": "I64", "shape": [8], "data_offsets": [0, 64]}}), "no BF16"),
        (safetensors({"a": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}), "no BF16"),
        (safetensors({}), "no BF16"),
    ],
)
def test_damaged_safetensors(tool: Tool, tmp_path: Path, content: bytes, word: str) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    text = refused(tool, path, "float")
    assert word in text and str(path) in text


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_mutated_headers_never_crash(tool: Tool, tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(safetensors({"__metadata__": {"k": "v"}, "a": GOOD}))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 65))] = data.draw(st.integers(0, 255))
    path = tmp_path / "mutated.safetensors"
    path.write_bytes(content)
    done = tool("payload", path, "float", 0, 16, 1)
    assert done.returncode in (0, 1)
    assert b"Sanitizer" not in done.stderr and b"runtime error" not in done.stderr


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.one_of(st.text(max_size=20), st.text(alphabet='{}[]":,0123456789.eE+-truefalsn\\u ', max_size=20)))
def test_json_is_read_as_strictly_as_python_does(tool: Tool, text: str) -> None:
    def no_constant(name: str) -> None:
        raise ValueError(name)

    def no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({k for k, _ in pairs}) != len(pairs):
            raise ValueError("repeated")
        return dict(pairs)

    encoded = text.encode("utf-8", "surrogatepass")
    try:
        value = json.loads(text, parse_constant=no_constant, object_pairs_hook=no_repeats)
        valid = "\\ud" not in json.dumps(value)  # Python lets lone surrogates pass
    except (ValueError, RecursionError):
        valid = False
    done = tool("json", data=encoded)
    if valid or "\\ud" not in text.lower():
        assert (done.returncode == 0) == valid, (text, done.stderr)
