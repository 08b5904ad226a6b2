# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Command line of the A/B harness: ``ab`` for one comparison, ``main`` for all rows of the main job."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

from perf.lab import Lab, LabError
from perf.lab.errors import Interrupted
from perf.lab.signals import catch_signals

from .ab import Task, compare
from .campaign import Campaign, write_json
from .machine import git_commit, library_note, machine, torch_nccl
from .perfbin import BenchError, Library
from .report import ROW_HEADER, row_lines, table
from .rows import main_rows
from .stats import MIN_PAIRS

ROOT = Path(__file__).resolve().parents[2]
EXIT_FAILED = 1  # a bar was not reached
EXIT_ERROR = 2
EXIT_UNFINISHED = 3  # the budget ended before the last row


def _say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m perf.bench", description="Compare two NCCL libraries in the lab.")
    sub = parser.add_subparsers(dest="action", required=True)

    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--lib-a", type=Path, default=Path("build/stock/libnccl.so.2"), help="A (default: stock)")
    common.add_argument("--lib-b", type=Path, default=Path("build/lib/libnccl-uzip.so"), help="B (default: nccl-uzip)")
    common.add_argument("--lib-extra", type=Path, help="one more for a column; default: PyTorch's own, if installed")
    common.add_argument("--no-extra", action="store_true", help="leave that column out")
    common.add_argument("--perf-dir", type=Path, default=Path("build/perf"), help="where the perf binaries are")
    common.add_argument("--pairs", type=int, default=MIN_PAIRS, help=f"pairs per row, at least {MIN_PAIRS}")
    common.add_argument("--timeout", type=float, default=60, metavar="S", help="seconds for one sample (default 60)")
    common.add_argument(
        "--allow-unshaped", action="store_true", help="go on over loopback where links cannot be shaped"
    )

    ab = sub.add_parser("ab", parents=[common], help="one comparison")
    ab.add_argument("--nodes", type=int, default=2)
    ab.add_argument("--rate", default="10gbit")
    ab.add_argument("--collective", choices=["all_reduce", "broadcast"], required=True)
    ab.add_argument("--sizes", required=True, help="a size such as 128M, or MIN:MAX:FACTOR")
    ab.add_argument("--payload", default="normal", help="a file or a named distribution")
    ab.add_argument("--dtype", default="bfloat16")
    ab.add_argument("--iters", type=int, default=4)
    ab.add_argument("--warmup", type=int, default=1)
    ab.add_argument("--cycles", type=int, default=1)
    ab.add_argument("--bar", type=float, help="speed of B over A that must be reached; default: as fast as A")
    ab.add_argument("--env", action="append", default=[], metavar="K=V", help="for both libraries")
    ab.add_argument("--env-a", action="append", default=[], metavar="K=V")
    ab.add_argument("--env-b", action="append", default=[], metavar="K=V")
    ab.add_argument("--json", type=Path, metavar="FILE")

    rows = sub.add_parser("main", parents=[common], help="all rows of the main job; goes on where it stopped")
    rows.add_argument("--out", type=Path, required=True, metavar="DIR", help="a JSON per row, results.json, results.md")
    rows.add_argument("--payload", type=Path, default=Path("build/payload/minilm.bf16"), help="the real weights")
    rows.add_argument("--budget", type=float, default=480, metavar="S", help="start no row that would end later")
    rows.add_argument("--only", action="append", metavar="TEXT", help="only rows whose name holds TEXT")
    rows.add_argument("--redo", action="store_true", help="measure again what is there")
    return parser.parse_args(argv)


def _variables(pairs: list[str]) -> dict[str, str]:
    for pair in pairs:
        if "=" not in pair[1:]:
            raise BenchError(f"'{pair}': give NAME=VALUE")
    return dict(pair.split("=", 1) for pair in pairs)


