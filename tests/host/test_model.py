# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""The cost model: gains where the link is the bottleneck, and nowhere else."""

from __future__ import annotations

import re
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_shim import SOURCES, Host, Ring

BF16, F16, F32 = 1, 2, 3


def ring(gbps: float, **values: float) -> Ring:
    """Two nodes of one GPU with two channels, over a network of `gbps` gigabytes per second a channel."""
    base = {
        "ranks": 2,
        "nodes": 2,
        "graph_channels": 2,
        "channels": 4,
        "threads": 512,
        "bw_intra": gbps,
        "bw_inter": gbps,
    }
    return Ring(**(base | values))


def test_ratios(host: Host) -> None:
    assert [host.ratio(t) for t in (BF16, F16, F32)] == pytest.approx([0.68, 0.86, 0.84])
    assert host.ratio(0) == host.ratio(99) == 1.0


def test_every_constant_is_in_the_fingerprint(host: Host) -> None:
    header = (SOURCES / "host" / "uzip_model.h").read_text()
    defined = [float(value) for value in re.findall(r"^#define UZIP_\w+ ([\d.]+)$", header, re.MULTILINE)]
    assert len(defined) == 2
    expected = 2166136261
    for byte in struct.pack("5d", *defined, *(host.ratio(kind) for kind in (BF16, F16, F32))):
        expected = (expected ^ byte) * 16777619 % 2**32
    assert host.lib.shimModelWord() == expected


def test_copies_are_judged_by_the_worst_type(host: Host) -> None:
    assert host.lib.shimCopyRatio() == max(host.ratio(t) for t in (BF16, F16, F32))


def test_slow_link_gains_what_the_ratio_says(host: Host) -> None:
    assert host.gain(ring(0.6), 0.68) == pytest.approx(1 / 0.68)


def test_codec_is_the_limit_of_fast_links(host: Host) -> None:
    assert host.gain(ring(20), 0.68) < 1
    assert host.gain(ring(3, channels=1), 0.68) < host.gain(ring(3, channels=4), 0.68)
    assert host.gain(ring(3, threads=256), 0.68) < host.gain(ring(3, threads=512), 0.68)


def test_links_inside_a_node_limit_too(host: Host) -> None:
    nodes_of_four = {"ranks": 8, "channels": 64}
    assert host.gain(ring(1, bw_intra=1.2, **nodes_of_four), 0.68) == pytest.approx(1.2)
    assert host.gain(ring(1, bw_intra=0.5, **nodes_of_four), 0.68) == pytest.approx(1.0)
    assert host.gain(ring(1, **nodes_of_four), 0.68) == pytest.approx(1 / 0.68)
    # With one GPU a node there is no such link.
    assert host.gain(ring(1, bw_intra=1.2, channels=64), 0.68) == pytest.approx(1 / 0.68)


def test_unknown_bandwidth_is_no_gain(host: Host) -> None:
    assert host.gain(ring(0), 0.68) == 1.0


@given(gbps=st.floats(0.01, 100), channels=st.integers(1, 64), ratio=st.floats(0.5, 1))
def test_gain_is_bounded(host: Host, gbps: float, channels: int, ratio: float) -> None:
    assert 0 < host.gain(ring(gbps, channels=channels), ratio) <= 1 / ratio + 1e-6


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0.1, 2), st.integers(1, 100))
def test_time_grows_with_size(host: Host, latency: float, transfer: float, gain: float, steps: int) -> None:
    small = host.time(latency + transfer, transfer, gain, steps)
    large = host.time(latency + 2 * transfer, 2 * transfer, gain, steps)
    assert large >= small - 1e-6 * abs(small)


def test_small_operations_stay_simple(host: Host) -> None:
    """Two ranks over 10 Gbit/s: 64 KiB is not worth the latency, 4 MiB is."""
    gain = host.gain(ring(0.625), host.ratio(BF16))
    bandwidth = 1.25e3  # bytes per microsecond
    for size, better in (
        (8, False),
        (16 << 10, False),
        (4 << 20, True),
        (128 << 20, True),
    ):
        transfer = size / bandwidth
        simple = 30 + transfer
        assert (host.time(simple, transfer, gain, 2) < simple) is better, size


def test_more_ops_and_steps_cost_more(host: Host) -> None:
    base = host.time(100, 50, 1.4, 2)
    assert host.time(100, 50, 1.4, 14) > base
    assert host.time(100, 50, 1.4, 2, ops=4) > base
