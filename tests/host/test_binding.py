# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""What NCCL's hook lines call, over the structures of the patched NCCL; see binding.cc for the cases."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from host_shim import HERE, ROOT, SOURCES, compile_cxx

sys.path.insert(0, str(ROOT / "nccl-uzip" / "tools"))
from uziplib import cuda, upstream  # noqa: E402
from uziplib.common import BUILD  # noqa: E402

CASES = [
    "agreement",
    "async_error",
    "block_size",
    "broadcast_ignores_type",
    "choice",
    "cost_table",
    "differing_ranks",
    "differing_threads",
    "exact",
    "forced",
    "names",
    "pads",
    "same_on_all_ranks",
    "sharing_child",
    "stats",
    "stock_rank",
    "unsuitable",
    "wrong_knobs",
]


@pytest.fixture(scope="session")
def tree() -> Path:
    """A patched tree of the tests' own, so that a build in progress elsewhere is left alone."""
    path = BUILD / "host-tests" / "nccl"
    tool = ROOT / "nccl-uzip" / "tools" / "tree"
    done = subprocess.run(
        [sys.executable, str(tool), "--tree", str(path), "--force"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return path / "src"


@pytest.fixture(scope="session")
def headers(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Compiler flags for NCCL's headers, with an nccl.h made as upstream's makefile makes it."""
    folder = tmp_path_factory.mktemp("headers")
    version = upstream.Pin.load().version.partition("-")[0].split(".")
    values = dict(zip(("Major", "Minor", "Patch"), version, strict=True))
    values |= {"Suffix": "", "Version": f"{int(version[0])}{int(version[1]):02}{int(version[2]):02}"}
    header = (tree / "nccl.h.in").read_text()
    for name, value in values.items():
        header = header.replace(f"${{nccl:{name}}}", value)
    (folder / "nccl.h").write_text(header)

    toolkit = cuda.find_toolkit()
    major, minor = toolkit.version.split(".")[:2]
    includes = [folder, tree, tree / "include", tree / "include" / "plugin", tree / "uzip" / "include"]
    includes += [toolkit.home / "include", toolkit.home / "include" / "cccl"]
    flags = [f"-isystem{path}" for path in includes]
    return [*flags, f"-DCUDA_MAJOR={major}", f"-DCUDA_MINOR={minor}", "-DNCCL_OS_LINUX"]


@pytest.fixture(scope="session")
def binding(tree: Path, headers: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    # Templates in NCCL's headers name CUDA driver functions that no case reaches.
    flags = [*headers, "-no-pie", "-fno-pie", "-Wl,--unresolved-symbols=ignore-all", "-lpthread", "-ldl"]
    flags += ["-Wno-unused-parameter", "-Wno-sign-compare", "-Wno-missing-field-initializers"]
    sources = [HERE / "binding.cc", HERE / "stand_ins.cc", *sorted((tree / "uzip" / "host").glob("*.cc"))]
    return compile_cxx(tmp_path_factory.mktemp("binding") / "binding", sources, flags)


def run(binding: Path, *case: str) -> str:
    done = subprocess.run([str(binding), *case], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_case_is_listed(binding: Path) -> None:
    assert set(run(binding).split()) - {"rows"} == set(CASES)


@pytest.mark.parametrize("case", CASES)
def test_case(binding: Path, case: str) -> None:
    run(binding, case)


def test_public_header_is_c99(headers: list[str], tmp_path: Path) -> None:
    source = tmp_path / "user.c"
    source.write_text(
        '#include "nccl_uzip.h"\n'
        "int main(void) {\n"
        "  ncclUzipStats_t stats = {sizeof(ncclUzipStats_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};\n"
        "  ncclUzipPolicy_t policy = {sizeof(ncclUzipPolicy_t), 0, {0}, 0, 0, 0, 0, 0};\n"
        "  return ncclUzipCommGetStats(0, &stats) == ncclUzipCommGetPolicy(0, &policy);\n"
        "}\n"
    )
    flags = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", f"-I{SOURCES / 'include'}"]
    done = subprocess.run(["cc", *flags, *headers, str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def generate(tree: Path, folder: Path, functions: str) -> str:
    """The host table that upstream's generator makes for a function filter."""
    script = tree / "device" / "generate.py"
    done = subprocess.run(
        [sys.executable, str(script), str(folder), functions],
        cwd=script.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return (folder / "host_table.cc").read_text()


def test_rows_are_those_of_the_generator(binding: Path, tree: Path, tmp_path: Path) -> None:
    table = generate(tree, tmp_path / "gen", "")
    generated = {name: int(row) for row, name in re.findall(r"/\*\s*(\d+)\*/ \d+, // (.* UZIP)\n", table)}
    ours = {name: int(row) for name, row in (line.rsplit(" ", 1) for line in run(binding, "rows").splitlines())}
    assert len(generated) == 13
    assert generated == ours


def test_functions_left_out_have_no_row(tree: Path, tmp_path: Path) -> None:
    table = generate(tree, tmp_path / "gen", "AllReduce Sum bf16 * *")
    assert re.findall(r"-?\d+, // (.* UZIP)\n", table) == ["AllReduce Sum bf16 RING UZIP"]
    rows = table.partition("ncclDevFuncRowToId[] = {\n")[2].partition("-1};")[0].splitlines()[-13:]
    assert [re.sub(r"\s*//.*", "", row.partition("*/ ")[2]) for row in rows].count("-1,") == 12
    source = (tmp_path / "gen" / "all_reduce_sum_bf16.cu").read_text()
    wanted = (
        "DEFINE_ncclDevFunc(AllReduce_Sum_bf16_RING_UZIP, ncclFuncAllReduce, FuncSum, __nv_bfloat16, "
        "NCCL_ALGO_RING, NCCL_PROTO_UZIP)"
    )
    assert wanted in source
    assert not (tmp_path / "gen" / "broadcast.cu").exists()


def test_same_kernel_as_the_simple_twin(tree: Path, tmp_path: Path) -> None:
    table = generate(tree, tmp_path / "gen", "")
    rows = dict(re.findall(r"/\*\s*\d+\*/ (\d+), // (.*)\n", table)[::-1])
    ids = {name: int(number) for number, name in rows.items()}
    kernels = table.partition("ncclDevKernelForFunc[] = {")[2].partition("nullptr};\n\n")[0]
    kernel = {int(i): k for i, k in re.findall(r"/\*\s*(\d+)\*/ \(void\*\)(\w+),", kernels)}
    for name in [name for name in ids if name.endswith(" UZIP")]:
        assert kernel[ids[name]] == kernel[ids[name.replace("UZIP", "SIMPLE")]]


def test_generator_refuses_an_unknown_table() -> None:
    sys.path.insert(0, str(SOURCES / "device"))
    try:
        import generate_uzip
    finally:
        sys.path.pop(0)
    with pytest.raises(SystemExit, match="NCCL has 3 function rows"):
        generate_uzip.extend([None] * 3, [], lambda *row: True, (5, 12, 3))
