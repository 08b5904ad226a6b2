# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""nccl-tree, export-patches, check-patches: the way of a patch, and that every fault of a series is seen."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable

import pytest

from conftest import FILES, SPDX, Fork, message


def test_tree_holds_the_source_and_copies_of_ours(fork: Fork) -> None:
    fork.ok("tree")
    for name, text in FILES.items():
        assert (fork.tree / name).read_text() == text
    assert os.access(fork.tree / "src/device/run.sh", os.X_OK)
    copy = fork.tree / "src/uzip/host/uzip.h"
    assert copy.read_text() == "// ours\n"
    assert not copy.stat().st_mode & 0o222
    assert fork.git("status", "--porcelain") == ""
    assert fork.git("rev-parse", "HEAD") == fork.git("rev-parse", "upstream")


def test_export_writes_one_file_per_commit_without_churn(patched: Fork) -> None:
    series = [line for line in patched.patch("series").splitlines() if not line.startswith("#")]
    assert series == ["0001-init.patch", "proxy-pads.patch"]
    assert patched.patch("0001-init.patch") == (
        f"{SPDX}\ninit: hook\n\nWhy: it is a test.\n\nWhy not outside: it has to be there.\n\n"
        "Files: src/init.cc\n\n"
        "diff --git a/src/init.cc b/src/init.cc\n--- a/src/init.cc\n+++ b/src/init.cc\n"
        "@@ -5,0 +6 @@\n+int hook; // [UZIP]\n"
    )
    assert "Files: src/init.cc, src/proxy.cc\n" in patched.patch("proxy-pads.patch")
    assert "Patch-file" not in patched.patch("proxy-pads.patch")


def test_tree_from_the_series_is_the_tree_it_was_exported_from(patched: Fork) -> None:
    want = {name: (patched.tree / name).read_text() for name in FILES}
    heads = []
    for _ in range(2):
        shutil.rmtree(patched.tree)
        patched.ok("tree")
        assert {name: (patched.tree / name).read_text() for name in FILES} == want
        heads.append(patched.git("rev-parse", "HEAD"))
    assert heads[0] == heads[1]
    assert patched.git("log", "-1", "--format=%B").strip().endswith("Patch-file: proxy-pads.patch")
    patched.ok("check-patches")


def test_second_run_touches_nothing(patched: Fork) -> None:
    before = {path: path.stat().st_mtime_ns for path in patched.tree.rglob("*.*") if ".git" not in path.parts}
    patched.ok("tree")
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_changed_series_rewrites_only_the_files_it_touches(patched: Fork) -> None:
    path = patched.patches / "proxy-pads.patch"
    path.write_text(path.read_text().replace("int pad;", "int pads;"))
    init, proxy = patched.tree / "src/init.cc", patched.tree / "src/proxy.cc"
    before = init.stat().st_mtime_ns
    patched.ok("tree")
    assert "int pads; // [UZIP]" in proxy.read_text()
    assert init.stat().st_mtime_ns == before


def test_changed_source_of_ours_rewrites_only_its_copy(patched: Fork) -> None:
    (patched.sources / "host" / "second.h").write_text("// second\n")
    patched.ok("tree")
    first, second = patched.tree / "src/uzip/host/uzip.h", patched.tree / "src/uzip/host/second.h"
    before = first.stat().st_mtime_ns
    (patched.sources / "host" / "second.h").write_text("// changed\n")
    patched.ok("tree")
    assert second.read_text() == "// changed\n"
    assert first.stat().st_mtime_ns == before
    (patched.sources / "host" / "second.h").unlink()
    patched.ok("tree")
    assert not second.exists()


