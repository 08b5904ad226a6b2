# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Slots damaged on their way: refused with the right error, zeros for values, no hang, and ranks downstream know."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time

import pytest

from emulated_ranks import (
    CAPACITY,
    DIFFERS,
    FAILED,
    HANG,
    HEADER,
    LENGTH,
    MAGIC,
    OK,
    POISON,
    SLOT_ERRORS,
    TILE,
    Ranks,
    inputs,
)

# Broadcast from rank 0 through rank 1 to rank 2: a slice is 8192 bytes, 4 tiles of bf16.
BROADCAST: dict[str, str | int] = {"collective": "broadcast", "ranks": 3, "channels": 1, "buffsize": 65536}
BROADCAST |= {"count": 40_000, "threads": 160}
# Slices of 16 KiB, 8 tiles.
ALL_REDUCE: dict[str, str | int] = {"collective": "all_reduce", "ranks": 3, "channels": 1, "buffsize": 65536}
ALL_REDUCE |= {"count": 90_000, "threads": 160}
SLICE = 8192
TILE_BYTES = 2048
# Sections of such a slice: header, one group offset, four table entries, padding, fixed parts.
OFF_GROUPS, OFF_TABLE, OFF_FIXED = 32, 36, 48

HEADER_FAULTS = [
    (0, 0x01, MAGIC),
    (2, 0x02, MAGIC),  # another format version
    (3, 0x80, MAGIC),
    (4, 0x02, HEADER),  # unknown codec
    (4, 0x01, HEADER),  # raw, but the rest says levels
    (5, 0x03, HEADER),  # another type: the sizes do not fit
    (5, 0x80, HEADER),
    (6, 0x01, POISON),
    (6, 0x10, HEADER),
    (7, 0x01, HEADER),
    (8, 0x02, LENGTH),
    (11, 0x80, LENGTH),
    (12, 0x04, HEADER),  # wireBytes that contradict varBytes
    (14, 0x10, CAPACITY),
    (15, 0x80, CAPACITY),
    (16, 0x04, HEADER),
    (19, 0x80, HEADER),
    (20, 0x01, HEADER),
    (23, 0x80, HEADER),
]


def damage(rank: int, message: int, byte: int, xor: int) -> str:
    """One byte of a message is changed on its way."""
    return f"rank={rank},message={message},byte={byte},xor={xor}"


@pytest.mark.parametrize("byte, xor, code", HEADER_FAULTS)
def test_bad_header_in_a_broadcast(ranks: Ranks, byte: int, xor: int, code: int) -> None:
    outcome = ranks("normal.bf16", **BROADCAST, fault=damage(0, 2, byte, xor), outputs=True, time_limit=60)
    assert outcome.code == SLOT_ERRORS, outcome.stderr
    assert outcome.errors.keys() == {1, 2}
    first, second = outcome.errors[1], outcome.errors[2]
    assert (first["code"], first["peer"], first["channel"], first["step"]) == (code, 0, 0, 2)
    assert (second["code"], second["peer"], second["step"]) == (POISON, 1, 2)
    good = inputs(ranks.payloads / "normal.bf16", "bf16", 3, 40_000)[0]
    assert outcome.outputs[0] == good
    assert outcome.outputs[1] == outcome.outputs[2] == good[: 2 * SLICE] + bytes(SLICE) + good[3 * SLICE :]


@pytest.mark.parametrize("byte, xor, code", HEADER_FAULTS)
def test_bad_header_in_an_all_reduce(ranks: Ranks, byte: int, xor: int, code: int) -> None:
    """What rank 1 made of the bad slice goes round the ring as poison and comes back to every rank."""
    outcome = ranks("normal.bf16", **ALL_REDUCE, fault=damage(0, 0, byte, xor), time_limit=60)
    assert outcome.code == SLOT_ERRORS, outcome.stderr
    assert outcome.errors.keys() == {0, 1, 2}
    assert (outcome.errors[1]["code"], outcome.errors[1]["peer"], outcome.errors[1]["step"]) == (code, 0, 0)
    assert outcome.errors[2]["code"] == outcome.errors[0]["code"] == POISON


