# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""The public calls: find the library when it is first needed, and ask it."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import threading
from importlib import metadata
from pathlib import Path
from typing import Any, TextIO

from nccl_uzip import _core
from nccl_uzip._types import LibraryNotFoundError, Policy, Stats, Version

LIBRARY_NAME = "libnccl-uzip.so"
# Bits of NCCL_UZIP_LINKS_* and NCCL_UZIP_TYPES_* of nccl_uzip.h.
LINK_NAMES = {0: "net"}
TYPE_NAMES = {1: "bf16", 2: "f16", 3: "f32"}

_lock = threading.Lock()
_opened: _core.Library | None = None


def _build_folders() -> list[Path]:
    """build/lib of the source tree that this package, or its virtual environment, lies in."""
    roots = (Path(__file__).resolve().parents[3], Path(sys.prefix).parent)
    return [root / "build" / "lib" for root in roots if (root / "nccl-uzip" / "upstream.env").is_file()]


def _library() -> _core.Library:
    """The process's libnccl-uzip.so; opened now if nothing has yet. Raises LibraryNotFoundError."""
    global _opened
    with _lock:
        if _opened is not None:
            return _opened
        loaded, other = _core.find_loaded()
        if loaded is not None:
            _opened = loaded
            return loaded
        if other is not None:
            raise LibraryNotFoundError(
                f"this process runs on another NCCL, {other}; start it with LD_PRELOAD=/path/to/{LIBRARY_NAME}"
            )
        named = os.environ.get("NCCL_UZIP_LIB")
        if named:
            try:
                _opened = _core.open_library(named)
            except OSError as e:
                raise LibraryNotFoundError(
                    f"NCCL_UZIP_LIB={named} cannot be loaded ({e}); name a {LIBRARY_NAME} or unset it"
                ) from e
            return _opened
        tried = []
        for folder in (Path(__file__).resolve().parent, *_build_folders()):
            path = folder / LIBRARY_NAME
            if not path.is_file():
                tried.append(f"{path}: no such file")
                continue
            try:
                _opened = _core.open_library(str(path))
            except OSError as e:
                tried.append(f"{path}: {e}")
                continue
            return _opened
        raise LibraryNotFoundError(
            f"no {LIBRARY_NAME}: the process has loaded no NCCL, NCCL_UZIP_LIB is not set, {'; '.join(tried)}. "
            f"Start the program with LD_PRELOAD=/path/to/{LIBRARY_NAME}, or set NCCL_UZIP_LIB to that file"
        )


def is_active() -> bool:
    """Whether the NCCL that this process has loaded is libnccl-uzip. Loads nothing.

    True under ``LD_PRELOAD=libnccl-uzip.so``. An NCCL linked statically into a framework is not seen.
    """
    return _core.find_loaded()[0] is not None


def library_path() -> str:
    """Path of the libnccl-uzip.so in use.

    Raises:
        LibraryNotFoundError: There is none.
    """
    return _library().path


def version() -> Version:
    """Versions of the libnccl-uzip.so in use.

    Raises:
        LibraryNotFoundError: There is none.
    """
    return Version(*_library().version())


def stats(comm: Any) -> Stats:
    """Bytes and slices of this rank in the communicator, since its creation or the last reset.

    Synchronises nothing: values are as of the last finished operation.

    Args:
        comm: The communicator: an ``ncclComm_t`` as an integer (or ``ctypes.c_void_p``), a ``torch.distributed`` NCCL
            process group or its backend, or an object with ``ptr`` (nccl4py). It must be alive.

    Raises:
        LibraryNotFoundError: The process does not run on libnccl-uzip.
        NcclError: The library refused the communicator.
        TypeError: ``comm`` is none of the kinds above.
        ValueError: ``comm`` has no communicator behind it (null, or not made yet).
    """
    pointer = _comm_pointer(comm)
    return Stats(*_library().stats(pointer))


def reset_stats(comm: Any) -> None:
    """Set the communicator's counters of this rank to zero. Arguments and errors as for :func:`stats`."""
    pointer = _comm_pointer(comm)
    _library().reset_stats(pointer)


def policy(comm: Any) -> Policy:
    """What the communicator's ranks agreed on at its creation. Arguments and errors as for :func:`stats`."""
    pointer = _comm_pointer(comm)
    enabled, reason, links, types, min_bytes, exact, forced = _library().policy(pointer)
    return Policy(enabled, reason, _names(links, LINK_NAMES), _names(types, TYPE_NAMES), min_bytes, exact, forced)


def _names(mask: int, known: dict[int, str]) -> tuple[str, ...]:
    """Names of the bits that are set; a newer library's bits show as ``bit5``."""
    return tuple(known.get(bit, f"bit{bit}") for bit in range(32) if mask >> bit & 1)


def show_versions(file: TextIO | None = None) -> None:
    """Print what a bug report needs: versions, and which library this process uses, or why it has none."""
    lines = [
        ("python", platform.python_version()),
        ("platform", platform.platform()),
        ("nccl_uzip", metadata.version("nccl-uzip")),
    ]
    try:
        found = version()
    except LibraryNotFoundError as e:
        lines.append(("library", f"none ({e})"))
    else:
        state = "active" if is_active() else "opened by this package"
        lines.append(("library", f"{library_path()} ({state})"))
        lines.append(("uzip", f"{found.uzip_text}, wire format {found.format}"))
        lines.append(("nccl", found.nccl_text))
    torch = sys.modules.get("torch")
    lines.append(("torch", str(torch.__version__) if torch is not None else "not imported"))
    for name, value in lines:
        print(f"{name:<10} {value}", file=file)


def _comm_pointer(comm: Any) -> int:
    """The ``ncclComm_t`` behind ``comm`` as an integer."""
    value = comm
    if isinstance(comm, ctypes.c_void_p):
        value = comm.value or 0
    elif not isinstance(comm, int):
        if hasattr(comm, "_get_backend") and not hasattr(comm, "_comm_ptr"):  # a torch process group
            comm = comm._get_backend(sys.modules["torch"].device("cuda"))
        for name in ("ptr", "_comm_ptr"):
            if hasattr(comm, name):
                value = getattr(comm, name)
                value = value() if callable(value) else value
                break
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(
            f"comm is a {type(comm).__name__}; it must be an ncclComm_t as an integer, a torch NCCL process group "
            "or its backend, or an object with ptr"
        )
    if value <= 0:
        raise ValueError("comm is null: there is no communicator yet (torch makes it at the first collective)")
    return value
