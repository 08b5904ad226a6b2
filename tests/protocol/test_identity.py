# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Collectives over framed slots give the bits that plain slots give, for all ranks, rings, types, sizes and places."""

from __future__ import annotations

import pytest

from emulated_ranks import ELEMENT_BYTES, TYPES, Ranks, all_reduce, inputs

OPS = ("sum", "prod", "min", "max", "avg", "premulsum")
# A block small enough to be quick, still with a warp that only posts; the default of 544 threads has tests of its own.
QUICK: dict[str, int] = {"threads": 160}


@pytest.mark.parametrize("ranks_n, channels", [(2, 1), (2, 3), (3, 2), (4, 1), (4, 4), (5, 3)])
@pytest.mark.parametrize("collective", ["all_reduce", "broadcast"])
def test_ranks_and_channels(ranks: Ranks, collective: str, ranks_n: int, channels: int) -> None:
    outcome = ranks.identical(
        "normal.bf16",
        collective=collective,
        ranks=ranks_n,
        channels=channels,
        count=900_009,
        buffsize=262144,
        root=ranks_n - 1,
    )
    assert outcome.json["ratio"] < 0.75
    if ranks_n > 2:
        assert outcome.json["forwarded_slices"] > 0


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", TYPES)
def test_types_and_ops(ranks: Ranks, dtype: str, op: str) -> None:
    ranks.identical(f"normal.{dtype}", op=op, ranks=3, count=90_001, buffsize=131072, **QUICK)


@pytest.mark.parametrize("mode", ["uzip", "simple"])
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", TYPES)
def test_results_are_right(ranks: Ranks, dtype: str, op: str, mode: str) -> None:
    """Against numpy, in the order in which the rings add up."""
    count, ranks_n, channels, buffsize = 70_003, 4, 3, 65536
    outcome = ranks(
        f"normal.{dtype}",
        mode=mode,
        op=op,
        ranks=ranks_n,
        channels=channels,
        count=count,
        buffsize=buffsize,
        **QUICK,
        outputs=True,
    )
    assert outcome.code == 0, outcome.stderr
    want = all_reduce(ranks.payloads / f"normal.{dtype}", dtype, op, ranks_n, count, channels, buffsize)
    for rank, got in enumerate(outcome.outputs):
        assert got == want, f"rank {rank}"


@pytest.mark.parametrize("dtype", TYPES)
def test_broadcast_delivers_the_root(ranks: Ranks, dtype: str) -> None:
    outcome = ranks(
        f"normal.{dtype}",
        collective="broadcast",
        root=1,
        ranks=3,
        count=60_001,
        buffsize=131072,
        **QUICK,
        outputs=True,
    )
    assert outcome.code == 0, outcome.stderr
    want = inputs(ranks.payloads / f"normal.{dtype}", dtype, 3, 60_001)[1]
    assert outcome.outputs == [want] * 3


# One channel, 2 ranks, 64 KiB of buffer: slices of all-reduce hold 16 KiB, of broadcast 8 KiB; tiles hold 1024 values.
COUNTS = sorted(
    {0, 1, 2, 3, 7, 8, 9, 511, 2047, 2048}
    | {k * 1024 + d for k in (2, 4, 8, 16, 33) for d in (-1, 0, 1)}
    | {k * 8192 + d for k in (4, 8) for d in (-1, 0, 1)}
)


@pytest.mark.parametrize("count", COUNTS)
def test_counts(ranks: Ranks, count: int) -> None:
    for collective in ("all_reduce", "broadcast"):
        for dtype in ("bf16", "f32"):
            outcome = ranks.identical(
                f"normal.{dtype}", collective=collective, count=count, channels=1, buffsize=65536, **QUICK
            )
            links = 2 if collective == "all_reduce" else 1
            assert outcome.json["raw_bytes"] == links * count * ELEMENT_BYTES[dtype]


@pytest.mark.parametrize(
    "where", [{"misalign": 1}, {"misalign": 3, "in_place": True}, {"in_place": True}, {"misalign": 8}], ids=str
)
@pytest.mark.parametrize("dtype", TYPES)
def test_unaligned_and_in_place(ranks: Ranks, dtype: str, where: dict[str, int | bool]) -> None:
    for collective in ("all_reduce", "broadcast"):
        ranks.identical(
            f"normal.{dtype}", collective=collective, ranks=3, count=50_001, buffsize=131072, **where, **QUICK
        )


@pytest.mark.parametrize("buffsize", [4096, 8192, 36864, 131072])
def test_steps_wrap(ranks: Ranks, buffsize: int) -> None:
    for collective in ("all_reduce", "broadcast"):
        ranks.identical(
            "normal.bf16", collective=collective, ranks=3, channels=1, count=150_001, buffsize=buffsize, **QUICK
        )


