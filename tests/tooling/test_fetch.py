# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Where the pinned source comes from, and that nothing but the pinned source gets in."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from conftest import Fork

WAYS = ("NCCL_SRC=DIR", "NCCL_TARBALL=FILE", "apt-get source", "upstream's release")


def names_all_ways(error: str) -> bool:
    return all(way in error for way in WAYS)


def leftovers(fork: Fork) -> list[str]:
    """What a failed attempt must not leave: a tree, its scratch folder, a cached file."""
    build, cache = fork.folder / "build", fork.folder / "cache"
    found = [path.name for path in build.glob("*")] if build.is_dir() else []
    return found + [path.name for path in cache.rglob("*") if path.is_file()]


@pytest.fixture
def fake_apt(fork: Fork) -> Path:
    """An apt-get first on PATH that logs its arguments; `source` delivers FAKE_ARCHIVE, if set, and exits 100."""
    program = fork.folder / "bin" / "apt-get"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\n"
        f'echo "$*" >>{fork.folder}/apt.log\n'
        'case "$*" in\n'
        "  indextargets*) echo http://mirror.example/debian/; echo http://mirror.example/debian-security/ ;;\n"
        '  *" update") : ;;\n'
        '  *source*) [ -z "$FAKE_ARCHIVE" ] || cp "$FAKE_ARCHIVE" nccl.tar.gz; echo "E: no .dsc" >&2; exit 100 ;;\n'
        "esac\n"
    )
    program.chmod(0o755)
    fork.env["PATH"] = f"{program.parent}:{os.environ['PATH']}"
    fork.env["NCCL_TARBALL"] = ""
    return program


def test_given_archive_comes_first(fork: Fork, fake_apt: Path) -> None:
    done = fork.tool("fetch", NCCL_TARBALL=str(fork.archive))
    assert done.stdout.strip() == str(fork.archive)
    assert not (fork.folder / "apt.log").exists()


def test_given_archive_with_another_hash_is_refused_before_unpacking(fork: Fork) -> None:
    with open(fork.archive, "ab") as file:
        file.write(b"x")
    error = fork.refused("tree")
    assert "SHA-256 is" in error and str(fork.archive) in error and names_all_ways(error)
    assert leftovers(fork) == [".nccl.lock"] or leftovers(fork) == []


def test_given_archive_that_is_missing(fork: Fork) -> None:
    error = fork.refused("tree", NCCL_TARBALL="/nowhere/nccl.tar.gz")
    assert "NCCL_TARBALL=/nowhere/nccl.tar.gz: no such file" in error and names_all_ways(error)


def test_given_tree(fork: Fork) -> None:
    (fork.pristine / ".git").mkdir()
    (fork.pristine / "build").mkdir()
    (fork.pristine / "build" / "object.o").write_text("built")
    fork.ok("tree", NCCL_SRC=str(fork.pristine), NCCL_TARBALL="/nowhere")
    assert (fork.tree / "src/init.cc").read_text() == (fork.pristine / "src/init.cc").read_text()
    assert not (fork.tree / "build").exists()


@pytest.mark.parametrize("change", ["edit", "extra", "mode", "missing"])
def test_given_tree_that_is_not_the_release_is_refused(fork: Fork, change: str) -> None:
    path = fork.pristine / "src/init.cc"
    if change == "edit":
        path.write_text(path.read_text() + "// local change\n")
    elif change == "extra":
        (fork.pristine / "src/extra.log").write_text("ignored by .gitignore, but there\n")
    elif change == "mode":
        path.chmod(0o755)
    else:
        path.unlink()
    error = fork.refused("tree", NCCL_SRC=str(fork.pristine))
    assert str(fork.pristine) in error and names_all_ways(error)
    assert not [name for name in leftovers(fork) if name != ".nccl.lock"]


def test_given_folder_that_is_no_tree(fork: Fork, tmp_path: Path) -> None:
    error = fork.refused("tree", NCCL_SRC=str(tmp_path))
    assert f"NCCL_SRC={tmp_path}" in error and names_all_ways(error)


def test_apt_runs_privately_and_its_exit_status_is_not_asked(fork: Fork, fake_apt: Path) -> None:
    done = fork.tool("fetch", FAKE_ARCHIVE=str(fork.archive))
    kept = fork.folder / "cache" / "nccl-uzip" / "nccl.tar.gz"
    assert done.returncode == 0 and done.stdout.strip() == str(kept)
    assert kept.read_bytes() == fork.archive.read_bytes()
    calls = (fork.folder / "apt.log").read_text().splitlines()
    assert len(calls) == 3  # the security mirror is not asked
    for call in calls[1:]:
        for option in ("Dir::Etc::SourceList=", "Dir::Etc::SourceParts=/dev/null", "Dir::State::Lists=", "Dir::Cache="):
            assert option in call
    assert "--download-only no-such-package" in calls[2]


def test_cache_is_used_and_verified(fork: Fork, fake_apt: Path) -> None:
    fork.ok("fetch", FAKE_ARCHIVE=str(fork.archive))
    (fork.folder / "apt.log").unlink()
    fork.ok("fetch")
    assert not (fork.folder / "apt.log").exists()
    kept = fork.folder / "cache" / "nccl-uzip" / "nccl.tar.gz"
    kept.write_bytes(b"truncated")
    error = fork.refused("fetch")
    assert str(kept) in error and names_all_ways(error)


def test_release_is_the_last_resort(fork: Fork, fake_apt: Path) -> None:
    shutil.copy(fork.archive, fork.folder / "no-such-release.tar.gz")
    done = fork.tool("fetch")
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).read_bytes() == fork.archive.read_bytes()


@pytest.mark.parametrize("wrong", [False, True])
def test_no_source_is_one_error_that_names_all_ways(fork: Fork, fake_apt: Path, wrong: bool) -> None:
    delivered = fork.folder / "wrong.tar.gz"
    delivered.write_bytes(b"something else")
    error = fork.refused("tree", FAKE_ARCHIVE=str(delivered) if wrong else "")
    assert names_all_ways(error)
    assert ("SHA-256" in error.partition("can come from")[0].splitlines()[-2]) or not wrong
    assert not [name for name in leftovers(fork) if name != ".nccl.lock"]
