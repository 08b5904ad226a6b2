# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""The whole programs over a fake CUDA runtime and a fake NCCL: columns, JSON, exit status, and faults they must see."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perf_programs import Ended, Programs, Ranks, clean_env, free_port, launch

# fmt: off
ROW_KEYS = [
    "schema", "collective", "ranks", "size", "count", "dtype", "redop", "root", "payload", "seed", "offset", "iters",
    "agg_iters", "warmup_iters", "check", "graph", "blocking", "cycle", "average", "out_of_place", "in_place",
    "raw_bytes", "wire_bytes", "ratio", "library", "uzip", "device", "cuda_runtime", "cuda_driver", "host", "env",
    "command",
]
PHASE_KEYS = [
    "time_us", "time_min_us", "time_avg_us", "time_max_us", "cpu_us", "algbw", "busbw", "wrong", "unjudged", "hash",
    "ops", "total_raw_bytes", "total_wire_bytes", "ratio",
]
# fmt: on
SMALL = ("-b", "64", "-e", "16K", "-f", "16", "-n", "2", "-d", "bfloat16")


def good(ended: list[Ended]) -> str:
    """Output of rank 0 of a run in which every rank succeeded and only rank 0 spoke."""
    for rank in ended:
        assert (rank.status, rank.err) == (0, "")
    assert all(rank.out == "" for rank in ended[1:])
    return ended[0].out


def table(out: str) -> list[list[str]]:
    return [line.split() for line in out.splitlines() if line and not line.startswith("#")]