@pytest.mark.parametrize("first_step", [1, 7, 2**32 - 4, 2**32 - 3, 2**40 + 5])
def test_steps_start_high(ranks: Ranks, first_step: int) -> None:
    for collective in ("all_reduce", "broadcast"):
        ranks.identical("normal.bf16", collective=collective, first_step=first_step, ranks=3, buffsize=65536, **QUICK)


def test_collectives_in_turn(ranks: Ranks) -> None:
    """Steps are rounded up to chunks between collectives, on both ends alike."""
    turns = "broadcast,all_reduce,broadcast,broadcast,all_reduce,broadcast"
    ranks.identical("normal.bf16", collective=turns, ranks=3, count=9_001, buffsize=65536, **QUICK)


@pytest.mark.parametrize("unframed", ["0", "1", "0,2", "0,1,2"])
def test_framed_and_plain_links_mix(ranks: Ranks, unframed: str) -> None:
    ratios = []
    for collective in ("all_reduce", "broadcast"):
        for dtype in TYPES:
            outcome = ranks.identical(
                f"normal.{dtype}",
                collective=collective,
                unframed=unframed,
                ranks=3,
                count=1_200_007,
                buffsize=262144,
                **QUICK,
            )
            ratios.append(outcome.json["ratio"])
    if unframed == "0,1,2":
        assert ratios == [1.0] * 6
    else:
        assert max(ratios) < 0.98


@pytest.mark.parametrize("direct", ["0", "1", "0,2", "0,1,2"])
def test_network_and_direct_links_mix(ranks: Ranks, direct: str) -> None:
    """Several GPUs a node: slots of a direct link are written and read in place, without sizes and proxies."""
    for collective in ("all_reduce", "broadcast"):
        for dtype in TYPES:
            outcome = ranks.identical(
                f"normal.{dtype}",
                collective=collective,
                direct=direct,
                ranks=3,
                count=1_200_003,
                buffsize=262144,
                **QUICK,
            )
            # Only what crosses the network counts.
            assert outcome.json["ratio"] < (0.75 if dtype == "bf16" else 0.95) or outcome.json["wire_bytes"] == 0


@pytest.mark.parametrize("threads", [64, 96, 128, 288, 544, 640])
def test_block_sizes(ranks: Ranks, threads: int) -> None:
    for collective in ("all_reduce", "broadcast"):
        ranks.identical("normal.bf16", collective=collective, ranks=3, count=50_001, buffsize=131072, threads=threads)


@pytest.mark.parametrize("seed", range(1, 9))
def test_any_order_of_threads(ranks: Ranks, seed: int) -> None:
    for collective in ("all_reduce", "broadcast"):
        dtype = TYPES[seed % 3]
        ranks.identical(
            f"normal.{dtype}",
            collective=collective,
            seed=seed,
            ranks=3,
            count=40_001,
            buffsize=131072,
            threads=(64, 160, 288)[seed % 3],
            unframed=seed % 3,
        )


def test_incompressible_values_cost_little(ranks: Ranks) -> None:
    for dtype in TYPES:
        for collective in ("all_reduce", "broadcast"):
            outcome = ranks.identical(
                f"random.{dtype}", collective=collective, ranks=3, count=1_000_001, channels=1, buffsize=524288
            )
            assert outcome.json["ratio"] < 1.005
            # After the first failures most slices are not tried.
            assert outcome.json["send_slices_raw"] > outcome.json["send_slices"] // 2


def test_zeros_collapse(ranks: Ranks) -> None:
    assert ranks.identical("zeros.bf16", ranks=3, count=300_000).json["ratio"] < 0.52


def test_types_that_are_not_encoded_travel_raw(ranks: Ranks) -> None:
    outcome = ranks.identical("normal.bf16", encode=1 << 3, **QUICK)
    assert outcome.json["send_slices_raw"] == outcome.json["send_slices"] > 0
    assert 1.0 < outcome.json["ratio"] < 1.01


@pytest.mark.parametrize("collective", ["all_reduce", "broadcast"])
@pytest.mark.parametrize("dtype", TYPES)
def test_under_sanitizers(ranks_san: Ranks, dtype: str, collective: str) -> None:
    for options in ({"misalign": 1}, {"in_place": True, "unframed": 1}, {"seed": 5, "misalign": 3}):
        for payload in ("normal", "random"):
            ranks_san.identical(
                f"{payload}.{dtype}",
                collective=collective,
                ranks=3,
                count=20_011,
                channels=2,
                buffsize=131072,
                **QUICK,
                **options,
            )
