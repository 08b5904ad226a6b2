# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Command line of the lab: run, check, clean."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path

from .check import findings
from .errors import Interrupted, LabError
from .lab import DEFAULT_TIMEOUT, Lab
from .owner import clean
from .procs import print_tails
from .signals import catch_signals


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m perf.lab", description="Nodes on one GPU, over shaped links.")
    sub = parser.add_subparsers(dest="action", required=True)

    run = sub.add_parser("run", help="run a command once per node", usage="%(prog)s --nodes N [options] -- CMD ...")
    run.add_argument("--nodes", type=int, required=True, metavar="N", help="nodes, one rank each")
    run.add_argument(
        "--rate", default="10gbit", help="link rate: 10gbit, 25gbit, 200mbit, ... or none (default 10gbit)"
    )
    run.add_argument(
        "--no-shape", action="store_true", help="the same as --rate none: unshaped loopback, no namespaces"
    )
    run.add_argument("--strict", action="store_true", help="fail where shaped links cannot be had")
    run.add_argument("--no-mps", action="store_true", help="do not start CUDA MPS")
    run.add_argument(
        "--timeout", type=float, default=DEFAULT_TIMEOUT, metavar="S", help="seconds for the run (default 600)"
    )
    run.add_argument(
        "--env", action="append", default=[], metavar="K=V", help="a variable for every rank; may be repeated"
    )
    run.add_argument(
        "--grace",
        type=float,
        default=10,
        metavar="S",
        help="seconds for the others once a rank has failed (default 10)",
    )
    run.add_argument("--name-logs", type=Path, metavar="DIR", help="also write each rank's output to DIR/rank<r>.log")
    run.add_argument("--json", type=Path, metavar="FILE", help="write how the run went")

    check = sub.add_parser("check", help="say what is present and what is lacking")
    check.add_argument("--json", action="store_true", help="as JSON")

    sub.add_parser("clean", help="remove what killed labs left")
    at = argv.index("--") if "--" in argv else len(argv)
    args = parser.parse_args(argv[:at])
    args.command = argv[at + 1 :]
    if args.command and args.action != "run":
        parser.error(f"{args.action} takes no command")
    return args


def _variables(pairs: list[str]) -> dict[str, str]:
    variables = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise LabError(f"--env '{pair}': give NAME=VALUE")
        variables[name] = value
    return variables


def _run(args: argparse.Namespace) -> int:
    command = args.command
    if not command:
        raise LabError("no command: put it behind --")
    if args.timeout <= 0:
        raise LabError(f"--timeout {args.timeout:g}: must be positive")
    env = _variables(args.env)
    rate = "none" if args.no_shape else args.rate
    with Lab(args.nodes, rate, strict=args.strict, mps=not args.no_mps) as lab:
        result = lab.run(
            command, env=env, timeout=args.timeout, grace=args.grace, log_dir=args.name_logs, out=sys.stdout
        )
        report = {
            "command": command,
            "nodes": args.nodes,
            "rate_bits": lab.rate,
            "shaped": lab.shaped,
            "mps": lab.mps,
            "namespaces": lab.namespaces(),
            "seconds": round(result.seconds, 3),
            "timed_out": result.timed_out,
            "reason": result.reason,
            "rc": result.rc,
            "ranks": [{"rank": r.rank, "rc": r.rc, "hung": r.hung, "tail": r.tail} for r in result.ranks],
        }
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(report, indent=1) + "\n")
    if result.rc != 0:
        print_tails(result)
        print(f"lab: {result.reason}", file=sys.stderr)
    return result.rc


def _check(as_json: bool) -> int:
    found = findings()
    if as_json:
        print(json.dumps([f.as_dict() for f in found], indent=1))
    else:
        for f in found:
            print(
                f"{'has  ' if f.present else 'LACKS'} {f.name:13} {f.detail}"
                + ("" if f.present else f"; without it: {f.without}")
            )
    return 0


def _act(args: argparse.Namespace) -> int:
    if args.action == "run":
        return _run(args)
    if args.action == "check":
        return _check(args.json)
    for line in clean():
        print(f"lab: {line}", file=sys.stderr)
    return 0


def main(argv: list[str] | None = None) -> int:
    """Entry point. Returns the exit status."""
    args = _arguments(sys.argv[1:] if argv is None else argv)
    try:
        with catch_signals():
            return _act(args)
    except LabError as err:
        print(f"lab: error: {err}", file=sys.stderr)
        return 2
    except Interrupted as stop:
        print(f"lab: stopped by {signal.Signals(stop.signum).name}, everything ended and removed", file=sys.stderr)
        return 128 + stop.signum


if __name__ == "__main__":
    sys.exit(main())
