# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""The links' rates, measured; and that nothing of them stays."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from lab_helpers import Runner, namespaces_in_use
from perf.lab import Lab, net

TCP_RATE = str(Path(__file__).with_name("tcp_rate.py"))
RATE = 200e6
PAYLOAD_SHARE = 8948 / 9014  # of a full frame's bytes: no Ethernet, IP and TCP headers (with timestamps)

pytestmark = pytest.mark.usefixtures("namespaces", "nothing_left")


def measure(nodes: int, pattern: str) -> dict[int, float]:
    with Lab(nodes, "200mbit", strict=True) as lab:
        inodes = set(lab.namespaces())
        assert inodes <= namespaces_in_use()
        result = lab.run([sys.executable, TCP_RATE, pattern], timeout=60, keep=True)
    assert result.rc == 0, result
    assert not inodes & namespaces_in_use()
    received = [json.loads(line) for lines in result.output for line in lines]
    return {r["rank"]: r["bits_per_second"] for r in received}


def assert_rate(measured: float) -> None:
    assert 0.93 * RATE * PAYLOAD_SHARE < measured < 1.03 * RATE * PAYLOAD_SHARE


def test_two_nodes_have_the_rate_in_both_directions_at_once() -> None:
    rates = measure(2, "ring")
    assert sorted(rates) == [0, 1]
    for rate in rates.values():
        assert_rate(rate)


def test_three_nodes_have_the_rate_each_in_a_ring() -> None:
    rates = measure(3, "ring")
    assert sorted(rates) == [0, 1, 2]
    for rate in rates.values():
        assert_rate(rate)


def test_the_link_towards_a_node_is_shaped_too() -> None:
    rates = measure(3, "incast")
    assert sorted(rates) == [0]
    assert_rate(rates[0])


def test_without_a_rate_a_link_is_not_held() -> None:
    network = net.Network(2, None)
    try:
        with net.entered(network.fd(0)), net.load_pyroute2().IPRoute() as route:
            index = route.link_lookup(ifname=net.IFNAME)[0]
            kinds = [q.get_attr("TCA_KIND") for q in route.get_qdiscs(index)]
            assert "tbf" not in kinds
            assert route.get_links(index)[0].get_attr("IFLA_MTU") == net.MTU
    finally:
        network.close()


def test_the_command_line_reports_a_shaped_run(run_lab: Runner, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    logs = tmp_path / "logs"
    done = run_lab(
        *(
            "run",
            "--nodes",
            "2",
            "--rate",
            "200mbit",
            "--json",
            str(report),
            "--name-logs",
            str(logs),
            "--env",
            "X=y=z",
        ),
        *("--", "sh", "-c", 'echo "$RANK/$WORLD_SIZE $MASTER_ADDR $NCCL_HOSTID $X"; cat "$NCCL_TOPO_FILE"'),
    )
    assert done.returncode == 0, done.stderr
    written = json.loads(report.read_text())
    assert written["shaped"] and written["rate_bits"] == 2 * 10**8 and written["rc"] == 0
    rank0, rank1 = ((logs / f"rank{r}.log").read_text().splitlines() for r in (0, 1))
    assert rank0[0].startswith("0/2 10.77.0.1 uzip-lab-") and rank0[0].endswith("-node0 y=z")
    assert rank1[0].startswith("1/2 10.77.0.1 uzip-lab-") and rank1[0].endswith("-node1 y=z")
    assert 'name="uzlab0" speed="200"' in rank0[1]
    assert done.stdout.splitlines()[0] in (rank0[0], "[1] " + rank1[0])
    assert "[1] " + rank1[0] in done.stdout.splitlines()


def test_what_the_kernel_refuses_is_an_os_error_that_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(net, "IFNAME", "x" * 40)
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="netlink"):
        net.Network(2, None)
    assert set(os.listdir("/proc/self/fd")) <= before