def test_amended_and_autosquashed_edits_land_in_their_patch(patched: Fork) -> None:
    other = patched.patch("proxy-pads.patch")
    patched.edit("src/init.cc", 1, "int early; // [UZIP]")
    first = patched.git("rev-parse", "HEAD~1").strip()
    patched.git("commit", "-q", "-a", f"--fixup={first}")
    assert "autosquash" in patched.refused("export-patches")
    os.environ["GIT_SEQUENCE_EDITOR"] = "true"
    try:
        patched.git("rebase", "-q", "-i", "--autosquash", "upstream")
    finally:
        del os.environ["GIT_SEQUENCE_EDITOR"]
    patched.ok("export-patches")
    assert "+int early; // [UZIP]" in patched.patch("0001-init.patch")
    assert patched.patch("proxy-pads.patch") == other.replace("@@ -12,0 +13 @@", "@@ -13,0 +14 @@")
    patched.ok("check-patches")


def test_export_removes_the_file_of_a_dropped_commit(patched: Fork) -> None:
    patched.git("reset", "-q", "--hard", "HEAD~1")
    patched.ok("export-patches")
    assert sorted(path.name for path in patched.patches.iterdir()) == ["0001-init.patch", "series"]


@pytest.mark.parametrize("committed", [False, True])
def test_tree_refuses_to_lose_edits(patched: Fork, committed: bool) -> None:
    patched.edit("src/init.cc", 2, "int mine; // [UZIP]")
    if committed:
        patched.commit(message("init: mine"))
    error = patched.refused("tree")
    assert "export-patches" in error and "FORCE=1" in error
    assert ("init: mine" if committed else "src/init.cc") in error
    assert "int mine" in (patched.tree / "src/init.cc").read_text()
    assert "drift" in patched.refused("check-patches")
    assert "FORCE=1" in patched.refused("tree", "--remove")
    patched.ok("tree", "--force")
    assert "int mine" not in (patched.tree / "src/init.cc").read_text()
    patched.ok("check-patches")


def test_tree_without_edits_is_removed(patched: Fork) -> None:
    patched.ok("tree", "--remove")
    assert not patched.tree.exists()


def test_tree_refuses_to_lose_an_edited_copy(patched: Fork) -> None:
    copy = patched.tree / "src/uzip/host/uzip.h"
    copy.chmod(0o644)
    copy.write_text("// edited in the wrong place\n")
    assert "src/uzip/host/uzip.h" in patched.refused("tree")
    patched.ok("tree", "--force")
    assert copy.read_text() == "// ours\n"


def test_export_refuses_uncommitted_edits_and_incomplete_messages(patched: Fork) -> None:
    before = {path.name: path.read_text() for path in patched.patches.iterdir()}
    patched.edit("src/init.cc", 2, "int mine; // [UZIP]")
    assert "commit these first" in patched.refused("export-patches")
    patched.commit("init: no reasons given")
    assert "`Why:`" in patched.refused("export-patches")
    assert {path.name: path.read_text() for path in patched.patches.iterdir()} == before


def rewrite(name: str, old: str, new: str) -> Callable[[Fork], None]:
    def fault(fork: Fork) -> None:
        text = fork.patch(name)
        assert old in text
        (fork.patches / name).write_text(text.replace(old, new))

    return fault


def orphan(fork: Fork) -> None:
    shutil.copy(fork.patches / "0001-init.patch", fork.patches / "left-over.patch")


def lost(fork: Fork) -> None:
    (fork.patches / "0001-init.patch").unlink()


def no_series(fork: Fork) -> None:
    (fork.patches / "series").unlink()


def too_long(fork: Fork) -> None:
    hook = "+int hook; // [UZIP]\n"
    rewrite("0001-init.patch", "@@ -5,0 +6 @@\n" + hook, "@@ -5,0 +6,300 @@\n" + hook * 300)(fork)


def removes(fork: Fork) -> None:
    lines = "".join(f"-int line{n};\n" for n in range(6, 19))
    hook = "+int hook; // [UZIP]\n"
    rewrite("0001-init.patch", "@@ -5,0 +6 @@\n" + hook, "@@ -6,13 +6 @@\n" + lines + hook)(fork)


