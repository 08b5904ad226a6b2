# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Paths, messages, locking and process helpers of the tools."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[1]
ROOT = TOOLS.parents[1]
BUILD = Path(os.environ.get("UZIP_BUILD") or ROOT / "build").resolve()


class Failure(Exception):
    """An error whose text is the whole message for the user."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def run(
    argv: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str | bytes | None = None,
) -> bytes:
    """Run a program and return what it printed; Failure with its stderr when it exits non-zero or is missing."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    try:
        done = subprocess.run([str(a) for a in argv], cwd=cwd, env=env, input=data, capture_output=True, check=False)
    except FileNotFoundError:
        raise Failure(f"{argv[0]}: program not found; install it and try again") from None
    if done.returncode != 0:
        detail = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise Failure(f"{' '.join(str(a) for a in argv)}: exit {done.returncode}\n{detail}")
    return done.stdout


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[int]:
    """Hold the lock beside a folder, so that two users of it wait for each other.

    Yields its file descriptor: a child that is given it holds the lock too, also when this process is killed.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.parent / f".{folder.name}.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another user of {folder} ...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock.fileno()


def write_if_changed(path: Path, data: bytes, mode: int = 0o644) -> bool:
    """Put data in path by rename unless it is there already; True when it was written."""
    if path.is_file() and not path.is_symlink() and path.read_bytes() == data:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_bytes(data)
    part.chmod(mode)
    part.replace(path)
    return True


def main(entry: Callable[[list[str]], int]) -> None:
    """Run a tool's entry function; a Failure becomes one message and exit status 1."""
    try:
        sys.exit(entry(sys.argv[1:]))
    except Failure as failure:
        say(f"{Path(sys.argv[0]).name}: error: {failure}")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