@pytest.mark.parametrize("keep", [0, 8, 31])
def test_message_cut_in_its_header(ranks: Ranks, keep: int) -> None:
    outcome = ranks("normal.bf16", **ALL_REDUCE, fault=f"rank=1,message=3,truncate={keep}", time_limit=60)
    assert outcome.code == SLOT_ERRORS, outcome.stderr
    assert outcome.errors[2]["code"] in (MAGIC, HEADER, LENGTH, TILE) and outcome.errors[2]["peer"] == 1


@pytest.mark.parametrize(
    "byte, xor",
    [
        (OFF_TABLE + 2 * 1 + 1, 0x40),  # kind of tile 1
        (OFF_TABLE + 2 * 1 + 1, 0x20),
        (OFF_TABLE + 2 * 1 + 1, 0x08),  # more words than there are
        (OFF_TABLE + 2 * 3, 0x01),  # one word more or less in the last tile
    ],
)
def test_bad_tile_in_a_broadcast(ranks: Ranks, byte: int, xor: int) -> None:
    """Only tiles that are refused, or lie elsewhere because of it, are lost; ranks behind find out by themselves."""
    outcome = ranks("normal.bf16", **BROADCAST, fault=damage(0, 1, byte, xor), outputs=True, time_limit=60)
    assert outcome.code == SLOT_ERRORS, outcome.stderr
    assert outcome.errors.keys() == {1, 2}
    assert outcome.errors[1]["code"] == TILE and outcome.errors[1]["peer"] == 0
    good = inputs(ranks.payloads / "normal.bf16", "bf16", 3, 40_000)[0]
    tile = (byte - OFF_TABLE) // 2
    for got in outcome.outputs[1:]:
        assert got[: SLICE + tile * TILE_BYTES] == good[: SLICE + tile * TILE_BYTES]
        assert got[SLICE + tile * TILE_BYTES : SLICE + (tile + 1) * TILE_BYTES] == bytes(TILE_BYTES)
        assert got[2 * SLICE :] == good[2 * SLICE :]


@pytest.mark.parametrize("byte", range(OFF_GROUPS, OFF_GROUPS + 4))
def test_bad_group_offset(ranks: Ranks, byte: int) -> None:
    outcome = ranks("normal.bf16", **BROADCAST, fault=damage(0, 1, byte, 0x81), outputs=True, time_limit=60)
    assert outcome.code == SLOT_ERRORS, outcome.stderr
    assert outcome.errors[1]["code"] == TILE
    good = inputs(ranks.payloads / "normal.bf16", "bf16", 3, 40_000)[0]
    assert outcome.outputs[1][:SLICE] == good[:SLICE] and outcome.outputs[1][2 * SLICE :] == good[2 * SLICE :]


def test_bad_tile_poisons_a_reduction(ranks: Ranks) -> None:
    # 8 tiles a slice of 16 KiB; the table begins behind one group offset.
    outcome = ranks("normal.bf16", **ALL_REDUCE, fault=damage(0, 0, OFF_TABLE + 1, 0x40), time_limit=60)
    assert outcome.code == SLOT_ERRORS, outcome.stderr
    assert outcome.errors[1]["code"] == TILE
    assert outcome.errors[2]["code"] == POISON and outcome.errors[2]["peer"] == 1


def test_values_changed_on_the_way_are_a_difference(ranks: Ranks) -> None:
    """Mantissas carry no check; the comparison sees them, which also shows that it can fail."""
    outcome = ranks("normal.bf16", **BROADCAST, fault=damage(0, 1, OFF_FIXED + 100, 0x10), compare=True)
    assert outcome.code == DIFFERS
    assert outcome.json["identical"] is False and outcome.json["different_bytes"] == 2  # ranks 1 and 2
    assert "OUTPUTS DIFFER" in outcome.stderr


