# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Builds and runs the fuzz targets over the emulated codec, under AddressSanitizer and UndefinedBehaviorSanitizer.

python tests/codec/fuzz.py decode --runs 1000000 --seed 7      our driver: replays the corpus, then mutates it
CXX=clang++ python tests/codec/fuzz.py decode --libfuzzer -max_total_time=600

What broke once is kept as a file in once-broke/<target>/ and replayed ever after.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from pathlib import Path

import golden
from oracle import TYPES
from patterns import PATTERNS, make

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TARGETS = ("decode", "roundtrip")
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
FLAGS = ["-std=c++17", "-g", "-O1", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-unknown-pragmas"]
# The C library's sources, as nccl-uzip/emu builds them.
EMU = ROOT / "nccl-uzip" / "emu"
SOURCES = [EMU / "uzip_codec_c.cc", EMU / "cuda_emu.cc"]
INCLUDES = [f"-I{EMU}", f"-I{ROOT / 'nccl-uzip' / 'src' / 'codec'}"]
ENVIRONMENT = {
    "ASAN_OPTIONS": "abort_on_error=1:detect_leaks=1:allocator_may_return_null=0",
    "UBSAN_OPTIONS": "print_stacktrace=1:abort_on_error=1",
}


def build(target: str, folder: Path, libfuzzer: bool = False, faulty: bool = False) -> Path:
    """Compiles fuzz_<target>.cc with the codec, or with a small one that has known faults; returns the program.

    Raises CalledProcessError when it does not compile; the compiler's words are on stderr.
    """
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / f"fuzz_{target}{'_libfuzzer' if libfuzzer else ''}"
    compiler = shlex.split(os.environ.get("CXX", "clang++" if libfuzzer else "c++"))
    flags = FLAGS + SANITIZERS
    if libfuzzer:
        flags = [*FLAGS, "-fsanitize=fuzzer,address,undefined", *SANITIZERS[1:], "-DUZIP_LIBFUZZER"]
    sources = SOURCES
    if faulty:
        program = folder / f"fuzz_{target}_faulty"
        sources = [HERE / "fuzz_broken_codec.cc"]
    objects = []
    for source in sources:  # both targets share them
        objects.append(folder / f"{source.stem}{'_libfuzzer' if libfuzzer else ''}.o")
        if not objects[-1].exists():
            subprocess.run([*compiler, *flags, *INCLUDES, "-c", "-o", objects[-1], source], check=True)
    subprocess.run([*compiler, *flags, "-o", program, HERE / f"fuzz_{target}.cc", *objects], check=True)
    return program


def make_corpus(target: str, folder: Path) -> list[Path]:
    """Files and folders to start from: the golden slots, or slices of every pattern; and what broke once."""
    inputs = [p for p in [HERE / "once-broke" / target] if p.is_dir()]
    if target == "decode":
        return [golden.FOLDER / "must-decode", golden.FOLDER / "must-refuse", *inputs]
    folder.mkdir(parents=True, exist_ok=True)
    for number, ftype in enumerate(TYPES.values()):
        for pattern in [*PATTERNS, "mixture"]:
            raw = make(pattern, 3, ftype, 1500) + b"\x01" * (ftype.element_bytes - 1)
            (folder / f"{ftype.name}-{pattern.replace(' ', '-')}").write_bytes(bytes([number]) + raw)
        # Many tiles that do not compress: what a slot has to have room for.
        for pattern in ("random bits", "mixture"):
            raw = make(pattern, 4, ftype, 24 * 1024)
            (folder / f"{ftype.name}-{pattern.replace(' ', '-')}-24-tiles").write_bytes(bytes([number]) + raw)
    return [folder, *inputs]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--libfuzzer", action="store_true", help="build with clang's libFuzzer")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "fuzz", help="where programs and corpora go")
    args, rest = parser.parse_known_args()
    for old in args.folder.glob("*.o"):
        old.unlink()
    program = build(args.target, args.folder, args.libfuzzer)
    corpus = make_corpus(args.target, args.folder / f"corpus-{args.target}")
    return subprocess.run([program, *rest, *corpus], env={**ENVIRONMENT, **os.environ}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
