# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""The fuzz targets build, replay their corpora and survive some thousand mutations; and they can fail."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import fuzz

RUNS = {"decode": os.environ.get("UZIP_FUZZ_RUNS", "4000"), "roundtrip": os.environ.get("UZIP_FUZZ_RUNS", "1000")}


def run(program: Path, *args: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *args],
        env={**os.environ, **fuzz.ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture(scope="module", params=fuzz.TARGETS)
def target(request: pytest.FixtureRequest, folder: Path) -> tuple[str, Path]:
    name: str = request.param
    return name, fuzz.build(name, folder)


def test_replay_and_mutate(target: tuple[str, Path], folder: Path) -> None:
    name, program = target
    corpus = fuzz.make_corpus(name, folder / f"corpus-{name}")
    result = run(program, "--seed", "1", "--runs", RUNS[name], "--find", folder / "find", *corpus)
    assert result.returncode == 0, f"{result.stderr[-4000:]}\nthe input is in {folder / 'find'}"
    assert result.stdout.endswith(f"{RUNS[name]} mutations\n")


FAULTS = {
    (0, "decode"): None,
    (0, "roundtrip"): None,
    (1, "roundtrip"): "does not hold: memcmp(slot.data(), again.data(), wireBytes) == 0",
    (2, "decode"): "AddressSanitizer",
    (3, "roundtrip"): "does not hold: memcmp(out.data(), data + 1, rawBytes) == 0",
    (4, "roundtrip"): "AddressSanitizer",
    (4, "decode"): "AddressSanitizer",
    (5, "decode"): "does not hold: raw->data()[i] == 0",
    (6, "decode"): "does not hold: uint32_t(error) <= UZIP_ERR_POISON",
}


@pytest.fixture(scope="module")
def faulty(folder: Path) -> dict[str, Path]:
    return {name: fuzz.build(name, folder, faulty=True) for name in fuzz.TARGETS}


@pytest.mark.parametrize(("fault", "name"), FAULTS)
def test_targets_find_known_faults(
    fault: int, name: str, folder: Path, faulty: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A codec with a known fault is found out, and the input is kept; the same codec without a fault passes."""
    monkeypatch.setenv("UZIP_FUZZ_FAULT", str(fault))
    find = folder / f"find-{name}-{fault}"
    corpus = fuzz.make_corpus(name, folder / f"corpus-{name}")
    result = run(faulty[name], "--runs", "300", "--find", find, *corpus)
    expected = FAULTS[fault, name]
    if expected is None:
        assert result.returncode == 0, result.stderr[-2000:]
        assert not find.exists()
        return
    assert result.returncode != 0
    assert expected in result.stderr
    assert find.exists()
    again = run(faulty[name], "--find", folder / "again", find)
    assert again.returncode != 0, "the input that was kept does not show the fault"
    assert expected in again.stderr


def test_wrong_arguments_are_errors(faulty: dict[str, Path], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UZIP_FUZZ_FAULT", "0")
    for args, word in (
        ((), "no inputs"),
        (("--runs", "x", "."), "--runs"),
        ((folder / "none",), "none"),
        (("-x",), "usage"),
    ):
        result = run(faulty["decode"], *args)
        assert result.returncode == 2
        assert word in result.stderr
