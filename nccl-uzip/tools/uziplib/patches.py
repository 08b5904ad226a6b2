# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""The patched NCCL tree and the patch series, one made from the other.

The tree is a git repository of its own: a commit of the pristine source, tagged `upstream`, then one commit per
patch. Our own sources lie in it as read-only copies under src/uzip, which that repository ignores.

A patch file is a header and a zero-context diff:

    SPDX-FileCopyrightText: ...
    SPDX-License-Identifier: ...

    area: subject

    Why: what the hook is for.

    Why not outside: why it has to be in NCCL's file.

    Files: files touched, written by the export

    diff --git ...

Everything between the SPDX lines and `Files:` is the commit's message. Exported text depends on the message and
the change alone: no hashes, no dates, no excerpt of NCCL behind @@.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from . import upstream
from .common import ROOT, Failure, run, say, write_if_changed

SOURCES = ROOT / "nccl-uzip" / "src"
PARTS = ("codec", "device", "host", "include")
MAX_ADDED, MAX_REMOVED = 250, 10
TAG = "[UZIP]"

APPLIED = "refs/uzip/applied"  # the commit that the series on disk was applied or exported as
SPDX = "SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors\nSPDX-License-Identifier: Apache-2.0\n"
FIELDS = ("Why:", "Why not outside:", "Files:")
TRAILER = "Patch-file: "


@dataclass
class Patch:
    """A parsed patch file."""

    name: str
    text: str

    @property
    def header(self) -> str:
        return self.text[: self._diff_at()]

    @property
    def diff(self) -> str:
        return self.text[self._diff_at() :]

    @property
    def message(self) -> str:
        body = self.header.removeprefix(SPDX)
        return re.sub(r"^Files:.*?(?:\n\n|\Z)", "", body, flags=re.MULTILINE | re.DOTALL).strip() + "\n"

    def _diff_at(self) -> int:
        found = re.search(r"^diff --git ", self.text, re.MULTILINE)
        return found.start() if found else len(self.text)


