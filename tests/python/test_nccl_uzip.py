# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""The nccl_uzip package against a fake library. Which library a process uses is decided once: a process per test."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import nccl_uzip
import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(nccl_uzip.__file__).resolve().parent

# Makes `comm`, a communicator of one rank of the library that the process has loaded, and `lib`, that library.
MAKE_COMM = """
import ctypes, os
os.environ["NCCL_PROTO"] = "UZIP"
class Id(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]
lib = ctypes.CDLL(nccl_uzip.library_path())
uid, handle = Id(), ctypes.c_void_p()
assert lib.ncclGetUniqueId(ctypes.byref(uid)) == 0
assert lib.ncclCommInitRank(ctypes.byref(handle), 1, uid, 0) == 0
comm = handle.value
"""


def run(code: str, **env: str | Path) -> str:
    """Run ``code`` in a fresh interpreter outside the source tree; its output."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("NCCL_") and k != "LD_PRELOAD"}
    done = subprocess.run(
        [sys.executable, "-c", "import nccl_uzip\n" + textwrap.dedent(code)],
        env={**clean, **{k: str(v) for k, v in env.items()}},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- which library


def test_import_loads_nothing(fake_library: Path) -> None:
    out = run(
        "print(any('libnccl' in line for line in open('/proc/self/maps')), nccl_uzip.is_active())",
        NCCL_UZIP_LIB=fake_library,
    )
    assert out.split() == ["False", "False"]


def test_named_library_is_opened_on_first_use(fake_library: Path) -> None:
    out = run("print(nccl_uzip.library_path(), nccl_uzip.version())", NCCL_UZIP_LIB=fake_library)
    assert out.strip() == f"{fake_library} Version(uzip=100, format=1, nccl=22907)"


def test_preloaded_library_wins_over_the_named_one(fake_library: Path, tmp_path: Path) -> None:
    other = shutil.copy(fake_library, tmp_path / "other.so")
    out = run("print(nccl_uzip.is_active(), nccl_uzip.library_path())", LD_PRELOAD=fake_library, NCCL_UZIP_LIB=other)
    assert out.split() == ["True", str(fake_library)]


def test_library_loaded_by_the_program_is_found(fake_library: Path) -> None:
    code = f"""
        import ctypes
        ctypes.CDLL({str(fake_library)!r})
        print(nccl_uzip.is_active(), nccl_uzip.library_path())
    """
    assert run(code).split() == ["True", str(fake_library)]


def test_own_folder_is_searched(fake_library: Path, tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "nccl_uzip")
    shutil.copy(fake_library, tmp_path / "nccl_uzip" / "libnccl-uzip.so")
    out = run("print(nccl_uzip.library_path())", PYTHONPATH=tmp_path)
    assert out.strip() == str(tmp_path / "nccl_uzip" / "libnccl-uzip.so")


def test_build_folder_of_the_source_tree_is_searched(fake_library: Path, tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "python/src/nccl_uzip")
    (tmp_path / "nccl-uzip").mkdir()
    (tmp_path / "nccl-uzip/upstream.env").touch()
    (tmp_path / "build/lib").mkdir(parents=True)
    built = shutil.copy(fake_library, tmp_path / "build/lib/libnccl-uzip.so")
    assert run("print(nccl_uzip.library_path())", PYTHONPATH=tmp_path / "python/src").strip() == str(built)


REFUSED = """
    try:
        nccl_uzip.version()
    except nccl_uzip.LibraryNotFoundError as e:
        print(e)
