# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""A tiny stand-in for NCCL, pinned like the real one, and the tools run on it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "nccl-uzip" / "tools"
SPDX = "SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors\nSPDX-License-Identifier: Apache-2.0\n"

FILES = {
    "src/nccl.h.in": "version\n",
    "src/init.cc": "".join(f"int line{n};\n" for n in range(1, 21)),
    "src/proxy.cc": "".join(f"long line{n};\n" for n in range(1, 21)),
    "src/device/run.sh": "#!/bin/sh\nexit 0\n",
    ".gitignore": "/build\n*.log\n",
}


@dataclass
class Fork:
    """A checkout of the tools' data: pin, series, sources and tree, all in one folder."""

    folder: Path
    env: dict[str, str] = field(default_factory=dict)

    @property
    def pin(self) -> Path:
        return self.folder / "upstream.env"

    @property
    def archive(self) -> Path:
        return self.folder / "nccl.tar.gz"

    @property
    def pristine(self) -> Path:
        return self.folder / "pristine" / "nccl-1"

    @property
    def tree(self) -> Path:
        return self.folder / "build" / "nccl"

    @property
    def patches(self) -> Path:
        return self.folder / "patches"

    @property
    def sources(self) -> Path:
        return self.folder / "sources"

    def tool(self, name: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        command = [str(TOOLS / name), "--upstream-env", str(self.pin)]
        if name != "fetch":
            command += ["--tree", str(self.tree), "--patches", str(self.patches)]
        if name == "tree":
            command += ["--sources", str(self.sources)]
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("NCCL_", "XDG_"))}
        return subprocess.run(
            [*command, *arguments], env=clean | self.env | env, capture_output=True, text=True, timeout=60
        )

    def ok(self, name: str, *arguments: str, **env: str) -> str:
        done = self.tool(name, *arguments, **env)
        assert done.returncode == 0, done.stderr
        return done.stderr

    def refused(self, name: str, *arguments: str, **env: str) -> str:
        """Run a tool that must fail with one error message; returns it."""
        done = self.tool(name, *arguments, **env)
        assert done.returncode == 1, f"{name} did not fail: {done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
        assert done.stderr.count(f"{name}: error: ") == 1, done.stderr
        return done.stderr

    def git(self, *arguments: str) -> str:
        identity = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
        done = subprocess.run(["git", *identity, *arguments], cwd=self.tree, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def edit(self, name: str, line: int, text: str) -> None:
        """Insert a line behind line number `line` of a file of the tree."""
        path = self.tree / name
        lines = path.read_text().splitlines(keepends=True)
        lines.insert(line, text + "\n")
        path.write_text("".join(lines))

    def commit(self, message: str, *arguments: str) -> None:
        self.git("commit", "-q", "-a", "-m", message, *arguments)

    def patch(self, name: str) -> str:
        return (self.patches / name).read_text()


def message(subject: str) -> str:
    return f"{subject}\n\nWhy: it is a test.\n\nWhy not outside: it has to be there."


@pytest.fixture
def fork(tmp_path: Path) -> Fork:
    """Pinned source, an empty series, one source of ours; no tree yet."""
    made = Fork(tmp_path, {"XDG_CACHE_HOME": str(tmp_path / "cache"), "NCCL_TARBALL": str(tmp_path / "nccl.tar.gz")})
    for name, text in FILES.items():
        path = made.pristine / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (made.pristine / "src/device/run.sh").chmod(0o755)
    with tarfile.open(made.archive, "w:gz") as tar:
        tar.add(made.pristine, "nccl-1")

    def git(*arguments: str) -> str:
        command = ["git", f"--git-dir={tmp_path / 'scratch.git'}", f"--work-tree={made.pristine}", *arguments]
        return subprocess.run(command, cwd=made.pristine, capture_output=True, text=True, check=True).stdout.strip()

    git("init", "-q")
    git("add", "-A", "-f", ".")
    values = {
        "VERSION": "1-1",
        "SERIES": "1",
        "VERSION_CODE": "1",
        "ARCHIVE": "nccl.tar.gz",
        "SHA256": hashlib.sha256(made.archive.read_bytes()).hexdigest(),
        "TOPDIR": "nccl-1",
        "TREE": git("write-tree"),
        "APT_PACKAGE": "no-such-package",
        "APT_SUITE": "none",
        "APT_COMPONENT": "none",
        "URL": (tmp_path / "no-such-release.tar.gz").as_uri(),
    }
    made.pin.write_text("".join(f"UPSTREAM_{key}={value}\n" for key, value in values.items()))
    made.patches.mkdir()
    (made.patches / "series").write_text("".join(f"# {line}\n" for line in SPDX.splitlines()))
    header = made.sources / "host" / "uzip.h"
    header.parent.mkdir(parents=True)
    header.write_text("// ours\n")
    return made


@pytest.fixture
def patched(fork: Fork) -> Fork:
    """A fork with a series of two exported patches and its tree."""
    fork.ok("tree")
    fork.edit("src/init.cc", 5, "int hook; // [UZIP]")
    fork.commit(message("init: hook") + "\n\nPatch-file: 0001-init.patch")
    fork.edit("src/proxy.cc", 3, "int pad; // [UZIP]")
    fork.edit("src/init.cc", 12, "int second; // [UZIP]")
    fork.commit(message("proxy: pads"))
    fork.ok("export-patches")
    fork.ok("check-patches")
    return fork