class Series:
    """A folder with a `series` file and the patches it lists."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def names(self) -> list[str]:
        path = self.folder / "series"
        if not path.is_file():
            return []
        lines = (line.strip() for line in path.read_text().splitlines())
        return [line for line in lines if line and not line.startswith("#")]

    def problems(self) -> list[str]:
        names = self.names()
        here = {path.name for path in self.folder.glob("*.patch")}
        found = [f"{name}: listed twice in series" for name in sorted({n for n in names if names.count(n) > 1})]
        found += [f"{name}: listed in series, but there is no such file" for name in names if name not in here]
        found += [f"{name}: orphan, not listed in series" for name in sorted(here.difference(names))]
        return found

    def patches(self) -> list[Patch]:
        problems = self.problems()
        if problems:
            raise Failure(f"{self.folder}:\n  " + "\n  ".join(problems))
        return [Patch(name, (self.folder / name).read_text()) for name in self.names()]

    def write(self, patches: list[Patch]) -> list[str]:
        """Make the folder hold exactly these patches; returns what changed, one line each."""
        changed = []
        for patch in patches:
            if write_if_changed(self.folder / patch.name, patch.text.encode()):
                changed.append(f"wrote {patch.name}")
        listed = "".join(f"# {line}\n" for line in SPDX.splitlines()) + "".join(f"{p.name}\n" for p in patches)
        if write_if_changed(self.folder / "series", listed.encode()):
            changed.append("wrote series")
        for path in sorted(self.folder.glob("*.patch")):
            if path.name not in {patch.name for patch in patches}:
                path.unlink()
                changed.append(f"removed {path.name}")
        return changed


class Tree:
    """The git repository of the patched source."""

    def __init__(self, path: Path, pin: upstream.Pin) -> None:
        self.path = path
        self.pin = pin

    def git(self, *argv: str, stdin: str | None = None, index: Path | None = None) -> str:
        # Neither the user's settings nor the clock may show in what is made here.
        env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        env |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C", "TZ": "UTC"}
        for role in ("AUTHOR", "COMMITTER"):
            env |= {f"GIT_{role}_NAME": "nccl-uzip", f"GIT_{role}_EMAIL": "nccl-uzip@localhost"}
            env[f"GIT_{role}_DATE"] = "2026-01-01T00:00:00Z"
        if index:
            env["GIT_INDEX_FILE"] = str(index)
        return run(["git", *argv], cwd=self.path, env=env, stdin=stdin).decode()

    def exists(self) -> bool:
        return (self.path / ".git").is_dir()

    def ref(self, name: str) -> str:
        try:
            return self.git("rev-parse", "--verify", "-q", name + "^{commit}").strip()
        except Failure:
            return ""

    # -- pristine source ---------------------------------------------------------------------------------------------

    def ensure_pristine(self) -> None:
        """Have a repository whose tag `upstream` is the pinned release; made beside and moved here when complete."""
        if self.exists():
            found = self.git("rev-parse", "--verify", "-q", "upstream^{tree}").strip()
            if found != self.pin.tree:
                raise Failure(f"{self.path}: holds another source than NCCL {self.pin.version}; remove it")
            return
        if self.path.exists() and any(self.path.iterdir()):
            raise Failure(f"{self.path}: not empty and not made by nccl-tree; remove it")
        source = upstream.obtain(self.pin)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=self.path.name + ".part-", dir=self.path.parent))
        try:
            if source.is_dir():
                top = scratch / self.pin.topdir
                ignored = {source / ".git", source / "build"}
                shutil.copytree(
                    source,
                    top,
                    symlinks=True,
                    ignore=lambda folder, names: {name for name in names if Path(folder) / name in ignored},
                )
            else:
                top = upstream.unpack(source, self.pin, scratch)
            made = Tree(top, self.pin)
            made.git("init", "-q", "-b", "uzip")
            for setting in ("core.autocrlf=false", "core.fileMode=true", "gc.auto=0", "commit.gpgSign=false"):
                made.git("config", *setting.split("="))
            (top / ".git" / "info").mkdir(exist_ok=True)
            (top / ".git" / "info" / "exclude").write_text("/src/uzip/\n__pycache__/\n")
            made.git("add", "-A", "-f", ".")
            tree = made.git("write-tree").strip()
            if tree != self.pin.tree:
                raise Failure(
                    f"{source}: not the unchanged source of NCCL {self.pin.version} "
                    f"(git tree {tree}, pinned {self.pin.tree})\n{upstream.ways(self.pin)}"
                )
            made.git("commit", "-q", "-m", f"NCCL {self.pin.version}")
            made.git("tag", "upstream")
            made.git("update-ref", APPLIED, "HEAD")
            if self.path.exists():
                self.path.rmdir()
            top.rename(self.path)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    # -- series -> tree ----------------------------------------------------------------------------------------------

    def commits_of(self, patches: list[Patch]) -> list[str]:
        """Commit the patches one upon the other on `upstream`, without touching the files; returns the commit ids."""
        commits = []
        with tempfile.TemporaryDirectory(prefix="uzip-index-") as scratch:
            index = Path(scratch) / "index"
            parent = self.ref("upstream")
            self.git("read-tree", parent, index=index)
            for patch in patches:
                if not patch.diff:
                    raise Failure(f"{patch.name}: holds no diff")
                try:
                    self.git("apply", "--cached", "--unidiff-zero", "-", stdin=patch.diff, index=index)
                except Failure as failure:
                    reason = str(failure).partition("\n")[2]
                    raise Failure(f"{patch.name}: does not apply on NCCL {self.pin.version}:\n{reason}") from None
                tree = self.git("write-tree", index=index).strip()
                message = f"{patch.message}\n{TRAILER}{patch.name}\n"
                parent = self.git("commit-tree", tree, "-p", parent, "-F", "-", stdin=message).strip()
                commits.append(parent)
        return commits

    def apply(self, series: Series, force: bool = False) -> bool:
        """Make the files those of the series; True when something changed. Refuses to lose edits unless forced."""
        patches = series.patches()
        commits = self.commits_of(patches)
        target = commits[-1] if commits else self.ref("upstream")
        if not force:
            if not self.dirty() and self.tree_of("HEAD") == self.tree_of(target) and self.export() == patches:
                self.git("update-ref", APPLIED, "HEAD")
                return False
            self.refuse_to_lose_edits()
        # Only files that differ are written, so that a rebuild compiles only what they touch.
        self.git("symbolic-ref", "HEAD", "refs/heads/uzip")
        self.git("reset", "-q", "--hard", target)
        self.git("clean", "-q", "-fd")
        self.git("update-ref", APPLIED, target)
        return True

    def refuse_to_lose_edits(self) -> None:
        edits = self.edits()
        if edits:
            raise Failure(
                f"{self.path}: holds edits that are not in the series:\n  " + "\n  ".join(edits) + "\n"
                "Commit them there and run `make export-patches`, or drop them with FORCE=1."
            )

    def dirty(self) -> list[str]:
        return self.git("status", "--porcelain").splitlines()

    def tree_of(self, commit: str) -> str:
        return self.git("rev-parse", commit + "^{tree}").strip()

    def edits(self) -> list[str]:
        """What the tree holds beyond what was last applied or exported: changed files, then commits."""
        found = [line.strip() for line in self.dirty()]
        if self.ref("HEAD") != self.ref(APPLIED):
            found += self.git("log", "--format=%h %s", f"{APPLIED}..HEAD").splitlines() or ["commits were removed"]
        return found

    # -- tree -> series ----------------------------------------------------------------------------------------------

    def export(self, head: str = "HEAD") -> list[Patch]:
        """One patch per commit behind `upstream`."""
        patches: list[Patch] = []
        if self.git("merge-base", "upstream", head).strip() != self.ref("upstream"):
            raise Failure(f"{self.path}: HEAD does not descend from the tag `upstream`")
        if self.git("rev-list", "--merges", f"upstream..{head}").strip():
            raise Failure(f"{self.path}: the series must be linear, without merges")
        for commit in self.git("rev-list", "--reverse", f"upstream..{head}").split():
            patch = self._export_one(commit)
            if patch.name in {other.name for other in patches}:
                raise Failure(f"{patch.name}: two commits of this name; fold one into the other")
            patches.append(patch)
        return patches

    def _export_one(self, commit: str) -> Patch:
        lines = self.git("show", "-s", "--format=%B", commit).strip().splitlines()
        name = next((line.removeprefix(TRAILER) for line in lines if line.startswith(TRAILER)), "")
        message = "\n".join(line for line in lines if not line.startswith(TRAILER)).strip()
        subject = message.partition("\n")[0]
        if subject.startswith(("fixup!", "squash!", "amend!")):
            raise Failure(f"commit {subject!r}: fold it first: git rebase -i --autosquash upstream")
        if not name:
            name = re.sub(r"[^a-z0-9]+", "-", subject.lower()).strip("-") + ".patch"
        diff = self.git(
            "diff",
            "-U0",
            "--no-color",
            "--no-ext-diff",
            "--no-renames",
            "--diff-algorithm=myers",
            "--src-prefix=a/",
            "--dst-prefix=b/",
            f"{commit}~",
            commit,
        )
        if not diff:
            raise Failure(f"commit {subject!r} changes nothing")
        if re.search(r"^Binary files ", diff, re.MULTILINE):
            raise Failure(f"commit {subject!r} changes a binary file")
        diff = re.sub(r"^index [0-9a-f]+\.\.[0-9a-f]+(?: \d+)?\n", "", diff, flags=re.MULTILINE)
        diff = re.sub(r"^(@@ -\S+ \+\S+ @@).*$", r"\1", diff, flags=re.MULTILINE)
        files = self.git("diff", "--name-only", "--no-renames", f"{commit}~", commit).split()
        return Patch(name, f"{SPDX}\n{message}\n\nFiles: {', '.join(files)}\n\n{diff}")


def sync_sources(tree: Path, sources: Path = SOURCES) -> bool:
    """Copy our sources to src/uzip of the tree; files that are equal keep their time stamps. True when one changed.

    They are copies and not links because upstream's device makefile follows only headers inside its own tree.
    """
    changed = False
    into = tree / "src" / "uzip"
    wanted = set()
    for part in PARTS:
        for path in sorted((sources / part).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith("."):
                copy = into / path.relative_to(sources)
                wanted.add(copy)
                changed |= write_if_changed(copy, path.read_bytes(), mode=0o444)
    for path in sorted(into.rglob("*"), reverse=True):
        if path.is_dir():
            if not any(path.iterdir()):
                path.rmdir()
        elif path not in wanted:
            path.unlink()
            changed = True
    return changed


def edited_copies(tree: Path, sources: Path = SOURCES) -> list[str]:
    """Copies under src/uzip that somebody made writable and changed, which a sync would overwrite."""
    into = tree / "src" / "uzip"
    found = []
    for copy in sorted(into.rglob("*")) if into.is_dir() else []:
        if copy.is_file() and copy.stat().st_mode & stat.S_IWUSR:
            original = sources / copy.relative_to(into)
            if not original.is_file() or original.read_bytes() != copy.read_bytes():
                found.append(str(copy.relative_to(tree)))
    return found


def check_patch(patch: Patch) -> list[str]:
    """What is wrong with one patch by itself."""
    found = []
    if not patch.header.startswith(SPDX):
        found.append(f"{patch.name}: header does not begin with the SPDX lines")
    subject = patch.message.partition("\n")[0]
    if not re.match(r"[a-z][\w ,/.-]*: \S", subject):
        found.append(f"{patch.name}: header has no subject line of the form `area: what`")
    for field in FIELDS:
        if not re.search(rf"^{field} \S", patch.header, re.MULTILINE):
            found.append(f"{patch.name}: header has no `{field}` paragraph")
    if re.search(r"^(?:rename|copy) (?:from|to) |^(?:new|deleted) file mode|^GIT binary", patch.diff, re.MULTILINE):
        found.append(f"{patch.name}: makes, renames or removes a file; files of ours belong in nccl-uzip/src")
    for where, added, _ in hunks(patch.diff):
        if added and not any(TAG in line for line in added):
            found.append(f"{patch.name}: {where}: added lines without {TAG}")
    return found


def hunks(diff: str) -> list[tuple[str, list[str], list[str]]]:
    """(file and line, added lines, removed lines) of each hunk of a diff."""
    found: list[tuple[str, list[str], list[str]]] = []
    file = ""
    added: list[str] = []
    removed: list[str] = []
    left = 0  # lines of the current hunk that are still to come; a removed line may look like a file header
    for line in diff.splitlines():
        if left and line[:1] in ("+", "-", " "):
            if line[0] != " ":
                (added if line[0] == "+" else removed).append(line[1:])
            left -= 2 if line[0] == " " else 1
        elif line.startswith("+++ "):
            file = line[4:].removeprefix("b/")
        elif at := re.match(r"@@ -\d+(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", line):
            left = int(at[1] or 1) + int(at[3] or 1)
            added, removed = [], []
            found.append((f"{file}:{at[2]}", added, removed))
    return found


def check(tree: Tree, series: Series) -> list[str]:
    """Everything that is wrong with the series; prints the line counts when it is read."""
    found = series.problems()
    if not (series.folder / "series").is_file():
        found.append(f"{series.folder}: no series file")
    if found:
        return found
    patches = series.patches()
    for patch in patches:
        found += check_patch(patch)
    added = sum(len(a) for patch in patches for _, a, _ in hunks(patch.diff))
    removed = sum(len(r) for patch in patches for _, _, r in hunks(patch.diff))
    say(f"{len(patches)} patches, {added} lines added (limit {MAX_ADDED}), {removed} removed (limit {MAX_REMOVED})")
    if added > MAX_ADDED:
        found.append(f"the series adds {added} lines to NCCL, more than {MAX_ADDED}; move logic to nccl-uzip/src")
    if removed > MAX_REMOVED:
        found.append(f"the series removes {removed} lines of NCCL, more than {MAX_REMOVED}")
    tree.ensure_pristine()
    try:
        commits = tree.commits_of(patches)
    except Failure as failure:
        return [*found, str(failure)]
    again = tree.export(commits[-1]) if commits else []
    for patch, other in zip(patches, again, strict=True):
        if patch.text != other.text:
            found.append(f"{patch.name}: an export would write it differently; run `make nccl-tree export-patches`")
    edits = tree.edits()
    if edits:
        found.append(f"drift: {tree.path} holds edits that were not exported: " + "; ".join(edits))
    return found