"""


def test_no_library_names_what_was_tried(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "nccl_uzip", ignore=shutil.ignore_patterns("libnccl*"))
    out = run(f"import sys\nsys.prefix = '/nowhere/at/all'\n{textwrap.dedent(REFUSED)}", PYTHONPATH=tmp_path)
    assert f"{tmp_path}/nccl_uzip/libnccl-uzip.so: no such file" in out
    assert "LD_PRELOAD=" in out
    assert "NCCL_UZIP_LIB" in out


def test_named_library_that_cannot_be_loaded(tmp_path: Path) -> None:
    missing = tmp_path / "missing.so"
    out = run(REFUSED, NCCL_UZIP_LIB=missing)
    assert f"NCCL_UZIP_LIB={missing} cannot be loaded" in out


def test_named_library_that_is_a_stock_nccl(stock_library: Path) -> None:
    assert "no symbol ncclUzipGetVersion" in run(REFUSED, NCCL_UZIP_LIB=stock_library)


def test_another_nccl_in_the_process_is_refused(fake_library: Path, stock_library: Path) -> None:
    code = f"print(nccl_uzip.is_active())\n{textwrap.dedent(REFUSED)}"
    out = run(code, LD_PRELOAD=stock_library, NCCL_UZIP_LIB=fake_library)
    assert out.startswith("False\n")
    assert f"this process runs on another NCCL, {stock_library}" in out


def test_failed_search_can_be_repeated(fake_library: Path) -> None:
    code = f"""
        import os
        try:
            nccl_uzip.version()
        except nccl_uzip.LibraryNotFoundError:
            os.environ["NCCL_UZIP_LIB"] = {str(fake_library)!r}
        print(nccl_uzip.library_path())
    """
    assert run(code, NCCL_UZIP_LIB="/nowhere.so").strip() == str(fake_library)


# --- communicators


def test_stats_policy_and_reset(fake_library: Path) -> None:
    code = MAKE_COMM + textwrap.dedent("""
        class Counters(ctypes.Structure):  # the fake's Comm begins with rank, ranks, uzip, then ncclUzipStats_t
            _fields_ = [("ints", ctypes.c_int * 4), ("size", ctypes.c_size_t), ("values", ctypes.c_uint64 * 10)]
        counters = Counters.from_address(comm)
        counters.values[:] = [3000, 2000, 1500, 1001, 12, 3, 4, 11, 2, 4096]
        s = nccl_uzip.stats(comm)
        assert s == nccl_uzip.Stats(3000, 2000, 1500, 1001, 12, 3, 4, 11, 2, 4096), s
        assert (s.send_raw_bytes, s.send_wire_bytes, s.recv_raw_bytes, s.recv_wire_bytes) == (3000, 2000, 1500, 1001)
        assert (s.send_slices, s.send_slices_raw, s.forwarded_slices, s.recv_slices) == (12, 3, 4, 11)
        assert (s.ops, s.pad_bytes, s.ratio) == (2, 4096, 2000 / 3000)
        nccl_uzip.reset_stats(comm)
        assert nccl_uzip.stats(comm) == nccl_uzip.Stats(*[0] * 10)
        assert nccl_uzip.stats(comm).ratio is None
        print(nccl_uzip.policy(comm))
        """)
    assert run(code, NCCL_UZIP_LIB=fake_library).strip() == (
        "Policy(enabled=True, reason='', links=('net',), types=('bf16', 'f16', 'f32'), "
        "min_bytes=65536, exact=False, forced=True)"
    )


def test_policy_of_a_communicator_without_uzip(fake_library: Path) -> None:
    code = MAKE_COMM.replace('"UZIP"', '"Simple"') + "print(nccl_uzip.policy(comm))"
    assert "enabled=False, reason='NCCL_PROTO excludes UZIP', links=(), types=()" in run(
        code, NCCL_UZIP_LIB=fake_library
    )


def test_kinds_of_communicator(fake_library: Path) -> None:
    code = MAKE_COMM + textwrap.dedent("""
        import sys, types
        torch = types.ModuleType("torch")
        torch.device = lambda name: ("device", name)
        sys.modules["torch"] = torch
        class Nccl4py:
            ptr = comm
        class Backend:
            def _comm_ptr(self):
                return comm
        class ProcessGroup:
            def _get_backend(self, device):
                assert device == ("device", "cuda")
                return Backend()
        for form in (comm, handle, Nccl4py(), Backend(), ProcessGroup()):
            assert nccl_uzip.policy(form).enabled, form
        print("all")
        """)
    assert run(code, NCCL_UZIP_LIB=fake_library).strip() == "all"


@pytest.mark.parametrize("comm", ["text", 1.5, None, True, object()])
def test_what_is_no_communicator(comm: object) -> None:
    with pytest.raises(TypeError, match="comm is a"):
        nccl_uzip.stats(comm)


@pytest.mark.parametrize("comm", [0, -1])
def test_null_communicator(comm: int) -> None:
    for call in (nccl_uzip.stats, nccl_uzip.reset_stats, nccl_uzip.policy):
        with pytest.raises(ValueError, match="no communicator yet"):
            call(comm)


def test_errors_of_the_library_carry_code_and_text(fake_library: Path) -> None:
    # Below the public calls, which refuse a null communicator themselves.
    code = """
        from nccl_uzip import _core
        library = _core.open_library(nccl_uzip.library_path())
        for name in ("stats", "reset_stats", "policy"):
            try:
                getattr(library, name)(0)
            except nccl_uzip.NcclError as e:
                print(e.code, e.function, e.text, e.detail, sep="|")
    """
    assert run(code, NCCL_UZIP_LIB=fake_library).splitlines() == [
        "4|ncclUzipCommGetStats|invalid argument|fake: comm is NULL",
        "4|ncclUzipCommResetStats|invalid argument|fake: comm is NULL",
        "4|ncclUzipCommGetPolicy|invalid argument|fake: comm is NULL",
    ]


# --- values


def test_errors_pickle() -> None:
    e = pickle.loads(pickle.dumps(nccl_uzip.NcclError(6, "ncclUzipCommGetStats", "remote error", "rank 1 died")))
    assert (e.code, e.function, e.text, e.detail) == (6, "ncclUzipCommGetStats", "remote error", "rank 1 died")
    assert str(e) == "ncclUzipCommGetStats: remote error (ncclResult_t 6): rank 1 died"
    assert str(nccl_uzip.NcclError(6, "f", "t")) == "f: t (ncclResult_t 6)"


def test_values_are_frozen_and_pickle() -> None:
    stats = nccl_uzip.Stats(*range(10))
    assert pickle.loads(pickle.dumps(stats)) == stats
    with pytest.raises(AttributeError):
        stats.ops = 1  # type: ignore[misc]
    assert nccl_uzip.Version(100, 1, 22907).nccl_text == "2.29.7"
    assert nccl_uzip.Version(100, 1, 22907).uzip_text == "0.1.0"


def test_show_versions(fake_library: Path) -> None:
    out = run("nccl_uzip.show_versions()", LD_PRELOAD=fake_library)
    assert re.search(rf"^library +{re.escape(str(fake_library))} \(active\)$", out, re.M)
    assert re.search(r"^uzip +0\.1\.0, wire format 1$", out, re.M)
    assert re.search(r"^nccl +2\.29\.7$", out, re.M)
    assert re.search(r"^torch +not imported$", out, re.M)


def test_show_versions_without_a_library(stock_library: Path) -> None:
    out = run("nccl_uzip.show_versions()", LD_PRELOAD=stock_library)
    assert re.search(r"^library +none \(this process runs on another NCCL", out, re.M)


# --- agreement with the header


def _header_struct(name: str) -> list[tuple[str, str]]:
    """(type, field) of a struct of nccl_uzip.h, in order."""
    text = (ROOT / "nccl-uzip/src/include/nccl_uzip.h").read_text()
    found = re.search(r"typedef struct \{([^}]*)\} " + name + ";", text)
    assert found, name
    body = re.sub(r"//.*", "", found[1])
    return [
        (kind, field.strip()) for kind, names in re.findall(r"(\w+)\s+([^;]+);", body) for field in names.split(",")
    ]


def _core_struct(name: str) -> list[tuple[str, str]]:
    text = (ROOT / "python/src/nccl_uzip/_core.pyx").read_text()
    found = re.search(rf"cdef struct {name}:\n((?:    .*\n)+)", text)
    assert found, name
    return [(kind, field) for kind, field in map(str.split, found[1].splitlines())]


@pytest.mark.parametrize("name", ["Stats", "Policy"])
def test_structs_are_those_of_the_header(name: str) -> None:
    assert _core_struct(name) == _header_struct(f"ncclUzip{name}_t")


def test_bit_names_are_those_of_the_header() -> None:
    from nccl_uzip import _api

    text = (ROOT / "nccl-uzip/src/include/nccl_uzip.h").read_text()
    for prefix, names in (("LINKS", _api.LINK_NAMES), ("TYPES", _api.TYPE_NAMES)):
        header = {int(v, 16): n.lower() for n, v in re.findall(rf"NCCL_UZIP_{prefix}_(\w+) (0x[0-9a-f]+)u", text)}
        assert header == {1 << bit: n for bit, n in names.items()}


def test_version_constants_of_the_package() -> None:
    text = (ROOT / "nccl-uzip/src/include/nccl_uzip.h").read_text()
    code = ".".join(re.findall(r"#define NCCL_UZIP_(?:MAJOR|MINOR|PATCH) (\d+)", text))
    assert f'\nversion = "{code}"\n' in (ROOT / "python/pyproject.toml").read_text()
