# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""The A/B harness over a stand-in for the perf binaries: order, arithmetic, verdicts, resuming."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perf.bench import judge
from perf.bench.__main__ import main
from perf.bench.machine import git_commit, machine
from perf.bench.rows import main_rows

FAKE = Path(__file__).with_name("fake_perf.py")


def test_the_median_of_pairs_and_the_spread_of_a_against_a() -> None:
    outcome = judge([100, 102, 100, 98, 100, 101], [50, 50, 60, 49, 50])
    assert outcome.ratios == [2.0, 2.04, 100 / 60, 2.0, 2.0]
    assert outcome.median == 2.0
    assert outcome.spread == pytest.approx(102 / 100 - 1, abs=1e-3)
    assert outcome.passed and not outcome.noisy


@pytest.mark.parametrize(("speed", "passed"), [(0.971, True), (0.969, False), (1.5, True)])
def test_as_fast_as_is_three_percent_where_a_is_steady(speed: float, passed: bool) -> None:
    assert judge([100.0] * 6, [100 / speed] * 5).passed is passed


@pytest.mark.parametrize(("speed", "passed"), [(0.92, True), (0.90, False)])
def test_as_fast_as_is_the_spread_where_a_is_not(speed: float, passed: bool) -> None:
    outcome = judge([100, 100, 100, 100, 100, 110], [100 / speed] * 5)
    assert outcome.noisy and outcome.spread == pytest.approx(1 / 11)
    assert outcome.passed is passed


def test_a_bar_is_a_bar_whatever_the_spread() -> None:
    assert judge([100, 130, 100, 100, 100, 100], [100 / 1.36] * 5, 1.35).passed
    assert not judge([100, 130, 100, 100, 100, 100], [100 / 1.34] * 5, 1.36).passed


