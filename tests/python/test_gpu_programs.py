# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""The programs of tests/gpu without a GPU: they find what is wrong, and say how to repeat it."""

from __future__ import annotations

import copy
import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "gpu"))

import identity_plan as plan
import ranks as launcher
import torch_train
from nccl_ctypes import ELEMENT_BYTES

GPU = Path(plan.__file__).parent
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch (a CPU build will do)")
BOTH = plan.FUNCTIONS[:2]


# --- the plan


@pytest.mark.parametrize("mode", ["quick", "full"])
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_plan_covers_the_matrix(mode: str, ranks: int) -> None:
    parts = [plan.items(mode, ranks, k, 1, BOTH) for k in range(len(plan.configs(mode, ranks)))]
    singles = [i.cases[0] for part in parts for i in part if i.kind == "single" and i.cases[0].covered]
    reduces = [c for c in singles if c.func == "all_reduce"]
    assert {(c.dtype, c.op) for c in reduces} == {(t, o) for t in plan.FLOATS for o in plan.REDUCE_OPS}
    assert {(c.dtype, c.root) for c in singles if c.func == "broadcast"} == {
        (t, r) for t in plan.FLOATS for r in range(ranks)
    }
    for func in BOTH:
        cases = [c for c in singles if c.func == func]
        assert {c.place for c in cases} == set(range(len(plan.PLACES)))
        assert {c.data for c in cases} == set(plan.DATA)
        for dtype in plan.FLOATS:
            sizes = [c.count * c.element_bytes for c in cases if c.dtype == dtype]
            assert min(sizes) == ELEMENT_BYTES[dtype]
            assert max(sizes) in (64 << 20, (64 << 20) - ELEMENT_BYTES[dtype])
    if mode == "full":
        small = {(c.dtype, c.op, c.count, c.place) for c in reduces if c.count in plan.SMALL}
        assert len(small) == 3 * 6 * len(plan.SMALL) * 6
    kinds = {i.category for part in parts for i in part}
    assert kinds == {"all_reduce", "broadcast", "not-covered", "burst", "group", "streams", "graph"}
    assert {c.channels for c in plan.configs(mode, ranks)} >= {1, 2, 4}
    # All blocks of the ranks' kernels must be resident at once, also of two communicators.
    assert all(2 * ranks * c.channels <= 132 for c in plan.configs(mode, ranks))


def test_plan_is_the_same_in_every_process_and_items_replay() -> None:
    items = plan.items("quick", 3, 1, 5, BOTH)
    assert items == plan.items("quick", 3, 1, 5, BOTH)
    assert items != plan.items("quick", 3, 1, 6, BOTH)
    assert [plan.Item.parse(str(i)) for i in items] == items
    assert plan.Config.parse(str(plan.Config(4, 65536, 256))) == plan.Config(4, 65536, 256)


@pytest.mark.parametrize("text", ["", "single", "some|all_reduce:bf16:sum:1:0:normal:0:7", "single|all_reduce:bf16"])
def test_bad_items_are_refused(text: str) -> None:
    with pytest.raises(SystemExit, match=r"error: .* looks like"):
        plan.Item.parse(text)


def test_ring_bytes() -> None:
    case = plan.Case("all_reduce", "bf16", "sum", 1000, 0, "normal", 0, 1)
    assert case.ring_raw_bytes(4) == 2 * 3 * 2000
    assert plan.Case("broadcast", "f32", "none", 1000, 0, "normal", 2, 1).ring_raw_bytes(3) == 2 * 4000
    assert plan.Case("all_reduce", "i32", "sum", 1000, 0, "normal", 0, 1).ring_raw_bytes(4) == 0


def test_broadcasts_of_several_roots_in_a_group_are_not_framed() -> None:
    reduce = plan.Case("all_reduce", "bf16", "sum", 10, 0, "normal", 0, 1)
    one, two = (plan.Case("broadcast", "bf16", "none", 10, 0, "normal", root, 1) for root in (0, 1))
    assert plan.Item("group", (reduce, one, two)).ring_raw_bytes(2) == 2 * 20
    assert plan.Item("group", (reduce, one, one)).ring_raw_bytes(2) == 4 * 20
    assert plan.Item("burst", (reduce, one, two)).ring_raw_bytes(2) == 4 * 20
    for functions, several in ((BOTH, False), ((*BOTH, "all_gather_v"), True)):
        groups = [i for i in plan.items("quick", 3, 0, 1, functions) if i.kind == "group"]
        roots = [{c.root for c in i.cases if c.func == "broadcast"} for i in groups]
        assert any(len(r) > 1 for r in roots) == several


# --- the launcher


def run_script(script: str, ranks: int, tmp_path: Path, timeout_s: float = 20.0) -> launcher.RunResult:
    argv = [sys.executable, "-c", script]
    return launcher.run_ranks(argv, ranks, timeout_s=timeout_s, env={}, logs=tmp_path, follow=False)


