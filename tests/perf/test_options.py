# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Command line: values, the ladder of sizes, and errors that name the flag, the value and the way out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perf_programs import Tool

# fmt: off
ALL_TYPES = [
    "int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double", "bfloat16", "f8e4m3", "f8e5m2",
]
# fmt: on


def options(tool: Tool, *args: str) -> dict[str, Any]:
    done = tool("options", *args)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_defaults(tool: Tool) -> None:
    o = options(tool)
    assert o["sizes"] == [32 << 20]
    assert (o["iters"], o["agg_iters"], o["warmup_iters"], o["check"], o["run_cycles"]) == (20, 1, 1, 1, 1)
    assert (o["ops"], o["types"], o["root"], o["average"], o["payload"]) == (["sum"], ["float"], 0, "max", "normal")
    assert (o["seed"], o["offset"], o["graph"], o["timeout"], o["hash"], o["blocking"]) == (1, 0, 0, 0, False, False)


@pytest.mark.parametrize(
    ("args", "sizes"),
    [
        (["-b", "8", "-e", "128", "-f", "2"], [8, 16, 32, 64, 128]),
        (["-b", "8", "-e", "100", "-f", "3"], [8, 24, 72]),
        (["-b", "1K", "-e", "4K", "-i", "1K"], [1024, 2048, 3072, 4096]),
        (["-b", "1.5K", "-e", "1.5K"], [1536]),
        (["-b1M", "-e1MB"], [1 << 20]),
        (["-b", "0", "-e", "2", "-i", "1"], [0, 1, 2]),
        (["--minbytes=1g", "--maxbytes=2G", "--stepfactor=2"], [1 << 30, 2 << 30]),
        (["-b", "1", "-e", "1T", "-f", "1000000000"], [1, 10**9]),
    ],
)
def test_sizes(tool: Tool, args: list[str], sizes: list[int]) -> None:
    assert options(tool, *args)["sizes"] == sizes


def test_every_flag_takes_effect(tool: Tool) -> None:
    ours = "-n 7 -m 3 -w 2 -N 4 -c 5 -o mulsum -d bf16 -r 2 -z 1 -T 9 -G 6 -C 1 -a 2"
    more = "-t 1 -g 1 -p 1 -R 0 --payload x.bf16 --seed 42 --offset 1 --hash --dump d --json j"
    o = options(tool, *ours.split(), *more.split())
    assert (o["iters"], o["agg_iters"], o["warmup_iters"], o["run_cycles"], o["check"]) == (7, 3, 2, 4, 5)
    assert (o["ops"], o["types"], o["root"], o["timeout"], o["graph"]) == (["mulsum"], ["bfloat16"], 2, 9, 6)
    assert (o["blocking"], o["report_cputime"], o["average"], o["hash"]) == (True, True, "min", True)
    assert (o["payload"], o["payload_is_file"], o["seed"], o["offset"]) == ("x.bf16", True, 42, 1)
    assert (o["dump"], o["json"]) == ("d", "j")
    assert options(tool, "-y", "1")["stream_null"]
    assert options(tool, "-r", "all")["root"] == -1


def test_all_types_and_operations(tool: Tool) -> None:
    o = options(tool, "-d", "all", "-o", "all")
    assert o["ops"] == ["sum", "prod", "max", "min", "avg", "mulsum"]
    assert o["types"] == ALL_TYPES


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ("-t 2", ["-t 2", "one process per rank"]),
        ("-g 8", ["-g 8", "one process per rank"]),
        ("-b 2M -e 1M", ["-b 2097152", "-e 1048576"]),
        ("-b 8x", ["-b", "8x", "64K"]),
        ("-b -8", ["-b", "-8"]),
        ("-b 0.3", ["-b", "0.3"]),
        ("-b 0x10", ["-b", "0x10"]),
        ("-b nan", ["-b", "nan"]),
        ("-e 9999999T", ["-e", "9999999T"]),
        ("-b 1 -e 2 -i 0", ["-i 0"]),
        ("-b 0 -f 2", ["-b 0"]),
        ("-b 0 -e 1G -i 1", ["million"]),
        ("-f 0", ["-f", "'0'"]),
        ("-n 0", ["-n", "'0'"]),
        ("-n 5x", ["-n", "5x"]),
        ("-n 99999999999", ["-n", "99999999999"]),
        ("-c -1", ["-c", "-1"]),
        ("-o plus", ["-o", "plus", "mulsum"]),
        ("-d bf17", ["-d", "bf17", "bfloat16"]),
        ("-r -2", ["-r", "-2"]),
        ("-z 2", ["-z", "2"]),
        ("-a 4", ["-a", "4"]),
        ("-R 1", ["-R 1", "-R 0"]),
        ("-G 1 -y 1", ["-G", "-y 1"]),
        ("--offset -1", ["--offset", "-1"]),
        ("--payload=", ["--payload", "empty"]),
        ("-n", ["-n", "needs a value"]),
        ("--what 1", ["--what", "-h"]),
        ("-q", ["-q", "-h"]),
        ("8M", ["8M", "not a flag"]),
    ],
)
def test_refused(tool: Tool, args: str, words: list[str]) -> None:
    done = tool("options", *args.split())
    assert done.returncode == 2
    text = done.stderr.decode()
    assert text.count("\n") == 1
    for word in words:
        assert word in text
