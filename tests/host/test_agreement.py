# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Agreement of the ranks: one policy or none, and messages that name ranks and settings."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_shim import Host, Policy

AGREED, ABSENT, DIFFER = 0, 1, 2


def word(host: Host, policy: Policy) -> int:
    return int(host.lib.shimWord(ctypes.byref(policy)))


def difference(host: Host, mine: Policy, other: Policy) -> str:
    return host.text("shimDifference", ctypes.byref(mine), 0, ctypes.byref(other), 3)


def make(host: Host, **knobs: str) -> Policy:
    ok, policy, _, error = host.parse(**knobs)
    assert ok, error
    return policy


def test_same_knobs_same_word(host: Host) -> None:
    assert word(host, make(host)) == word(host, make(host, enable="1", min_bytes="262144", proto="^LL"))


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("NCCL_UZIP_ENABLE differs: 1 on rank 0, 0 on rank 3", {"enable": "0"}),
        ("NCCL_UZIP_EXACT differs: 0 on rank 0, 1 on rank 3", {"exact": "1"}),
        (
            "NCCL_UZIP_MIN_BYTES differs: 262144 on rank 0, 5 on rank 3",
            {"min_bytes": "5"},
        ),
        (
            "NCCL_PROTO (use of UZIP) differs: Broadcast:auto",
            {"proto": "AllReduce:UZIP"},
        ),
    ],
)
def test_difference_names_setting_and_values(host: Host, name: str, other: dict[str, str]) -> None:
    a, b = make(host), make(host, **other)
    assert word(host, a) != word(host, b)
    assert difference(host, a, b).startswith(name)


def change(field: str) -> Callable[[Policy], None]:
    return lambda policy: setattr(policy, field, getattr(policy, field) + 1)


@pytest.mark.parametrize("field", [name for name, _ in Policy._fields_ if name != "modes"])
def test_every_field_counts(host: Host, field: str) -> None:
    a, b = make(host), make(host)
    change(field)(b)
    assert word(host, a) != word(host, b)
    text = difference(host, a, b)
    assert "differs: " in text and " on rank 0, " in text and text.endswith(" on rank 3")


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("threads", "NCCL_NTHREADS"),
        ("model", "the cost model of the library"),
        ("unaligned", "alignment by NCCL_LL_BUFFSIZE and NCCL_LL128_BUFFSIZE"),
    ],
)
def test_what_is_not_a_knob_of_ours_has_a_name(host: Host, field: str, name: str) -> None:
    a, b = make(host), make(host)
    setattr(b, field, 7)
    assert difference(host, a, b) == f"{name} differs: 0 on rank 0, 7 on rank 3"


@pytest.mark.parametrize(
    ("nthreads", "threads"),
    [(-2, 512), (0, 512), (64, 64), (256, 256), (512, 512), (32, 64), (1024, 512), (100, 512), (2**32 + 96, 96)],
)
def test_threads_are_clamped_as_nccl_does(host: Host, nthreads: int, threads: int) -> None:
    assert host.lib.shimThreads(ctypes.c_int64(nthreads)) == threads


def test_no_difference(host: Host) -> None:
    assert difference(host, make(host), make(host)) == ""


@given(st.binary(min_size=ctypes.sizeof(Policy), max_size=ctypes.sizeof(Policy)))
def test_word_is_never_that_of_a_stock_rank(host: Host, raw: bytes) -> None:
    assert word(host, Policy.from_buffer_copy(raw)) != 0


def test_agreed(host: Host) -> None:
    assert host.agree([7]) == (AGREED, "")
    assert host.agree([7] * 1000) == (AGREED, "")


def test_absent_ranks_are_named(host: Host) -> None:
    assert host.agree([0, 7]) == (ABSENT, "rank 0 runs an NCCL without UZIP")
    assert host.agree([7, 0, 0, 0, 7, 0]) == (
        ABSENT,
        "ranks 1-3,5 run an NCCL without UZIP",
    )
    assert host.agree([7, 0, 8]) == (ABSENT, "rank 1 runs an NCCL without UZIP")
    assert host.agree([0, 0])[0] == ABSENT


def test_differing_ranks_are_named(host: Host) -> None:
    assert host.agree([7, 8]) == (DIFFER, "rank 1 has another UZIP policy than rank 0")
    assert host.agree([7, 8, 9, 7]) == (
        DIFFER,
        "ranks 1,2 have another UZIP policy than rank 0",
    )


@given(st.lists(st.integers(0, 3), min_size=1, max_size=50))
def test_any_zero_or_mismatch_disables(host: Host, words: list[int]) -> None:
    expected = ABSENT if 0 in words else AGREED if len(set(words)) == 1 else DIFFER
    result, message = host.agree(words)
    assert result == expected
    assert (message == "") == (expected == AGREED)


def test_long_lists_end(host: Host) -> None:
    ranks = list(range(0, 100, 2))
    text = host.text("shimRanks", (ctypes.c_int * len(ranks))(*ranks), len(ranks))
    assert text == "ranks 0,2,4,6,8,10,12,14 and 42 more"


def test_error_texts_are_distinct(host: Host) -> None:
    texts = [host.lib.shimErrorText(ctypes.c_uint32(code)).decode() for code in range(7)]
    assert len(set(texts)) == 7 and all(texts)
    assert host.lib.shimErrorText(ctypes.c_uint32(99)).decode() == "unknown reason"
