# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of our device functions, for NCCL's src/device/generate.py.

Appended behind NCCL's own rows, and behind its sorted list of functions (which could not be sorted with ours in it).
The order must match rowOf() in host/uzip_host.cc.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

Row = tuple[str, "str | None", "str | None", "str | None", "str | None"]

REDOPS = ("Sum", "Prod", "MinMax", "PreMulSum")
TYPES = ("f16", "f32", "bf16")

# NCCL's rows per protocol: AllGather, Broadcast and AllGatherV; AllReduce, Reduce and ReduceScatter by operation and
# type.
COPY_ALGORITHMS = 4 + 1 + 1
REDUCE_ALGORITHMS = 6 + 1 + 4


def rows() -> Iterator[Row]:
    """Our rows: (collective, operation, type, algorithm, protocol)."""
    for op in REDOPS:
        for ty in TYPES:
            yield ("AllReduce", op, ty, "RING", "UZIP")
    yield ("Broadcast", None, None, "RING", "UZIP")


def extend(
    func_rows: list[Row | None],
    primary_funcs: list[Row],
    is_built: Callable[..., object],
    counts: tuple[int, int, int],
) -> None:
    """Append our rows; one that the build's function filter leaves out becomes None, which the host reads as -1.

    counts: how many operations, types and protocols NCCL's own rows have.
    """
    ops, types, protos = counts
    expected = 1 + COPY_ALGORITHMS * protos + ops * types * REDUCE_ALGORITHMS * protos
    if len(func_rows) != expected:
        raise SystemExit(
            f"generate_uzip.py: NCCL has {len(func_rows)} function rows, host/uzip_host.cc counts {expected}"
        )
    for row in rows():
        built = bool(is_built(*row))
        func_rows.append(row if built else None)
        if built:
            primary_funcs.append(row)
