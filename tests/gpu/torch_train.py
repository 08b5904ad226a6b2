# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Unmodified PyTorch under LD_PRELOAD: collectives and a DDP training, UZIP against Simple, equal to the last bit.

torch_program.py runs three times as N ranks on the one GPU with NCCL_ALGO=Ring: twice with NCCL_PROTO=Simple (which
shows that the program repeats itself at all) and once with NCCL_PROTO=UZIP. Digests of all outputs, losses and trained
parameters must agree, NCCL's log must show that the preloaded library ran, and how many bytes it kept off the wire.

    python3 tests/gpu/torch_train.py                 # 3 ranks, 200 steps

Exit status: 0 all equal; 1 a difference, an error or a hang; 2 bad arguments.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import ranks as launcher

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).resolve().parent / "torch_program.py"
# What the library logs of a communicator at its end (NCCL_DEBUG=INFO).
BYTES_LINE = re.compile(r"UZIP comm \S+ rank \d+: sent (\d+) bytes raw, (\d+) on the wire")
RUNS = (("Simple", "Simple"), ("Simple, again", "Simple"), ("UZIP", "UZIP"))


def run_once(args: argparse.Namespace, proto: str, folder: Path, mps: dict[str, str]) -> dict[str, Any]:
    """One run of the program. Returns the ranks' results, and the bytes and banner of NCCL's log."""
    folder.mkdir()
    argv = [sys.executable, str(PROGRAM), "--out", str(folder), "--steps", str(args.steps), "--backend", args.backend]
    argv += ["--width", str(args.width), "--layers", str(args.layers)]
    env = {
        "LD_PRELOAD": str(args.lib.resolve()),
        "NCCL_ALGO": "Ring",
        "NCCL_PROTO": proto,
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,ENV,TUNING",
        "NCCL_DEBUG_FILE": str(folder / "nccl.%p.log"),
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        **mps,
        **dict(pair.split("=", 1) for pair in args.env),
    }
    run = launcher.run_ranks(argv, args.ranks, timeout_s=args.timeout, env=env, logs=folder / "logs")
    if not run.ok:
        raise RuntimeError(f"NCCL_PROTO={proto}: {run.describe()}")
    log = "\n".join(f.read_text(errors="replace") for f in sorted(folder.glob("nccl.*.log")))
    found = [(int(raw), int(wire)) for raw, wire in BYTES_LINE.findall(log)]
    return {
        "ranks": [json.loads((folder / f"rank{r}.json").read_text()) for r in range(args.ranks)],
        "raw_bytes": sum(raw for raw, _ in found),
        "wire_bytes": sum(wire for _, wire in found),
        "banner": next((line.strip() for line in log.splitlines() if "NCCL version" in line), ""),
        "seconds": run.seconds,
    }


def differences(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """What two runs do not have in common, in words."""
    wrong = []
    for rank, (x, y) in enumerate(zip(a["ranks"], b["ranks"], strict=True)):
        if x["collectives"].keys() != y["collectives"].keys() or not x["collectives"]:
            wrong.append(f"rank {rank}: not the same collectives ran")
        names = [n for n, d in x["collectives"].items() if y["collectives"].get(n) != d]
        if names:
            wrong.append(f"rank {rank}: {len(names)} of {len(x['collectives'])} collectives differ, first {names[0]}")
        steps = [k for k, (p, q) in enumerate(zip(x["losses"], y["losses"], strict=True)) if p != q]
        if steps:
            k = steps[0]
            pair = f"{x['losses'][k]} and {y['losses'][k]}"
            wrong.append(f"rank {rank}: {len(steps)} of {len(x['losses'])} losses differ, first in step {k}: {pair}")
        if x["parameters"] != y["parameters"]:
            wrong.append(f"rank {rank}: the trained parameters differ")
    return wrong


def judge(runs: dict[str, dict[str, Any]], *, counted: bool) -> list[str]:
    """All that is wrong with the three runs. ``counted``: the log must report bytes, as the real library's does."""
    simple, again, uzip = (runs[name] for name, _ in RUNS)
    wrong = [f"Simple against itself: {w}" for w in differences(simple, again)]
    wrong += [f"UZIP against Simple: {w}" for w in differences(simple, uzip)]
    losses = [float.fromhex(x) for x in simple["ranks"][0]["losses"]]
    if not losses or not losses[-1] < losses[0]:
        wrong.append("the training did not learn: its last loss is not below its first")
    if counted:
        for name, run in runs.items():
            if "uzip" not in run["banner"]:
                wrong.append(f"{name}: the log has no banner of libnccl-uzip.so (found {run['banner']!r})")
        if not uzip["raw_bytes"] or uzip["wire_bytes"] >= uzip["raw_bytes"]:
            wrong.append(
                f"UZIP: log reports {uzip['raw_bytes']} raw and {uzip['wire_bytes']} wire bytes: nothing saved"
            )
        if simple["raw_bytes"] or again["raw_bytes"]:
            wrong.append("Simple: the log reports framed bytes")
    return wrong


def main(argv: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    p.add_argument("--lib", type=Path, default=ROOT / "build/lib/libnccl-uzip.so", help="libnccl-uzip.so")
    p.add_argument("--ranks", type=int, default=3)
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--width", type=int, default=512)
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--timeout", type=float, default=150.0, metavar="S", help="for each of the three runs")
    p.add_argument("--json", type=Path, default=ROOT / "build/gpu-torch.json", help="result file")
    p.add_argument("--env", action="append", default=[], metavar="K=V", help="a variable for every rank")
    p.add_argument("--backend", choices=("nccl", "gloo"), default="nccl", help="gloo: tests of this program itself")
    args = p.parse_args(argv)
    if not args.lib.is_file():
        p.error(f"no NCCL library at {args.lib}; build it (make lib) or name it with --lib")
    if bad := [e for e in args.env if "=" not in e]:
        p.error(f"--env {bad[0]}: not K=V")

    runs: dict[str, dict[str, Any]] = {}
    wrong: list[str] = []
    with (
        launcher.terminate_as_interrupt(),
        launcher.mps_daemon() as mps,
        tempfile.TemporaryDirectory(prefix="uzip-torch-") as folder,
    ):
        for k, (name, proto) in enumerate(RUNS):
            print(f"{name} ...", flush=True)
            try:
                runs[name] = run_once(args, proto, Path(folder, str(k)), mps)
            except RuntimeError as e:
                wrong.append(str(e))
                break
    if not wrong:
        wrong = judge(runs, counted=args.backend == "nccl")
    result: dict[str, Any] = {"ok": not wrong, "wrong": wrong, "ranks": args.ranks, "steps": args.steps}
    for name, run in runs.items():
        first = run["ranks"][0]
        result[name] = {k: run[k] for k in ("raw_bytes", "wire_bytes", "banner", "seconds")}
        result[name] |= {"training_seconds": first["seconds"], "values": first["values"]}
        result[name] |= {"losses": [first["losses"][0], first["losses"][-1]], "collectives": len(first["collectives"])}
        begin, end = (float.fromhex(first["losses"][k]) for k in (0, -1))
        print(
            f"{name}: {len(first['collectives'])} collectives, {args.steps} steps in {first['seconds']:.1f} s, "
            f"loss {begin:.4f} -> {end:.6f}, raw {run['raw_bytes']}, wire {run['wire_bytes']} bytes"
        )
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps(result, indent=1) + "\n")
    for w in wrong:
        print(f"FAIL {w}")
    print("equal to the last bit" if not wrong else f"{len(wrong)} failures", f"({args.json})")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
