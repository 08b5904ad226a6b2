# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Command line of the demo: ``mode`` prints gpu or cpu, whichever this machine is for; ``gpu`` and ``cpu`` run it."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from perf.bench.campaign import write_json
from perf.lab.errors import Interrupted
from perf.lab.gpu import first_gpu
from perf.lab.signals import catch_signals

from .cpu import run_cpu
from .gpu import run_gpu
from .table import DemoError, render


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m demo", description="Real weights, reduced and broadcast in fewer bytes."
    )
    sub = parser.add_subparsers(dest="mode", required=True)
    sub.add_parser("mode", help="print gpu or cpu")

    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--payload", type=Path, default=Path("build/payload/minilm.bf16"), help="raw bf16 values")
    common.add_argument("--json", type=Path, default=Path("build/demo.json"), metavar="FILE")

    cpu = sub.add_parser("cpu", parents=[common], help="without a GPU")
    cpu.add_argument("--program", type=Path, default=Path("build/cpu/uzip_ranks"))
    cpu.add_argument("--ranks", type=int, default=3)
    cpu.add_argument("--budget", type=float, default=200, metavar="S", help="seconds that both collectives may take")

    gpu = sub.add_parser("gpu", parents=[common], help="with a GPU")
    gpu.add_argument("--stock", type=Path, default=Path("build/stock/libnccl.so.2"))
    gpu.add_argument("--uzip", type=Path, default=Path("build/lib/libnccl-uzip.so"))
    gpu.add_argument("--perf-dir", type=Path, default=Path("build/perf"))
    gpu.add_argument("--rate", default="10gbit")
    gpu.add_argument("--pairs", type=int, default=5)
    return parser.parse_args(argv)


def _run(args: argparse.Namespace) -> int:
    size = args.payload.stat().st_size if args.payload.is_file() else 0
    if size == 0 or size % 2:
        raise DemoError(f"{args.payload}: {size} bytes of bf16 values; make it (make payload) or give PAYLOAD=FILE")
    if args.mode == "gpu":
        results = run_gpu(args.stock, args.uzip, args.perf_dir, args.payload, args.rate, args.pairs)
    else:
        if args.ranks < 2:
            raise DemoError(f"--ranks {args.ranks}: at least 2")
        results = run_cpu(args.program, args.payload, args.ranks, args.budget)
    write_json(args.json, results)
    print(render(results))
    if args.mode == "cpu":
        print("\nNo GPU: the library's device code ran on the CPU, ranks as processes, slots over loopback sockets.")
    elif not results[0]["shaped"]:
        print("\nThe link was UNSHAPED LOOPBACK: times and speed-up say nothing of a real link.")
    print(f"Written to {args.json}.")
    if not all(r["identical"] for r in results):
        raise DemoError("the results are not bit-identical")
    return 0


def main(argv: list[str] | None = None) -> int:
    """Entry point. 0: done, equal bits; 2: an error."""
    args = _arguments(sys.argv[1:] if argv is None else argv)
    if args.mode == "mode":
        print("gpu" if first_gpu() else "cpu")
        return 0
    try:
        with catch_signals():
            return _run(args)
    except DemoError as err:
        print(f"demo: error: {err}", file=sys.stderr)
        return 2
    except Interrupted as stop:
        print(f"demo: stopped by {signal.Signals(stop.signum).name}", file=sys.stderr)
        return 128 + stop.signum


if __name__ == "__main__":
    sys.exit(main())