def new_file(fork: Fork) -> None:
    with open(fork.patches / "0001-init.patch", "a") as file:
        file.write(
            "diff --git a/src/own.h b/src/own.h\nnew file mode 100644\n--- /dev/null\n+++ b/src/own.h\n"
            "@@ -0,0 +1 @@\n+// [UZIP]\n"
        )


FAULTS: dict[str, tuple[Callable[[Fork], None], str]] = {
    "orphan": (orphan, "left-over.patch: orphan"),
    "series line without file": (lost, "0001-init.patch: listed in series, but there is no such file"),
    "no series": (no_series, "no series file"),
    "listed twice": (rewrite("series", "0001-init.patch\n", "0001-init.patch\n" * 2), "0001-init.patch: listed twice"),
    "removed line that upstream does not have": (
        rewrite("0001-init.patch", "@@ -5,0 +6 @@\n", "@@ -6 +6 @@\n-int other;\n"),
        "0001-init.patch: does not apply",
    ),
    "file that upstream does not have": (
        rewrite("0001-init.patch", "src/init.cc", "src/other.cc"),
        "0001-init.patch: does not apply",
    ),
    "no diff": (rewrite("0001-init.patch", "diff --git", "diff"), "0001-init.patch: holds no diff"),
    "hash line": (rewrite("0001-init.patch", "--- a/", "index 1234567..89abcde 100644\n--- a/"), "differently"),
    "excerpt behind @@": (rewrite("0001-init.patch", "@@ -5,0 +6 @@", "@@ -5,0 +6 @@ int line5;"), "differently"),
    "wrong list of files": (rewrite("0001-init.patch", "Files: src/init.cc", "Files: src/proxy.cc"), "differently"),
    "no licence": (rewrite("0001-init.patch", SPDX, ""), "does not begin with the SPDX lines"),
    "no subject": (rewrite("0001-init.patch", "init: hook\n", "hook\n"), "no subject line"),
    "no reason": (rewrite("0001-init.patch", "Why: it", "It"), "no `Why:` paragraph"),
    "no reason for the place": (rewrite("0001-init.patch", "Why not outside:", "Also:"), "no `Why not outside:`"),
    "no list of files": (rewrite("0001-init.patch", "Files: src/init.cc\n\n", ""), "no `Files:` paragraph"),
    "untagged hunk": (
        rewrite("proxy-pads.patch", "int second; // [UZIP]", "int second;"),
        "proxy-pads.patch: src/init.cc:13: added lines without [UZIP]",
    ),
    "too much added": (too_long, "adds 302 lines to NCCL, more than 250"),
    "too much removed": (removes, "removes 13 lines of NCCL, more than 10"),
    "new file": (new_file, "files of ours belong in nccl-uzip/src"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_check_sees(patched: Fork, name: str) -> None:
    fault, words = FAULTS[name]
    fault(patched)
    assert words in patched.refused("check-patches")


def test_check_passes_an_empty_series_and_counts_lines(fork: Fork, patched: Fork) -> None:
    assert re.search(r"2 patches, 3 lines added \(limit 250\), 0 removed \(limit 10\)", patched.ok("check-patches"))
    patched.git("reset", "-q", "--hard", "upstream")
    patched.ok("export-patches")
    assert "0 patches, 0 lines added" in patched.ok("check-patches")


def test_a_patch_that_does_not_apply_leaves_the_tree_as_it_was(patched: Fork) -> None:
    before = {name: (patched.tree / name).read_text() for name in FILES}
    head = patched.git("rev-parse", "HEAD")
    rewrite("proxy-pads.patch", "src/proxy.cc", "src/gone.cc")(patched)
    assert "proxy-pads.patch: does not apply" in patched.refused("tree")
    assert {name: (patched.tree / name).read_text() for name in FILES} == before
    assert patched.git("rev-parse", "HEAD") == head
    assert patched.git("status", "--porcelain") == ""