def _libraries(args: argparse.Namespace) -> tuple[Library, Library, list[Library]]:
    a = Library("stock", args.lib_a, _variables(getattr(args, "env_a", [])))
    b = Library("uzip", args.lib_b, _variables(getattr(args, "env_b", [])))
    path = None if args.no_extra else args.lib_extra or torch_nccl()
    extra = [Library("torch", path)] if path else []
    for library in (a, b, *extra):
        library.check()
    return a, b, extra


def _compare_options(args: argparse.Namespace, extra: list[Library]) -> dict[str, Any]:
    return {"perf_dir": args.perf_dir, "pairs": args.pairs, "extra": extra, "timeout": args.timeout}


def _setting(args: argparse.Namespace, libraries: list[Library]) -> dict[str, Any]:
    return {
        "machine": machine(),
        "commit": git_commit(ROOT),
        "libraries": [library_note(library) for library in libraries],
        "command": shlex.join(["python", "-m", "perf.bench", *args.argv]),
    }


def _payload(text: str) -> str:
    """A payload as the binary gets it: files by their absolute path, since ranks may start elsewhere."""
    path = Path(text)
    return str(path.resolve()) if path.exists() else text


def _ab(args: argparse.Namespace) -> int:
    a, b, extra = _libraries(args)
    task = Task(
        args.collective,
        args.sizes,
        dtype=args.dtype,
        payload=_payload(args.payload),
        iters=args.iters,
        warmup=args.warmup,
        cycles=args.cycles,
        bar=args.bar,
        env=_variables(args.env),
    )
    with Lab(args.nodes, args.rate, strict=not args.allow_unshaped) as lab:
        result = compare(lab, a, b, task, say=_say, **_compare_options(args, extra)).as_dict()
        result |= {"rate": args.rate, "nodes": args.nodes, "shaped": lab.shaped, "mps": lab.mps}
    result |= _setting(args, [a, b, *extra])
    if args.json:
        write_json(args.json, result)
    print(table(ROW_HEADER, row_lines(f"{args.collective} {args.rate}", result)))
    return 0 if result["passed"] else EXIT_FAILED


def _all_rows(args: argparse.Namespace) -> int:
    a, b, extra = _libraries(args)
    if not args.payload.is_file():
        raise BenchError(f"no payload {args.payload}; make it (make payload) or give --payload FILE")
    rows = [r for r in main_rows(str(args.payload.resolve())) if not args.only or any(t in r.name for t in args.only)]
    if not rows:
        raise BenchError(f"--only {' '.join(args.only)}: no row has such a name")
    campaign = Campaign(
        args.out,
        a,
        b,
        _setting(args, [a, b, *extra]),
        budget=args.budget,
        strict=not args.allow_unshaped,
        say=_say,
        options=_compare_options(args, extra),
    )
    try:
        campaign.run(rows, redo=args.redo)
    finally:
        print(campaign.write(rows))
    if campaign.errors:
        raise BenchError("; ".join(f"{name}: {text}" for name, text in campaign.errors.items()))
    if campaign.unfinished:
        _say(f"{args.budget:g} s are over before: {', '.join(campaign.unfinished)}; the same command goes on there")
        return EXIT_UNFINISHED
    return 0 if all(result["passed"] for result in campaign.results.values()) else EXIT_FAILED


def main(argv: list[str] | None = None) -> int:
    """Entry point. 0: every bar reached; 1: not; 2: an error; 3: the budget ended first."""
    words = sys.argv[1:] if argv is None else argv
    args = _arguments(words)
    args.argv = words
    try:
        with catch_signals():
            return _ab(args) if args.action == "ab" else _all_rows(args)
    except (BenchError, LabError) as err:
        print(f"bench: error: {err}", file=sys.stderr)
        return EXIT_ERROR
    except Interrupted as stop:
        print(f"bench: stopped by {signal.Signals(stop.signum).name}", file=sys.stderr)
        return 128 + stop.signum


if __name__ == "__main__":
    sys.exit(main())
