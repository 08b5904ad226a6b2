# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Knobs: what each value means, and that each wrong one is refused by name."""

from __future__ import annotations

import ctypes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_shim import Host

FUNCTIONS = ["Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce"]
OFF, AUTO, FORCE = 0, 1, 2


def test_defaults(host: Host) -> None:
    ok, policy, upstream, error = host.parse()
    assert (ok, upstream, error) == (True, "", "")
    assert (policy.enable, policy.exact, policy.min_bytes) == (1, 0, 256 << 10)
    assert list(policy.modes) == [AUTO] * 5 + [0] * 3


def test_empty_is_unset(host: Host) -> None:
    ok, policy, upstream, _ = host.parse("", "", "", "")
    assert ok and upstream == ""
    assert (policy.enable, policy.exact, policy.min_bytes, policy.modes[4]) == (
        1,
        0,
        256 << 10,
        AUTO,
    )


def test_values(host: Host) -> None:
    ok, policy, _, _ = host.parse(enable="0", min_bytes="0", exact="1")
    assert ok
    assert (policy.enable, policy.exact, policy.min_bytes) == (0, 1, 0)
    assert host.parse(min_bytes=str(2**63 - 1))[1].min_bytes == 2**63 - 1


@pytest.mark.parametrize("value", ["2", "yes", "01", " 1", "1 ", "-1", "true"])
@pytest.mark.parametrize("name", ["enable", "exact"])
def test_switch_refused(host: Host, name: str, value: str) -> None:
    ok, _, _, error = host.parse(**{name: value})
    assert not ok
    assert error == f'NCCL_UZIP_{name.upper()}="{value}" is not valid; allowed are 0 and 1'


@pytest.mark.parametrize("value", ["-1", "+1", "4M", "1e6", "0x10", " 5", "5 ", "", str(2**63), str(2**70)])
def test_bytes_refused(host: Host, value: str) -> None:
    ok, _, _, error = host.parse(min_bytes=value)
    if value == "":
        assert ok
        return
    assert not ok
    assert error.startswith(f'NCCL_UZIP_MIN_BYTES="{value}" is not valid; allowed is a number of bytes from 0 to ')


# NCCL_PROTO, what NCCL's parser is to see, the modes.
PROTO = [
    ("UZIP", "Simple", FORCE),
    ("uzip", "Simple", FORCE),
    ("^UZIP", "", OFF),
    ("^uZiP", "", OFF),
    ("Simple", "Simple", OFF),
    ("LL,LL128", "LL,LL128", OFF),
    ("Simple,UZIP", "Simple", AUTO),
    ("UZIP,simple,LL", "simple,LL", AUTO),
    ("LL,UZIP", "LL,Simple", FORCE),
    ("UZIP,UZIP", "Simple", FORCE),
    ("^LL", "^LL", AUTO),
    ("^LL,UZIP", "^LL", OFF),
    ("^Simple", "^Simple", OFF),
    ("^Simple,LL", "^Simple,LL", OFF),
]


@pytest.mark.parametrize(("value", "upstream", "mode"), PROTO)
def test_proto(host: Host, value: str, upstream: str, mode: int) -> None:
    ok, policy, seen, error = host.parse(proto=value)
    assert ok, error
    assert seen == upstream
    assert list(policy.modes)[:5] == [mode] * 5


def test_proto_by_function(host: Host) -> None:
    ok, policy, seen, _ = host.parse(proto="LL;AllReduce:UZIP;broadcast:^UZIP;Reduce:Simple,UZIP")
    assert ok
    assert seen == "LL;AllReduce:Simple;Reduce:Simple"
    assert dict(zip(FUNCTIONS, policy.modes, strict=False)) == {
        "Broadcast": OFF,
        "Reduce": AUTO,
        "AllGather": OFF,
        "ReduceScatter": OFF,
        "AllReduce": FORCE,
    }
    ok, policy, seen, _ = host.parse(proto="AllReduce:UZIP")
    assert ok and seen == "AllReduce:Simple"
    assert list(policy.modes)[:5] == [AUTO] * 4 + [FORCE]


@pytest.mark.parametrize(
    ("value", "named", "allowed"),
    [
        ("UZIPP", '"UZIPP"', "LL, LL128, Simple and UZIP"),
        ("LL, UZIP", '" UZIP"', "LL, LL128, Simple and UZIP"),
        ("^", '"^"', "empty"),
        ("AllReduce:", '"AllReduce:"', "empty"),
        (
            "All:UZIP",
            '"All"',
            "Broadcast, Reduce, AllGather, ReduceScatter and AllReduce",
        ),
        ("UZIP;LL", "all entries but the first", "AllReduce:UZIP"),
        ("^UZIP;LL", "all entries but the first", "AllReduce:UZIP"),
    ],
)
def test_proto_refused(host: Host, value: str, named: str, allowed: str) -> None:
    ok, _, _, error = host.parse(proto=value)
    assert not ok
    assert error.startswith(f'NCCL_PROTO="{value}": ')
    assert named in error and allowed in error


protocols = st.lists(
    st.sampled_from(["LL", "LL128", "Simple", "UZIP", "ll", "SIMPLE", "uzip"]),
    min_size=1,
    max_size=5,
)


@given(tokens=protocols, exclude=st.booleans())
def test_upstream_never_sees_uzip(host: Host, tokens: list[str], exclude: bool) -> None:
    value = ("^" if exclude else "") + ",".join(tokens)
    ok, policy, seen, error = host.parse(proto=value)
    assert ok, error
    assert "uzip" not in seen.lower()
    rest = [t for t in tokens if t.lower() != "uzip"]
    kept = seen.removeprefix("^").split(",") if seen else []
    assert kept[: len(rest)] == rest
    assert (policy.modes[4] != OFF) <= (exclude or "uzip" in value.lower())


@pytest.mark.parametrize(
    ("knobs", "wanted"),
    [
        ({}, True),
        ({"enable": "0"}, False),
        ({"proto": "Simple"}, False),
        ({"proto": "^UZIP"}, False),
        ({"proto": "UZIP"}, True),
        ({"proto": "UZIP", "enable": "0"}, False),
        ({"proto": "Simple;AllReduce:UZIP"}, True),
    ],
)
def test_wanted(host: Host, knobs: dict[str, str], wanted: bool) -> None:
    policy = host.parse(**knobs)[1]
    assert bool(host.lib.shimWanted(ctypes.byref(policy))) is wanted


@pytest.mark.parametrize(
    ("proto", "apart"),
    [
        ("UZIP", ""),
        ("LL,UZIP", "LL"),
        ("Simple,UZIP", "Simple"),
        ("^UZIP", ""),
        ("^LL,UZIP", "^LL"),
        ("LL;AllReduce:UZIP", "LL"),
        ("^LL128;AllReduce:UZIP,LL;Broadcast:UZIP", "^LL128;AllReduce:LL"),
    ],
)
def test_without_agreement_nccl_sees_what_the_user_wrote(host: Host, proto: str, apart: str) -> None:
    assert host.text("shimApartProto", proto.encode()) == apart