def test_ranks_get_their_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_PROTO", "LL")
    script = "import os; e = os.environ; print(e['RANK'], e['WORLD_SIZE'], e['NCCL_HOSTID'], e.get('NCCL_PROTO'))"
    run = run_script(script, 3, tmp_path)
    assert run.ok
    assert [r.log.read_text().split() for r in run.ranks] == [[str(r), "3", f"uzip-rank-{r}", "None"] for r in range(3)]


def test_hang_is_ended_with_stacks_and_children_die(tmp_path: Path) -> None:
    script = (
        f"import sys; sys.path.insert(0, {str(GPU)!r})\n"
        "import ranks, subprocess, time; ranks.arm_worker()\n"
        "print(subprocess.Popen(['sleep', '1000']).pid, flush=True)\n"
        "def stuck_here(): time.sleep(1000)\n"
        "stuck_here()"
    )
    begin = time.monotonic()
    run = run_script(script, 2, tmp_path, timeout_s=2.0)
    assert time.monotonic() - begin < 15
    assert run.timed_out
    assert not run.ok
    assert "stuck_here" in run.describe()
    child = int(run.ranks[0].log.read_text().split()[0])
    deadline = time.monotonic() + 5
    while Path(f"/proc/{child}/stat").exists() and " Z " not in Path(f"/proc/{child}/stat").read_text():
        assert time.monotonic() < deadline, "a rank's child outlived the run"
        time.sleep(0.05)


def test_failing_rank_takes_the_others_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "GRACE_S", 0.5)
    script = "import os, sys, time; sys.exit('gone') if os.environ['RANK'] == '1' else time.sleep(1000)"
    run = run_script(script, 2, tmp_path)
    assert not run.ok
    assert not run.timed_out
    assert run.ranks[1].returncode == 1
    assert "[1] gone" in run.describe()


# --- the identity matrix, on a library whose faults are known

ITEMS = (
    "single|all_reduce:bf16:premulsum:1025:2:mixed:0:7",
    "single|broadcast:f32:none:1025:2:random:1:7",
    "burst|all_reduce:f16:sum:33:0:special:0:3|broadcast:bf16:none:4097:1:heavy:0:4",
    "group|all_reduce:f32:avg:7:3:sparse:0:3|all_reduce:f32:avg:1025:5:weights:0:9",
    "streams|broadcast:bf16:none:17:0:const:1:3|all_reduce:bf16:max:1:0:zeros:0:4",
    "single|all_reduce:i32:sum:1025:0:random:0:1",
)


def identity(library: Path, tmp_path: Path, *args: str, fault: str = "") -> tuple[int, str, dict[str, Any]]:
    result = tmp_path / "result.json"
    argv = [sys.executable, str(GPU / "identity.py"), "--lib", str(library), "--device", "cpu", "--json", str(result)]
    env = {**os.environ, "FAKE_NCCL_FAULT": fault}
    done = subprocess.run([*argv, *args], env=env, capture_output=True, text=True, timeout=170, check=False)
    document = json.loads(result.read_text()) if result.exists() else {}
    return done.returncode, done.stdout + done.stderr, document


def of_items(*items: str) -> list[str]:
    return ["--ranks", "2", "--config", "c2b65536t0", *(a for i in items for a in ("--item", i))]


@needs_torch
def test_identity_passes_where_all_is_equal(fake_library: Path, tmp_path: Path) -> None:
    status, text, document = identity(fake_library, tmp_path, *of_items(*ITEMS))
    assert status == 0, text
    part = document["parts"]["r2/c2b65536t0"]
    assert part["ok"]
    assert part["items"] == {"all_reduce": 1, "broadcast": 1, "burst": 1, "group": 1, "streams": 1, "not-covered": 1}
    raw = 1025 * 2 * 2 + 1025 * 4 + (33 * 2 * 2 + 4097 * 2) + (7 + 1025) * 4 * 2 + (17 * 2 + 2 * 2)
    assert part["raw_bytes"] == raw


@needs_torch
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("bit", "of 1025 elements differ, first 512"),
        ("guard", "guard bytes round the output were written"),
        ("input", "the input was written"),
        ("nothing", "the UZIP communicator framed nothing"),
        ("counters", "the ranks' sendSlices sum to"),
        ("simple", "the Simple communicator framed slices"),
        ("async", "asynchronous error of the UZIP communicator"),
        ("disabled", "runs without UZIP: NCCL_PROTO excludes UZIP"),
    ],
)
def test_identity_finds(fake_library: Path, tmp_path: Path, fault: str, words: str) -> None:
    status, text, document = identity(fake_library, tmp_path, *of_items(*ITEMS[:2]), fault=fault)
    assert status == 1
    assert words in text
    assert document["failures"] > 0


