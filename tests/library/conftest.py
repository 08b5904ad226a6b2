# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""The built library, and programs that load it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Compile = Callable[..., Path]

# What an application has besides ours: a library of NCCL's name. Its version tells whose ncclGetVersion was called.
STOCK_VERSION = 11111
STOCK = f"int ncclGetVersion(int* version) {{ *version = {STOCK_VERSION}; return 0; }}"

# An application linked to NCCL.
LINKED = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
int ncclGetVersion(int*);
int main(void) {
  int version = 0;
  if (ncclGetVersion(&version) != 0) return 2;
  printf("%d %s\\n", version, dlsym(RTLD_DEFAULT, "ncclUzipGetVersion") ? "uzip" : "stock");
  return 0;
}
"""

# An application that opens argv[1] and looks symbols up in that handle, as ctypes wrappers of NCCL do.
OPENED = """
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char** argv) {
  void* handle = argc == 2 ? dlopen(argv[1], RTLD_NOW) : 0;
  if (!handle) return fprintf(stderr, "%s\\n", argc == 2 ? dlerror() : "usage: opened LIBRARY"), 2;
  int (*getVersion)(int*) = (int (*)(int*))dlsym(handle, "ncclGetVersion");
  int version = 0;
  if (!getVersion || getVersion(&version) != 0) return 3;
  printf("%d %s\\n", version, dlsym(handle, "ncclUzipGetVersion") ? "uzip" : "stock");
  return 0;
}
"""


@pytest.fixture(scope="session")
def library(build: Path) -> Path:
    path = build / "lib" / "libnccl-uzip.so"
    assert path.is_file(), f"{path} is missing; `make lib` builds it"
    return path


@pytest.fixture(scope="session")
def apps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `linked`, `opened`, and stock/libnccl.so.2 and other/libnccl-other.so (another SONAME)."""
    folder = tmp_path_factory.mktemp("apps")

    def compile_c(source: str, output: Path, *flags: str) -> None:
        output.parent.mkdir(exist_ok=True)
        command = ["gcc", "-x", "c", "-", "-o", str(output), *flags]
        subprocess.run(command, input=source, text=True, check=True)

    stock = folder / "stock" / "libnccl.so.2"
    compile_c(STOCK, stock, "-shared", "-fPIC", "-Wl,-soname,libnccl.so.2")
    compile_c(STOCK, folder / "other" / "libnccl-other.so", "-shared", "-fPIC", "-Wl,-soname,libnccl-other.so")
    compile_c(OPENED, folder / "opened", "-ldl")
    # Linked the way a framework is: by name, found at run time through the search path.
    compile_c(LINKED, folder / "linked", f"-L{stock.parent}", "-l:libnccl.so.2", "-ldl")
    return folder


def answer(*command: str | Path, preload: Path | None = None, search: Path | None = None) -> str:
    """Output of an application under LD_PRELOAD and LD_LIBRARY_PATH."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("LD_", "NCCL_"))}
    if preload:
        env["LD_PRELOAD"] = str(preload)
    if search:
        env["LD_LIBRARY_PATH"] = str(search)
    done = subprocess.run([str(word) for word in command], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
