# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""The demo's two modes over stand-ins for the programs that they run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from demo.__main__ import main
from lab_helpers import ROOT
from perf.payload import bf16_from_f32

FAKE_RANKS = """#!/usr/bin/env -S python3 -I -S
import json, os, sys
args = dict(zip(sys.argv[1:], sys.argv[2:]))
assert "--compare" in sys.argv and args["--mode"] == "uzip" and args["--dtype"] == "bf16"
count = int(args["--count"])
with open(os.environ["FAKE_LOG"], "a") as log:
    log.write(f"{args['--collective']} {count}\\n")
behaviour = json.loads(os.environ.get("FAKE_RANKS", "{}"))
if "fail" in behaviour:
    sys.exit(behaviour["fail"])
result = {"raw_bytes": 4 * count, "wire_bytes": 3 * count, "seconds": count / 1e6, "identical": True, **behaviour}
with open(args["--json"], "w") as out:
    json.dump(result, out)
"""


RANKS = ROOT / "build/cpu/uzip_ranks"


@pytest.mark.skipif(not RANKS.exists(), reason=f"{RANKS} is not built: make cpu")
def test_cpu_mode_with_the_real_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = np.random.default_rng(1).normal(0, 0.02, 100_001).astype(np.float32)
    (tmp_path / "w.bf16").write_bytes(bf16_from_f32(values).tobytes())
    files = ["--program", str(RANKS), "--payload", str(tmp_path / "w.bf16"), "--json", str(tmp_path / "demo.json")]
    assert main(["cpu", *files]) == 0
    for r in json.loads((tmp_path / "demo.json").read_text()):
        assert r["identical"] is True and r["count"] == 100_001
        hops = {"all_reduce": 4, "broadcast": 2}[r["collective"]]  # of the whole payload, over all three ranks' sends
        assert r["raw_bytes"] == hops * 2 * 100_001
        assert 0.65 < r["ratio"] < 0.72


@pytest.fixture
def cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    program = tmp_path / "uzip_ranks"
    program.write_text(FAKE_RANKS)
    program.chmod(0o755)
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    with (tmp_path / "w.bf16").open("wb") as file:
        file.truncate(2_000_000)
    return [
        "cpu",
        "--program",
        str(program),
        "--payload",
        str(tmp_path / "w.bf16"),
        "--json",
        str(tmp_path / "demo.json"),
    ]


def test_cpu_mode_writes_an_object_per_collective(
    cpu: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(cpu) == 0
    results = json.loads((tmp_path / "demo.json").read_text())
    assert [r["collective"] for r in results] == ["all_reduce", "broadcast"]
    for r in results:
        assert (r["mode"], r["payload"], r["dtype"], r["ranks"], r["identical"]) == ("cpu", "w.bf16", "bf16", 3, True)
        assert (r["raw_bytes"], r["wire_bytes"], r["ratio"]) == (4_000_000, 3_000_000, 0.75)
    out = capsys.readouterr().out
    assert "0.7500" in out and "ms" not in out and "No GPU" in out


def test_cpu_mode_takes_no_more_values_than_the_time_allows(
    cpu: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*cpu, "--budget", "1"]) == 0
    assert (tmp_path / "log").read_text().split() == [
        *("all_reduce", "262144", "all_reduce", "500000"),
        *("broadcast", "262144", "broadcast", "500000"),
    ]
    assert "first 50 %" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("behaviour", "says"),
    [
        ({"identical": False}, "not bit-identical"),
        ({"identical": None}, "not bit-identical"),
        ({"fail": 9}, "--collective all_reduce ended with 9"),
    ],
)
def test_cpu_mode_fails_when_the_program_does(
    cpu: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    behaviour: dict[str, Any],
    says: str,
) -> None:
    monkeypatch.setenv("FAKE_RANKS", json.dumps(behaviour))
    assert main(cpu) == 2
    assert says in capsys.readouterr().err


def test_a_payload_that_is_not_there_is_named(cpu: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*cpu, "--payload", "/no/w.bf16"]) == 2
    assert "/no/w.bf16" in capsys.readouterr().err
    assert main([*cpu, "--program", "/no/uzip_ranks"]) == 2
    assert "no program /no/uzip_ranks" in capsys.readouterr().err


def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **uzip: Any) -> list[str]:
    monkeypatch.setenv("FAKE_PERF_LOG", str(tmp_path / "log"))
    for name in ("all_reduce_perf", "broadcast_perf"):
        shutil.copy(Path(__file__).with_name("fake_perf.py"), tmp_path / name)
    libraries = {
        "stock": {"name": "A", "speed": 1, "wire": None},
        "uzip": {"name": "B", "speed": 1.4, "wire": 0.68, **uzip},
    }
    for name, behaviour in libraries.items():
        (tmp_path / name).write_text(json.dumps({"hash": "0f", **behaviour}))
    (tmp_path / "w.bf16").write_bytes(bytes(8))
    files = ["--stock", str(tmp_path / "stock"), "--uzip", str(tmp_path / "uzip"), "--perf-dir", str(tmp_path)]
    return [
        "gpu",
        *files,
        "--payload",
        str(tmp_path / "w.bf16"),
        "--json",
        str(tmp_path / "demo.json"),
        "--rate",
        "none",
    ]


def test_gpu_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(gpu(tmp_path, monkeypatch)) == 0
    results = json.loads((tmp_path / "demo.json").read_text())
    assert [r["collective"] for r in results] == ["all_reduce", "broadcast"]
    for r in results:
        assert r["mode"] == "gpu" and r["ranks"] == 2 and r["identical"] is True and r["raw_bytes"] == 256 << 20
        assert r["speedup"] == pytest.approx(1.4) and r["ratio"] == pytest.approx(0.68)
        assert r["time_us"] < r["stock_time_us"] and r["busbw"] > r["stock_busbw"]
    out = capsys.readouterr().out
    assert "1.400" in out and "UNSHAPED LOOPBACK" in out


@pytest.mark.parametrize(
    ("uzip", "says"), [({"hash": "ff"}, "not bit-identical"), ({"wire": None}, "nothing compressed")]
)
def test_gpu_mode_fails_on_other_bits_and_on_nothing_compressed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    uzip: dict[str, Any],
    says: str,
) -> None:
    assert main(gpu(tmp_path, monkeypatch, **uzip)) == 2
    assert says in capsys.readouterr().err