@needs_torch
def test_identity_failure_can_be_replayed(fake_library: Path, tmp_path: Path) -> None:
    _, _, document = identity(fake_library, tmp_path, *of_items(ITEMS[2]), fault="bit")
    failure = document["parts"]["r2/c2b65536t0"]["failures"][0]
    assert failure["item"] == ITEMS[2]
    assert f"--ranks 2 --config c2b65536t0 --item '{ITEMS[2]}'" in failure["replay"]


@needs_torch
def test_identity_resumes_only_its_own_plan(fake_library: Path, tmp_path: Path) -> None:
    args = of_items(ITEMS[0])
    assert identity(fake_library, tmp_path, *args)[0] == 0
    status, text, document = identity(fake_library, tmp_path, *args, "--resume", fault="bit")
    assert status == 0, text  # nothing ran again
    assert document["items"] == {"all_reduce": 1}
    status, text, _ = identity(fake_library, tmp_path, *args, "--resume", "--seed", "9")
    assert status == 2
    assert "is of another library, machine or plan" in text


@needs_torch
def test_identity_stops_at_its_limit(fake_library: Path, tmp_path: Path) -> None:
    args = ["--full", "--ranks", "2", "--config", "c2b65536t0", "--limit", "5"]
    status, text, document = identity(fake_library, tmp_path, *args)
    assert status == 1
    assert "not one part ended within --limit 5 s" in text
    assert document["failures"] == 0


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--lib", "/nowhere.so"], "no NCCL library at /nowhere.so"),
        (["--ranks", "1"], "--ranks: 2 to 8"),
        (["--functions", "all_reduce,some"], "unknown some"),
        (["--env", "A"], "--env A: not K=V"),
    ],
)
def test_identity_refuses(fake_library: Path, tmp_path: Path, args: list[str], words: str) -> None:
    status, text, _ = identity(fake_library, tmp_path, *args)
    assert status == 2
    assert words in text


# --- the training's verdict


def training(**changes: Any) -> dict[str, Any]:
    rank = {"collectives": {"a": "1", "b": "2"}, "losses": [(2.0).hex(), (1.0).hex()], "parameters": "p"}
    run = {"ranks": [copy.deepcopy(rank) for _ in range(3)], "banner": "NCCL version 2.29.7+uzip"}
    return {**run, "raw_bytes": 0, "wire_bytes": 0, **changes}


def good() -> dict[str, dict[str, Any]]:
    return {"Simple": training(), "Simple, again": training(), "UZIP": training(raw_bytes=300, wire_bytes=200)}


def test_equal_trainings_pass() -> None:
    assert torch_train.judge(good(), counted=True) == []


def change(run: str, key: str, value: object) -> dict[str, dict[str, Any]]:
    runs = good()
    target = runs[run] if key in runs[run] else runs[run]["ranks"][2]
    target[key] = value
    return runs


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        (
            change("UZIP", "losses", [(2.0).hex(), (1.0000001).hex()]),
            "UZIP against Simple: rank 2: 1 of 2 losses differ",
        ),
        (change("UZIP", "collectives", {"a": "1", "b": "3"}), "1 of 2 collectives differ, first b"),
        (change("UZIP", "parameters", "q"), "the trained parameters differ"),
        (change("Simple, again", "parameters", "q"), "Simple against itself: rank 2"),
        (change("UZIP", "banner", "NCCL version 2.28.9"), "no banner of libnccl-uzip.so"),
        (change("UZIP", "wire_bytes", 300), "nothing saved"),
        (change("Simple", "raw_bytes", 5), "the log reports framed bytes"),
    ],
)
def test_unequal_trainings_fail(runs: dict[str, dict[str, Any]], words: str) -> None:
    assert any(words in w for w in torch_train.judge(runs, counted=True))


def test_log_line_is_the_one_the_library_writes() -> None:
    source = (GPU.parents[1] / "nccl-uzip/src/host/uzip_host.cc").read_text()
    begin = source.index("UZIP comm %p rank %d: sent")
    line = source[begin : source.index(";", begin)].replace("%p", "0x1234").replace("%d", "1")
    line = line.replace("%lu", "300", 1).replace("%lu", "200", 1)
    assert torch_train.BYTES_LINE.findall(line) == [("300", "200")]


@needs_torch
def test_program_trains_and_repeats_itself(fake_library: Path, tmp_path: Path) -> None:
    result = tmp_path / "torch.json"
    argv = [sys.executable, str(GPU / "torch_train.py"), "--lib", str(fake_library), "--backend", "gloo"]
    argv += ["--ranks", "2", "--steps", "3", "--width", "64", "--layers", "1", "--json", str(result)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(result.read_text())["ok"]