def document(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(path.read_text())
    return rows


def test_columns(ranks: Ranks) -> None:
    out = good(ranks(2, "all_reduce", *SMALL))
    rows = table(out)
    assert [row[:5] for row in rows] == [
        ["64", "32", "bfloat16", "sum", "-1"],
        ["1024", "512", "bfloat16", "sum", "-1"],
        ["16384", "8192", "bfloat16", "sum", "-1"],
    ]
    for row in rows:
        assert len(row) == 15
        size, time_us, algbw, busbw, wrong = float(row[0]), float(row[5]), float(row[6]), float(row[7]), row[8]
        assert algbw == pytest.approx(size / time_us / 1e3, abs=0.006)
        assert busbw == pytest.approx(algbw, abs=0.011)  # 2 (n - 1) / n = 1
        assert wrong == "0" and row[12] == "0"
    assert rows[2][13:] == ["0.6666", str(2 * (16384 * 2 // 3))]
    assert "# Out of bounds values : 0 OK" in out and "# Avg bus bandwidth" in out


def test_columns_line_up(ranks: Ranks) -> None:
    lines = good(ranks(2, "all_reduce", *SMALL, "--hash")).splitlines()
    titles = next(i for i, line in enumerate(lines) if " algbw " in line)
    ends = [len(lines[titles][: m + 4]) for m in range(len(lines[titles])) if lines[titles][m : m + 4] == "time"]
    for line in lines[titles + 2 : titles + 5]:
        assert len(line) == len(lines[titles])
        assert all(line[e - 1].isdigit() and line[e] == " " for e in ends)


def test_three_ranks_busbw(ranks: Ranks, tmp_path: Path) -> None:
    good(ranks(3, "all_reduce", *SMALL, "--json", tmp_path / "r.json"))
    good(ranks(3, "broadcast", *SMALL, "--json", tmp_path / "b.json"))
    for row in document(tmp_path / "r.json"):
        assert row["in_place"]["busbw"] == pytest.approx(row["in_place"]["algbw"] * 4 / 3)
    for row in document(tmp_path / "b.json"):
        assert row["in_place"]["busbw"] == row["in_place"]["algbw"]


@pytest.mark.parametrize("payload", ["normal", "random", "grad"])
def test_every_type_and_operation(ranks: Ranks, tmp_path: Path, payload: str) -> None:
    path = tmp_path / "out.json"
    args = ("-b", "4K", "-e", "4K", "-n", "2", "-d", "all", "-o", "all", "--offset", "1", "--payload", payload)
    good(ranks(3, "all_reduce", *args, "--json", path))
    rows = document(path)
    assert len({(r["dtype"], r["redop"]) for r in rows}) == 72
    for row in rows:
        assert row["out_of_place"]["wrong"] == row["in_place"]["wrong"] == 0
    judged = [r for r in rows if payload != "random" and r["redop"] != "prod"]
    assert all(r["out_of_place"]["unjudged"] == 0 for r in judged)


def test_broadcast_from_every_root(ranks: Ranks, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    good(ranks(3, "broadcast", *SMALL, "-r", "all", "--offset", "1", "--hash", "--json", path))
    rows = document(path)
    assert [r["root"] for r in rows] == [0] * 3 + [1] * 3 + [2] * 3
    assert {r["redop"] for r in rows} == {"none"}
    assert len({r["out_of_place"]["hash"] for r in rows}) == 9
    assert all(r["out_of_place"]["hash"] == r["in_place"]["hash"] for r in rows)


@pytest.mark.parametrize(
    "flags", [["-G", "3"], ["-m", "4"], ["-z", "1"], ["-y", "1"], ["-N", "2"], ["-c", "3"], ["-w", "0"]]
)
def test_modes_of_running_give_the_same_values(ranks: Ranks, tmp_path: Path, flags: list[str]) -> None:
    good(ranks(2, "all_reduce", *SMALL, "--hash", "--json", tmp_path / "a.json"))
    good(ranks(2, "all_reduce", *SMALL, "--hash", "--json", tmp_path / "b.json", *flags))
    a, b = document(tmp_path / "a.json"), document(tmp_path / "b.json")
    assert len(b) == (2 if flags[0] == "-N" else 1) * len(a)
    hashes = [[r["out_of_place"]["hash"], r["in_place"]["hash"]] for r in a]
    assert [[r["out_of_place"]["hash"], r["in_place"]["hash"]] for r in b[-len(a) :]] == hashes
    ops = {"-G": 6, "-m": 8}.get(flags[0], 2)
    assert all(r["out_of_place"]["ops"] == ops for r in b)
    assert [r["cycle"] for r in b] == ([0] * 3 + [1] * 3 if flags[0] == "-N" else [0] * 3)


def test_sums_in_place_do_not_overflow_however_long_the_run(ranks: Ranks) -> None:
    """The values timed in place must stay values: the fake fails a call that makes others."""
    for flags in (["-n", "100"], ["-w", "60", "-n", "2"], ["-n", "2", "-G", "30"], ["-n", "30", "-m", "2"]):
        good(ranks(4, "all_reduce", "-b", "1K", "-e", "1K", "-d", "half", *flags, FAKE_NCCL_FAULT="finite"))


def test_the_fake_sees_sums_that_overflow(ranks: Ranks) -> None:
    ended = ranks(
        4, "all_reduce", "-b", "1K", "-e", "1K", "-n", "1", "-m", "60", "-d", "half", FAKE_NCCL_FAULT="finite"
    )
    assert all(rank.status == 1 for rank in ended)


def test_statistics(ranks: Ranks, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    good(ranks(2, "all_reduce", "-b", "3000", "-e", "3000", "-n", "7", "-m", "2", "-d", "half", "--json", path))
    row = document(path)[0]
    for phase in (row["out_of_place"], row["in_place"]):
        assert phase["ops"] == 14
        assert phase["total_raw_bytes"] == 14 * 2 * 3000
        assert phase["total_wire_bytes"] == 14 * 2 * 2000
        assert phase["ratio"] == pytest.approx(2 / 3)
    assert (row["raw_bytes"], row["wire_bytes"], row["ratio"]) == (6000, 4000, pytest.approx(2 / 3))
    assert row["uzip"] == {"enabled": True, "reason": "agreed", "min_bytes": 65536, "exact": False, "forced": True}


def test_stock_library_has_no_statistics(ranks: Ranks, tmp_path: Path, programs: Programs) -> None:
    path = tmp_path / "out.json"
    out = good(ranks(2, "all_reduce", *SMALL, "--json", path, uzip=False))
    assert all(row[13:] == ["-", "-"] for row in table(out))
    assert f"# NCCL version 22907, no uzip, {programs.plain}/libnccl.so.2" in out
    row = document(path)[0]
    assert row["uzip"] is None and row["ratio"] is None and row["raw_bytes"] is None
    assert row["library"] == {
        "path": str(programs.plain / "libnccl.so.2"), "version": 22907, "uzip_version": None, "uzip_format": None
    }  # fmt: skip


def test_json_describes_the_run(ranks: Ranks, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    args = (*SMALL, "--payload", "grad", "--seed", "7", "--offset", "1", "-w", "3", "-a", "1", "--json", path)
    good(ranks(2, "all_reduce", *args, NCCL_ALGO="Ring", NCCL_DEBUG_FILE='a "b"\n\x07é'))
    row = document(path)[1]
    assert list(row) == ROW_KEYS
    assert list(row["in_place"]) == list(row["out_of_place"]) == PHASE_KEYS
    assert (row["schema"], row["collective"], row["ranks"], row["size"], row["count"]) == (
        1,
        "all_reduce",
        2,
        1024,
        512,
    )
    assert (row["payload"], row["seed"], row["offset"], row["warmup_iters"], row["average"]) == ("grad", 7, 1, 3, "avg")
    assert row["env"]["NCCL_ALGO"] == "Ring" and row["env"]["NCCL_DEBUG_FILE"].startswith('a "b"\n\x07')
    assert row["command"][1:] == [str(a) for a in args]
    times = row["out_of_place"]
    assert times["time_min_us"] <= times["time_avg_us"] == times["time_us"] <= times["time_max_us"]


def test_documented_keys_are_the_written_ones(ranks: Ranks, tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "PERF.md").read_text()
    path = tmp_path / "out.json"
    good(ranks(1, "all_reduce", *SMALL, "--json", path))
    row = document(path)[0]
    for key in [*row, *row["in_place"], *row["library"], *row["uzip"]]:
        assert f"`{key}`" in page, key


def test_dump_is_the_reduction(ranks: Ranks, tmp_path: Path) -> None:
    values = np.random.default_rng(3).standard_normal(9000).astype(np.float32)
    (tmp_path / "x.f32").write_bytes(values.tobytes())
    good(
        ranks(2, "all_reduce", "-b", "4K", "-e", "16K", "-f", "4", "-n", "1", "-d", "float", "-c", "0",
              "--payload", tmp_path / "x.f32", "--dump", tmp_path / "out")
    )  # fmt: skip
    want = values[:4096] + values[4099 : 4099 + 4096]
    for rank in range(2):
        assert (tmp_path / f"out.{rank}").read_bytes() == want.tobytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.0", "out.1", "x.f32"]


def test_check_can_be_left_out(ranks: Ranks) -> None:
    rows = table(good(ranks(2, "all_reduce", *SMALL, "-c", "0", FAKE_NCCL_FAULT="value:1")))
    assert all(row[8] == row[12] == "N/A" for row in rows)


@pytest.mark.parametrize("collective", ["all_reduce", "broadcast"])
@pytest.mark.parametrize(
    ("fault", "least"),
    [("value", 1), ("flip", 1), ("behind", 1), ("poison", 1000)],
)
def test_wrong_data_is_counted_and_fails(ranks: Ranks, tmp_path: Path, collective: str, fault: str, least: int) -> None:
    path = tmp_path / "out.json"
    args = ("-b", "4K", "-e", "4K", "-n", "2", "-d", "bfloat16", "--json", path)
    ended = ranks(2, collective, *args, FAKE_NCCL_FAULT=f"{fault}:1")
    assert [rank.status for rank in ended] == [1, 1]
    assert "FAILED" in ended[0].out
    row = document(path)[0]
    assert row["out_of_place"]["wrong"] >= least
    assert row["in_place"]["wrong"] >= least


def test_one_flipped_bit_on_one_rank_is_seen_although_within_the_bound(ranks: Ranks, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    args = ("-b", "4K", "-e", "4K", "-n", "1", "-d", "bfloat16", "-o", "avg", "--json", path)
    ended = ranks(3, "all_reduce", *args, FAKE_NCCL_FAULT="flip:2")
    assert [rank.status for rank in ended] == [1] * 3
    assert document(path)[0]["out_of_place"]["wrong"] >= 1


def test_an_input_that_was_written_to_is_seen(ranks: Ranks) -> None:
    ended = ranks(2, "all_reduce", *SMALL, FAKE_NCCL_FAULT="input:1")
    assert [rank.status for rank in ended] == [1, 1]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("refuse", ["nccl_.allReduce", "invalid argument", "the fake says so"]),
        ("async", ["asynchronous error", "remote process exited"]),
    ],
)
def test_nccl_errors_end_every_rank(ranks: Ranks, fault: str, words: list[str]) -> None:
    begin = time.monotonic()
    ended = ranks(2, "all_reduce", *SMALL, FAKE_NCCL_FAULT=f"{fault}:1")
    assert [rank.status for rank in ended] == [1, 1]
    for word in words:
        assert word in ended[1].err
    assert "rank 1 has ended" in ended[0].err
    assert time.monotonic() - begin < 40


def test_time_limit(ranks: Ranks, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    ended = ranks(2, "all_reduce", *SMALL, "-T", "1", "--json", path, FAKE_NCCL_FAULT="hang:0")
    assert [rank.status for rank in ended] == [1, 1]
    assert "all_reduce of 32 elements not done after 1 s (-T)" in ended[0].err
    assert not list(tmp_path.iterdir())


def test_a_rank_that_dies_ends_the_others(ranks: Ranks) -> None:
    begin = time.monotonic()
    ended = ranks(3, "all_reduce", *SMALL, FAKE_NCCL_FAULT="die:1")
    assert ended[1].status == 3 and ended[0].status == 1 and ended[2].status == 1
    assert "rank 1 has ended" in ended[0].err
    assert time.monotonic() - begin < 40


def test_signals_end_a_run_that_hangs(programs: Programs) -> None:
    env = clean_env(LD_LIBRARY_PATH=str(programs.plain), FAKE_NCCL_FAULT="hang:0")
    p = subprocess.Popen(
        [programs.all_reduce, *SMALL], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert p.stdout is not None
        while "(elements)" not in p.stdout.readline():
            pass
        time.sleep(0.5)
        p.send_signal(signal.SIGTERM)
        _, err = p.communicate(timeout=20)
        assert p.returncode == 1 and "stopped by signal 15" in err
    finally:
        p.kill()


def test_bandwidth_floor(ranks: Ranks) -> None:
    ended = ranks(2, "all_reduce", *SMALL, NCCL_TESTS_MIN_BW="1000000")
    assert [rank.status for rank in ended] == [1, 1]
    assert "FAILED" in ended[0].out
    good(ranks(2, "all_reduce", *SMALL, NCCL_TESTS_MIN_BW="0"))


def test_one_process_without_a_launcher(programs: Programs) -> None:
    env = clean_env(LD_LIBRARY_PATH=str(programs.plain))
    done = subprocess.run([programs.all_reduce, *SMALL], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert all(row[7] == "0.00" for row in table(done.stdout))


def test_library_named_by_path(programs: Programs) -> None:
    env = clean_env(UZIP_PERF_NCCL=str(programs.uzip / "libnccl.so.2"))
    done = subprocess.run([programs.all_reduce, "-V"], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout == f"all_reduce_perf of nccl-uzip, NCCL version 22907, {programs.uzip}/libnccl.so.2\n"


def run_one(programs: Programs, *args: str, **env: str) -> Ended:
    done = subprocess.run(
        [programs.all_reduce, *args], env=clean_env(**env), capture_output=True, text=True, check=False, timeout=60
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def test_library_missing_or_not_nccl(programs: Programs, tmp_path: Path) -> None:
    missing = run_one(programs)
    assert missing.status == 1
    for word in ("libnccl.so.2", "LD_LIBRARY_PATH", "LD_PRELOAD", "UZIP_PERF_NCCL"):
        assert word in missing.err
    source = tmp_path / "empty.c"
    source.write_text("int empty;\n")
    subprocess.run(["cc", "-shared", "-o", tmp_path / "libnccl.so.2", source], check=True)
    other = run_one(programs, LD_LIBRARY_PATH=str(tmp_path))
    assert other.status == 1 and "ncclGetVersion" in other.err and "not an NCCL" in other.err


def test_preload_and_path_at_once_are_refused(programs: Programs) -> None:
    asan = subprocess.run(
        ["g++", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    preload = f"{asan}:{programs.plain}/libnccl.so.2"
    both = run_one(programs, LD_PRELOAD=preload, UZIP_PERF_NCCL=str(programs.uzip / "libnccl.so.2"))
    assert both.status == 1 and "not both" in both.err
    alone = run_one(programs, *SMALL, LD_PRELOAD=preload)
    assert alone.status == 0 and f"{programs.plain}/libnccl.so.2" in alone.out


def test_no_gpu(programs: Programs) -> None:
    ended = run_one(programs, LD_LIBRARY_PATH=str(programs.plain), FAKE_CUDA_DEVICES="0")
    assert ended.status == 1 and "no usable GPU" in ended.err


def test_too_large_for_the_gpu(programs: Programs) -> None:
    ended = run_one(
        programs, "-b", "8", "-e", "8M", "-f", "2", LD_LIBRARY_PATH=str(programs.plain), FAKE_CUDA_BYTES="1000000"
    )
    assert ended.status == 1 and "out of memory" in ended.err and "-e" in ended.err


def test_gpu_of_a_rank(ranks: Ranks) -> None:
    out = good(ranks(3, "all_reduce", *SMALL, FAKE_CUDA_DEVICES="2"))
    assert [line.split("device")[1].split()[0] for line in out.splitlines() if "Pid" in line] == ["0", "1", "0"]
    out = good(ranks(2, "all_reduce", *SMALL, FAKE_CUDA_DEVICES="2", NCCL_TESTS_DEVICE="1"))
    assert [line.split("device")[1].split()[0] for line in out.splitlines() if "Pid" in line] == ["1", "1"]


def test_arguments_refused_before_anything_runs(programs: Programs, tmp_path: Path) -> None:
    bad_root = subprocess.run(
        [programs.broadcast, "-r", "1"], env=clean_env(), capture_output=True, text=True, check=False
    )
    assert bad_root.returncode == 2 and "-r 1: the job has ranks 0 to 0" in bad_root.stderr
    nowhere = run_one(programs, "--json", str(tmp_path / "none" / "out.json"))
    assert nowhere.status == 2 and "--json" in nowhere.err and "No such file" in nowhere.err
    assert run_one(programs, "--payload", str(tmp_path / "none.bf16")).status == 1
    (tmp_path / "x.f32").write_bytes(bytes(16))
    wrong_type = run_one(programs, "--payload", str(tmp_path / "x.f32"), "-d", "all")
    assert wrong_type.status == 2 and "-d int8" in wrong_type.err
    helped = run_one(programs, "-h")
    assert helped.status == 0 and "--payload" in helped.out


def test_ranks_must_run_the_same(programs: Programs, tmp_path: Path) -> None:
    def pair(first: list[str], second: list[str], cwds: tuple[Path, Path] = (tmp_path, tmp_path)) -> list[Ended]:
        port = str(free_port())
        envs = [
            clean_env(RANK=str(r), WORLD_SIZE="2", MASTER_PORT=port, LD_LIBRARY_PATH=str(programs.plain))
            for r in range(2)
        ]
        commands = [
            ["env", "-C", str(c), str(programs.all_reduce), *a] for c, a in zip(cwds, (first, second), strict=True)
        ]
        return launch(commands, envs)

    for rank in pair(["-n", "1"], ["-n", "2"]):
        assert rank.status == 2 and "another command line" in rank.err
    for i, folder in enumerate(("a", "b")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.f32").write_bytes(bytes([i] * 16))
    args = [*SMALL, "--payload", "x.f32"]
    for rank in pair(args, args, (tmp_path / "a", tmp_path / "b")):
        assert rank.status == 2 and "another payload file x.f32" in rank.err


def test_unwritable_dump_leaves_nothing(ranks: Ranks, tmp_path: Path) -> None:
    ended = ranks(1, "all_reduce", *SMALL, "--dump", tmp_path / "none" / "out")
    assert ended[0].status == 1 and "cannot write" in ended[0].err
    assert not os.listdir(tmp_path)
