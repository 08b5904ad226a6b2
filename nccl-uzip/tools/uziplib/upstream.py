# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""The pinned NCCL source: where it comes from, and the check that it is the one."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from .common import ROOT, Failure, say

DEFAULT_ENV = ROOT / "nccl-uzip" / "upstream.env"
TIMEOUT_S = 60


@dataclass(frozen=True)
class Pin:
    """Contents of upstream.env."""

    version: str
    series: str
    version_code: str
    archive: str
    sha256: str
    topdir: str
    tree: str
    apt_package: str
    apt_suite: str
    apt_component: str
    url: str

    @staticmethod
    def load(path: Path = DEFAULT_ENV) -> Pin:
        values: dict[str, str] = {}
        for line in path.read_text().splitlines():
            line = line.strip()
            if line and not line.startswith("#"):
                key, _, value = line.partition("=")
                values[key.removeprefix("UPSTREAM_").lower()] = value
        try:
            return Pin(**{field: values[field] for field in Pin.__dataclass_fields__})
        except KeyError as missing:
            raise Failure(f"{path}: no UPSTREAM_{str(missing.args[0]).upper()} line") from None


def cache_dir() -> Path:
    """Folder that keeps the archive between checkouts."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nccl-uzip"


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def ways(pin: Pin) -> str:
    return (
        f"The source of NCCL {pin.version} ({pin.archive}, SHA-256 {pin.sha256}) can come from:\n"
        f"  1. NCCL_SRC=DIR         an unpacked, unchanged tree of it\n"
        f"  2. NCCL_TARBALL=FILE    the archive, or put it at {cache_dir() / pin.archive}\n"
        f"  3. apt-get source       package {pin.apt_package}, suite {pin.apt_suite}, area {pin.apt_component}, "
        "over this machine's own apt mirror\n"
        f"  4. upstream's release   {pin.url}"
    )


def obtain(pin: Pin) -> Path:
    """A verified archive (a file), or the folder that NCCL_SRC names (verified by patches.py)."""
    tree = os.environ.get("NCCL_SRC")
    if tree:
        path = Path(tree).resolve()
        if not (path / "src" / "nccl.h.in").is_file():
            raise Failure(f"NCCL_SRC={tree}: no NCCL source tree there (src/nccl.h.in is missing)\n{ways(pin)}")
        return path

    given = os.environ.get("NCCL_TARBALL")
    if given:
        path = Path(given).resolve()
        if not path.is_file():
            raise Failure(f"NCCL_TARBALL={given}: no such file\n{ways(pin)}")
        _verify(path, pin, f"NCCL_TARBALL={given}")
        return path

    kept = cache_dir() / pin.archive
    if kept.is_file():
        _verify(kept, pin, f"cached {kept} (remove it to fetch it again)")
        return kept

    reasons = []
    with tempfile.TemporaryDirectory(prefix="nccl-uzip-fetch-") as scratch:
        for name, get in (("apt-get source", _from_apt), ("upstream's release", _from_release)):
            say(f"fetching NCCL {pin.version} source: {name} ...")
            try:
                path = get(pin, Path(scratch))
                _verify(path, pin, f"archive from {name}")
            except Failure as failure:
                reasons.append(f"{name}: {str(failure).splitlines()[0]}")
                continue
            kept.parent.mkdir(parents=True, exist_ok=True)
            part = kept.with_name(f"{kept.name}.{os.getpid()}.part")
            try:
                shutil.copyfile(path, part)
                part.replace(kept)
            finally:
                part.unlink(missing_ok=True)
            return kept
    raise Failure("no source archive: " + "; ".join(reasons) + "\n" + ways(pin))


def unpack(archive: Path, pin: Pin, into: Path) -> Path:
    """Unpack a verified archive inside the folder `into` and return its top folder."""
    done = subprocess.run(["tar", "-xzf", str(archive), "-C", str(into)], capture_output=True, check=False)
    top = into / pin.topdir
    if done.returncode != 0 or not top.is_dir():
        detail = done.stderr.decode(errors="replace").strip() or f"no folder {pin.topdir} in it"
        raise Failure(f"{archive}: cannot be unpacked: {detail}")
    return top


def _verify(path: Path, pin: Pin, what: str) -> None:
    found = sha256_of(path)
    if found != pin.sha256:
        raise Failure(f"{what}: SHA-256 is {found}, not the pinned {pin.sha256}\n{ways(pin)}")


def _from_apt(pin: Pin, scratch: Path) -> Path:
    """Download with apt's own client, but private lists, cache and sources file: the machine's setup stays as it is."""
    if not shutil.which("apt-get"):
        raise Failure("this machine has no apt-get")
    mirrors = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split()
    mirrors = [uri for uri in dict.fromkeys(mirrors) if "security" not in uri]
    if not mirrors:
        raise Failure("apt is configured without a package mirror")
    base = scratch / "apt"
    for folder in ("lists/partial", "cache/archives/partial", "download"):
        (base / folder).mkdir(parents=True, exist_ok=True)
    options = [
        f"Dir::Etc::SourceList={base / 'sources.list'}",
        "Dir::Etc::SourceParts=/dev/null",
        f"Dir::State::Lists={base / 'lists'}",
        f"Dir::Cache={base / 'cache'}",
        "APT::Sandbox::User=",
        "Acquire::Retries=2",
        f"Acquire::http::Timeout={TIMEOUT_S}",
        f"Acquire::https::Timeout={TIMEOUT_S}",
    ]
    apt = ["apt-get", "-q"] + [word for option in options for word in ("-o", option)]
    log = ""
    for uri in mirrors:
        (base / "sources.list").write_text(f"deb-src {uri} {pin.apt_suite} {pin.apt_component}\n")
        for command in (
            ["update"],
            # Unauthenticated is fine, the SHA-256 decides; the exit status is not asked, since the package's
            # description may be missing while its archive arrives.
            ["--allow-unauthenticated", "source", "--download-only", pin.apt_package],
        ):
            try:
                done = subprocess.run(
                    apt + command,
                    cwd=base / "download",
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=5 * TIMEOUT_S,
                )
                log = done.stderr.strip() or log
            except subprocess.TimeoutExpired:
                log = f"{' '.join(command)} ran into its time limit of {5 * TIMEOUT_S} s"
                break
        path = base / "download" / pin.archive
        if path.is_file():
            return path
    raise Failure("the archive did not arrive" + (f" ({log.splitlines()[-1]})" if log else ""))


def _from_release(pin: Pin, scratch: Path) -> Path:
    path = scratch / pin.archive
    try:
        with urllib.request.urlopen(pin.url, timeout=TIMEOUT_S) as answer, open(path, "wb") as file:
            shutil.copyfileobj(answer, file)
    except (urllib.error.URLError, OSError) as error:
        raise Failure(f"{pin.url}: {error}") from None
    return path
