# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""uzip_ranks as a program: its JSON, and what it refuses."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from emulated_ranks import PAYLOAD_ELEMENTS, USAGE, Ranks

KEYS = {"raw_bytes", "wire_bytes", "ratio", "seconds", "ranks", "collective", "mode", "dtype", "count"}


def test_json(ranks: Ranks) -> None:
    plain = ranks("normal.bf16", mode="simple").json
    assert plain.keys() >= KEYS and "identical" not in plain
    assert plain["mode"] == "simple" and plain["dtype"] == "bf16" and plain["count"] == PAYLOAD_ELEMENTS
    assert plain["raw_bytes"] == plain["wire_bytes"] == 2 * 2 * PAYLOAD_ELEMENTS and plain["ratio"] == 1.0
    packed = ranks("normal.bf16", compare=True, count=400_000).json
    assert packed["raw_bytes"] == 2 * 2 * 400_000 > packed["wire_bytes"] and packed["identical"] is True
    assert packed["ratio"] == pytest.approx(packed["wire_bytes"] / packed["raw_bytes"], abs=1e-6)


@pytest.mark.parametrize(
    "options, names",
    [
        ((), "--payload is needed"),
        (("--payload", "/no/such.bf16"), "/no/such.bf16: No such file"),
        (("--payload", "."), ".: not a file with values"),
        (("--ranks", "1"), "--ranks 1: needs a number from 2 to 64"),
        (("--ranks", "two"), "--ranks two: needs a number"),
        (("--collective", "gather"), "--collective gather: allowed are all_reduce, broadcast"),
        (("--op", "mean"), "--op mean: allowed are sum, prod, min, max, avg, premulsum"),
        (("--dtype", "f64"), "--dtype f64: allowed are bf16, f16, f32"),
        (("--dtype", "f32"), "holds bf16, --dtype says f32"),
        (("--mode", "fast"), "--mode fast: allowed are simple, uzip"),
        (("--buffsize", "5000"), "--buffsize 5000: must be a multiple of 4096"),
        (("--threads", "100"), "--threads 100: must be a multiple of 32"),
        (("--root", "2"), "--root 2: there are 2 ranks"),
        (("--unframed", "7"), "--unframed 7"),
        (("--fault", "rank=0"), "--fault rank=0: needs rank, and byte"),
        (("--fault", "rank=0,colour=1"), "allowed keys are rank, channel, message, byte, xor, truncate"),
        (("--fault", "rank=5,byte=0,xor=1"), "--fault: there are 2 ranks and 2 channels"),
        (("--verbose",), "unknown option"),
        (("stray",), "stray: not an option"),
    ],
)
def test_bad_options(cpu: Path, payloads: Path, options: tuple[str, ...], names: str) -> None:
    payload = () if not options or "--payload" in options else ("--payload", str(payloads / "normal.bf16"))
    done = subprocess.run(
        [cpu / "uzip_ranks", *payload, *options], capture_output=True, text=True, timeout=20, check=False
    )
    assert done.returncode == USAGE
    assert names in done.stderr and done.stdout == ""


def test_payload_of_broken_values(cpu: Path, tmp_path: Path) -> None:
    odd = tmp_path / "odd.f32"
    odd.write_bytes(bytes(10))
    done = subprocess.run(
        [cpu / "uzip_ranks", "--payload", odd], capture_output=True, text=True, timeout=20, check=False
    )
    assert done.returncode == USAGE
    assert "10 bytes are not whole f32 values" in done.stderr


def test_results_that_cannot_be_written(ranks: Ranks) -> None:
    done = subprocess.run(
        [*ranks.command("normal.bf16"), "--json", "/no/folder/x.json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 4
    assert "--json /no/folder/x.json: No such file" in done.stderr
