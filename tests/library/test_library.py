# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""What libnccl-uzip.so is, seen from outside: symbols, SONAME, version, licence, and every way to load it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import STOCK_VERSION, answer

PIN = {
    key: value
    for key, _, value in (
        line.partition("=")
        for line in (Path(__file__).parents[2] / "nccl-uzip" / "upstream.env").read_text().splitlines()
    )
}
OURS = f"{PIN['UPSTREAM_VERSION_CODE']} uzip"
STOCKS = f"{STOCK_VERSION} stock"


def exports(path: Path) -> set[str]:
    listed = subprocess.run(["nm", "-D", "--defined-only", str(path)], capture_output=True, text=True, check=True)
    return {line.split()[-1] for line in listed.stdout.splitlines()}


def dynamic(path: Path, tag: str) -> list[str]:
    listed = subprocess.run(["readelf", "-dW", str(path)], capture_output=True, text=True, check=True).stdout
    return re.findall(rf"\({tag}\).*\[(.*)\]", listed)


def upstream_exports() -> set[str]:
    lines = (Path(__file__).parent / f"exports-{PIN['UPSTREAM_SERIES']}.txt").read_text().splitlines()
    return {line for line in lines if not line.startswith("#")}


def test_exports_are_upstreams_and_ours(library: Path, root: Path) -> None:
    header = (root / "nccl-uzip" / "src" / "include" / "nccl_uzip.h").read_text()
    ours = set(re.findall(r"^ncclResult_t\s+(\w+)\(", header, re.MULTILINE))
    assert ours and all(name.startswith("ncclUzip") for name in ours)
    assert exports(library) == upstream_exports() | ours


def test_list_of_upstream_exports_is_that_of_the_stock_build(build: Path) -> None:
    stock = build / "stock" / "libnccl.so.2"
    if not stock.is_file():
        pytest.skip("no stock build (`make lib-stock`)")
    assert exports(stock) == upstream_exports()


def test_soname_is_that_of_nccl(library: Path) -> None:
    assert dynamic(library, "SONAME") == ["libnccl.so.2"]


def test_needs_neither_driver_nor_runtime_library(library: Path) -> None:
    needed = dynamic(library, "NEEDED")
    assert needed and not [name for name in needed if "cuda" in name or "nvidia" in name]


def test_loads_with_every_symbol_bound_on_a_machine_without_a_gpu(library: Path) -> None:
    program = (
        "import ctypes, os, sys\n"
        "lib = ctypes.CDLL(sys.argv[1], mode=os.RTLD_NOW | os.RTLD_GLOBAL)\n"
        "v = ctypes.c_int()\n"
        "assert lib.ncclGetVersion(ctypes.byref(v)) == 0\n"
        "print(v.value, 'libcuda.so' in open('/proc/self/maps').read())"
    )
    assert answer(sys.executable, "-c", program, library) == f"{PIN['UPSTREAM_VERSION_CODE']} False"


def test_version_banner_says_uzip(library: Path) -> None:
    release = PIN["UPSTREAM_VERSION"].partition("-")[0].encode()
    assert re.search(rb"NCCL version " + re.escape(release) + rb"\+uzip\+cuda\d+\.\d+\0", library.read_bytes())


def test_ways_to_load_can_tell_the_libraries_apart(apps: Path) -> None:
    assert answer(apps / "linked", search=apps / "stock") == STOCKS
    assert answer(apps / "opened", "libnccl.so.2", search=apps / "stock") == STOCKS


def test_preload_wins_over_a_linked_library(library: Path, apps: Path) -> None:
    assert answer(apps / "linked", preload=library, search=apps / "stock") == OURS


def test_preload_answers_dlopen_by_name(library: Path, apps: Path) -> None:
    """It does so because of its SONAME: a preloaded library of another one is passed over."""
    assert answer(apps / "opened", "libnccl.so.2", preload=library, search=apps / "stock") == OURS
    other = apps / "other" / "libnccl-other.so"
    assert answer(apps / "opened", "libnccl.so.2", preload=other, search=library.parent) == OURS


def test_search_path_finds_it_under_nccls_name(library: Path, apps: Path) -> None:
    assert answer(apps / "linked", search=library.parent) == OURS
    assert answer(apps / "opened", "libnccl.so.2", search=library.parent) == OURS


def test_dlopen_by_path(library: Path, apps: Path) -> None:
    assert answer(apps / "opened", library) == OURS


def test_program_compiles_against_the_headers_and_links(library: Path, build: Path, tmp_path: Path) -> None:
    source = tmp_path / "program.c"
    source.write_text(
        '#include "nccl_uzip.h"\n'
        "#include <stdio.h>\n"
        "int main(void) {\n"
        "  int version = 0, format = 0;\n"
        "  if (ncclUzipGetVersion(&version, &format) != ncclSuccess) return 1;\n"
        '  printf("%d %d\\n", version == NCCL_UZIP_VERSION_CODE, format);\n'
        "  return 0;\n"
        "}\n"
    )
    home = subprocess.run(
        [build.parent / "nccl-uzip" / "tools" / "cuda", "home"], capture_output=True, text=True, check=True
    ).stdout.strip()
    program = tmp_path / "program"
    flags = ["-std=c99", "-Wall", "-Werror", "-pedantic", f"-I{build / 'include'}", "-isystem", f"{home}/include"]
    subprocess.run(
        ["gcc", *flags, str(source), "-o", str(program), f"-L{library.parent}", "-lnccl"], check=True, timeout=60
    )
    assert answer(program, search=library.parent) == "1 1"


def test_nccls_licence_lies_beside_it(library: Path) -> None:
    assert "NVIDIA" in (library.parent / "NCCL-LICENSE.txt").read_text()
    assert (library.parent / "NCCL-ThirdPartyNotices.txt").stat().st_size > 0
    assert "Apache License" in (library.parent / "LICENSE").read_text()