@pytest.mark.parametrize(("a", "b"), [([1, 1], [1, 1]), ([1], []), ([1, 0], [1])])
def test_samples_that_are_no_pairs_are_refused(a: list[float], b: list[float]) -> None:
    with pytest.raises(ValueError, match=r"needed|positive"):
        judge(a, b)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Run the command line with fake binaries and libraries in ``tmp_path``."""
    monkeypatch.setenv("FAKE_PERF_LOG", str(tmp_path / "log"))
    perf = tmp_path / "perf"
    perf.mkdir()
    for name in ("all_reduce_perf", "broadcast_perf"):
        shutil.copy(FAKE, perf / name)
    library(tmp_path / "a.so", name="A")
    library(tmp_path / "b.so", name="B", speed=1.4, wire=0.68)
    (tmp_path / "w.bf16").write_bytes(bytes(4))

    def run(action: str, *args: str) -> int:
        files = ["--lib-a", str(tmp_path / "a.so"), "--lib-b", str(tmp_path / "b.so"), "--perf-dir", str(perf)]
        return main([action, *files, "--no-extra", "--allow-unshaped", *args])

    return run


def library(path: Path, **behaviour: Any) -> None:
    path.write_text(json.dumps({"speed": 1, "wire": None, "hash": "00ff", **behaviour}))


AB = ("--collective", "all_reduce", "--rate", "none")


def test_a_comparison(bench: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    args = ("--sizes", "1M", "--bar", "1.36", "--payload", str(tmp_path / "w.bf16"))
    assert bench("ab", *AB, *args, "--json", str(out)) == 0
    result = json.loads(out.read_text())
    entry = result["sizes"][str(1 << 20)]
    assert entry["median"] == pytest.approx(1.4) and entry["spread"] == 0 and entry["identical"]
    assert entry["raw_bytes"] == 2 << 20 and entry["ratio"] == pytest.approx(0.68, abs=1e-6)
    assert entry["a_busbw"] == pytest.approx((1 << 20) / (50 + (1 << 20) / 1250) / 1000)
    assert result["shaped"] is False and result["nccl_link_mbps"] == 10000
    assert [lib["name"] for lib in result["libraries"]] == ["stock", "uzip"] and len(
        result["libraries"][0]["sha256"]
    ) == 64
    assert result["machine"].keys() == machine().keys()
    ran = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    assert "".join(words[0] for words in ran) == "AB" + "AB" * 5 + "A"
    assert all("--hash" in words for words in ran[:2]) and not any("--hash" in words for words in ran[2:])
    assert "1.400" in capsys.readouterr().out


@pytest.mark.parametrize(
    "behaviour", [{"speed": 1.35}, {"speed": 1.4, "hash": "00fe"}, {"speed": 1.4, "wrong": 1}], ids=str
)
def test_slow_or_different_or_wrong_is_not_passed(
    bench: Callable[..., int], tmp_path: Path, behaviour: dict[str, Any]
) -> None:
    library(tmp_path / "b.so", name="B", **behaviour)
    assert bench("ab", *AB, "--sizes", "1M", "--bar", "1.36") == 1


def test_each_size_of_a_ladder_is_judged(bench: Callable[..., int], tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    library(tmp_path / "b.so", name="B", speed=0.98)
    assert bench("ab", *AB, "--sizes", "8:64K:2", "--cycles", "3", "--json", str(out)) == 0
    sizes = json.loads(out.read_text())["sizes"]
    assert [int(size) for size in sizes] == [8 << i for i in range(14)]
    assert all(entry["passed"] and entry["needed"] == 0.97 for entry in sizes.values())


def test_variables_of_one_side(bench: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("ab", *AB, "--sizes", "1M", "--env-b", "NCCL_PROTO") == 2
    assert "'NCCL_PROTO': give NAME=VALUE" in capsys.readouterr().err
    log = tmp_path / "other"
    assert bench("ab", *AB, "--sizes", "1M", "--env-b", f"FAKE_PERF_LOG={log}") == 0
    assert {line[0] for line in log.read_text().splitlines()} == {"B"}


@pytest.mark.parametrize(
    ("behaviour", "says"),
    [
        ({"fail": 3}, "all_reduce_perf with uzip: rank"),
        ({"loaded": "/usr/lib/libnccl.so.2"}, "ran /usr/lib/libnccl.so.2 instead of"),
        ({"schema": 2}, "JSON schema 2, 1 is known"),
    ],
)
def test_a_sample_that_cannot_count_is_an_error(
    bench: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str], behaviour: dict[str, Any], says: str
) -> None:
    library(tmp_path / "b.so", name="B", **behaviour)
    assert bench("ab", *AB, "--sizes", "1M") == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--sizes", "1:2:3:4"), "sizes '1:2:3:4'"),
        (("--sizes", "1M", "--pairs", "4"), "4 pairs"),
        (("--sizes", "1M", "--lib-b", "/no/lib.so"), "no library /no/lib.so"),
        (("--sizes", "1M", "--perf-dir", "/no"), "no program /no/all_reduce_perf"),
        (("--sizes", "1M", "--rate", "quick"), "rate 'quick'"),
    ],
)
def test_bad_input_is_one_error(
    bench: Callable[..., int], capsys: pytest.CaptureFixture[str], args: tuple[str, ...], says: str
) -> None:
    assert bench("ab", *AB, *args) == 2
    assert says in capsys.readouterr().err


def test_rows_are_kept_and_taken_up_again(
    bench: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    args = ("--out", str(out), "--payload", str(tmp_path / "w.bf16"), "--only", "weights 10gbit")
    assert bench("main", *args, "--budget", "1") == 3
    assert json.loads((out / "results.json").read_text())["unfinished"] == [
        "all_reduce weights 10gbit",
        "broadcast weights 10gbit",
    ]
    assert bench("main", *args) == 0
    results = json.loads((out / "results.json").read_text())
    assert list(results["rows"]) == ["all_reduce weights 10gbit", "broadcast weights 10gbit"]
    assert (out / "results.md").read_text().count("| 128M |") == 2
    (tmp_path / "log").unlink()
    assert bench("main", *args) == 0
    assert not (tmp_path / "log").exists(), "a row that was there was measured again"
    library(tmp_path / "b.so", name="B", speed=1.1)
    capsys.readouterr()
    assert bench("main", *args, "--only", "all_reduce weights 10gbit") == 1
    assert (tmp_path / "log").exists(), "a row of another library was taken for measured"


def test_a_row_that_fails_does_not_stop_the_others(
    bench: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "perf/all_reduce_perf").unlink()
    out = tmp_path / "out"
    assert bench("main", "--out", str(out), "--payload", str(tmp_path / "w.bf16"), "--only", "random") == 2
    results = json.loads((out / "results.json").read_text())
    assert list(results["rows"]) == ["broadcast random 10gbit"]
    assert "no program" in results["errors"]["all_reduce random 10gbit"]
    assert "all_reduce random 10gbit: FAILED" in (out / "results.md").read_text()


def test_the_rows_are_those_of_the_main_job() -> None:
    rows = {row.name: row for row in main_rows("w")}
    for collective in ("all_reduce", "broadcast"):
        bars = {rate: rows[f"{collective} weights {rate}"].task.bar for rate in ("10gbit", "25gbit")}
        assert bars == {"10gbit": 1.36, "25gbit": 1.28}
        assert rows[f"{collective} random 10gbit"].task.bar == 0.97
        assert rows[f"{collective} latency 10gbit"].task.bar is None
        assert not rows[f"{collective} latency 10gbit"].task.env
    assert len(rows) == 8


def test_the_commit_can_be_given_where_there_is_no_git(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("UZIP_COMMIT", "abc")
    assert git_commit(tmp_path) == "abc"
    monkeypatch.delenv("UZIP_COMMIT")
    assert git_commit(tmp_path) == "unknown"
