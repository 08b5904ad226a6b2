# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Values and errors of the public API."""

from __future__ import annotations

from dataclasses import dataclass


class NcclError(RuntimeError):
    """A call of NCCL that failed.

    Attributes:
        code: The ``ncclResult_t`` that the call returned.
        function: The call's name.
        text: What ``ncclGetErrorString`` says of the code.
        detail: The last warning of ``ncclGetLastError``; empty when there is none.
    """

    def __init__(self, code: int, function: str, text: str, detail: str = "") -> None:
        super().__init__(f"{function}: {text} (ncclResult_t {code}){': ' + detail if detail else ''}")
        self.code = code
        self.function = function
        self.text = text
        self.detail = detail

    def __reduce__(self) -> tuple[type[NcclError], tuple[int, str, str, str]]:
        return type(self), (self.code, self.function, self.text, self.detail)


class LibraryNotFoundError(RuntimeError):
    """No libnccl-uzip.so to be had in this process; the message says what was tried and what to do."""


@dataclass(frozen=True, slots=True)
class Version:
    """Versions of a libnccl-uzip.so.

    Attributes:
        uzip: Version of the library: 10000 * major + 100 * minor + patch.
        format: Version of the wire format (docs/FORMAT.md). Ranks must have the same.
        nccl: Version of NCCL it is built from, as ``ncclGetVersion`` gives it: 22907 is 2.29.7.
    """

    uzip: int
    format: int
    nccl: int

    @property
    def uzip_text(self) -> str:
        """The library's version as text, ``"0.1.0"``."""
        return _dotted(self.uzip)

    @property
    def nccl_text(self) -> str:
        """The NCCL version as text, ``"2.29.7"``."""
        return _dotted(self.nccl)


def _dotted(code: int) -> str:
    return f"{code // 10000}.{code // 100 % 100}.{code % 100}"


@dataclass(frozen=True, slots=True)
class Stats:
    """What this rank of a communicator has moved over framed links, since its creation or the last reset.

    On a *framed* link every slice goes through UZIP, compressed or not; what NCCL moves otherwise is not counted.
    Counts are those of finished operations.

    Attributes:
        send_raw_bytes: Bytes of payload sent over framed links.
        send_wire_bytes: Bytes handed to the transport for them, headers included.
        recv_raw_bytes: Bytes of payload received over framed links.
        recv_wire_bytes: Bytes that arrived for them, headers included.
        send_slices: Framed slices sent.
        send_slices_raw: Of these, sent as they are, because they do not compress or are small.
        forwarded_slices: Of these, passed on as they came from another rank.
        recv_slices: Framed slices received.
        ops: Collectives run by UZIP, as the channel that saw most of them counts.
        pad_bytes: Bytes of memory beyond stock NCCL's that the communicator's connections take; never reset.
    """

    send_raw_bytes: int
    send_wire_bytes: int
    recv_raw_bytes: int
    recv_wire_bytes: int
    send_slices: int
    send_slices_raw: int
    forwarded_slices: int
    recv_slices: int
    ops: int
    pad_bytes: int

    @property
    def ratio(self) -> float | None:
        """Wire bytes over raw bytes of what was sent: 0.67 means a third was saved. None when nothing was sent."""
        return self.send_wire_bytes / self.send_raw_bytes if self.send_raw_bytes else None


@dataclass(frozen=True, slots=True)
class Policy:
    """What the ranks of a communicator agreed on when it was made.

    Attributes:
        enabled: Whether collectives may use UZIP.
        reason: Why it is not enabled, in words; empty when it is.
        links: Kinds of link that are framed: ``net``.
        types: Types whose payloads are encoded, of ``bf16``, ``f16``, ``f32``.
        min_bytes: Operations of fewer bytes do not use UZIP, unless forced.
        exact: Whether algorithm, channels and chunks are stock NCCL's (``NCCL_UZIP_EXACT=1``).
        forced: Whether ``NCCL_PROTO`` forces UZIP for at least one covered function.
    """

    enabled: bool
    reason: str
    links: tuple[str, ...]
    types: tuple[str, ...]
    min_bytes: int
    exact: bool
    forced: bool