def test_error_of_a_neighbour_on_a_plain_link_gives_zeros(ranks: Ranks) -> None:
    """Rank 1 sends plain values: it cannot say that they are bad, but it reports, and they are zeros."""
    outcome = ranks("normal.bf16", **BROADCAST, unframed=1, fault=damage(0, 0, 0, 1), outputs=True, time_limit=60)
    assert outcome.code == SLOT_ERRORS
    assert outcome.errors.keys() == {1} and outcome.errors[1]["code"] == MAGIC
    good = inputs(ranks.payloads / "normal.bf16", "bf16", 3, 40_000)[0]
    assert outcome.outputs[2] == bytes(SLICE) + good[SLICE:]


def test_only_the_first_error_is_kept(ranks: Ranks) -> None:
    outcome = ranks("normal.bf16", **BROADCAST, fault=[damage(0, 1, 6, 1), damage(0, 2, 0, 1)], time_limit=60)
    assert outcome.errors[1]["code"] == POISON and outcome.errors[1]["step"] == 1


@pytest.mark.parametrize("collective", ["all_reduce", "broadcast"])
@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
def test_random_damage_under_sanitizers(ranks_san: Ranks, dtype: str, collective: str) -> None:
    """Any byte may be wrong: no access out of bounds, no hang, nothing but an error or other values."""
    rng = random.Random(f"{dtype} {collective}")
    for _ in range(8):
        faults = []
        for _ in range(6):
            byte = rng.randrange(rng.choice([24, 120, 6000, 16000]))
            xor = rng.choice([1, 0x80, 0xFF, rng.randrange(1, 256)])
            faults.append(damage(rng.randrange(3), rng.randrange(6), byte, xor))
        outcome = ranks_san(
            f"normal.{dtype}",
            collective=collective,
            ranks=3,
            channels=1,
            buffsize=131072,
            count=40_000,
            threads=96,
            fault=faults,
            time_limit=120,
        )
        assert outcome.code in (OK, SLOT_ERRORS), (faults, outcome.stderr)


@pytest.mark.parametrize("collective", ["all_reduce", "broadcast"])
def test_abort_ends_the_kernels(ranks_san: Ranks, collective: str) -> None:
    outcome = ranks_san(
        "normal.bf16",
        collective=collective,
        ranks=3,
        buffsize=65536,
        count=400_000,
        threads=160,
        abort_after=100_000,
        time_limit=120,
    )
    assert outcome.code == OK, outcome.stderr
    assert outcome.json["aborted"] is True and outcome.json["errors"] == []


def children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as f:
        return [int(p) for p in f.read().split()]


def start_long_run(ranks: Ranks, **options: int) -> tuple[subprocess.Popen[str], list[int]]:
    process = subprocess.Popen(
        ranks.command("normal.bf16", ranks=3, count=30_000_000, **options), stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 20
    while len(children(process.pid)) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    found = children(process.pid)
    assert len(found) == 3
    time.sleep(0.5)
    return process, found


def test_hang_ends_with_the_state_of_every_thread(ranks: Ranks) -> None:
    process, found = start_long_run(ranks, timeout=2)
    os.kill(found[1], signal.SIGSTOP)
    _, said = process.communicate(timeout=60)
    assert process.returncode == HANG
    assert "nothing has moved before the time-out" in said
    assert "polls at nccl_shim.h:" in said and "waits at barrier 15 of 544 threads at prims_uzip.h:" in said
    assert "receive from" in said and ", head " in said


def test_death_of_a_rank_ends_the_run(ranks: Ranks) -> None:
    process, found = start_long_run(ranks)
    os.kill(found[0], signal.SIGKILL)
    _, said = process.communicate(timeout=60)
    assert process.returncode == FAILED
    assert "a rank died from signal 9" in said
