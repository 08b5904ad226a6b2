# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Topology file, GPU query, MPS daemon and the check, with stand-ins for NVIDIA's programs."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from lab_helpers import Runner
from perf.lab import gpu
from perf.lab.gpu import Gpu
from perf.lab.mps import Mps
from perf.lab.topo import dumped_speed, numa_node, write_topology

H200 = Gpu("NVIDIA H200", "0000:8d:00.0", "580.95.05", 143771)

SMI = """#!/bin/sh
echo "NVIDIA H200, 00000000:8D:00.0, 580.95.05, 143771"
"""

# Answers like the real one: -d starts a daemon that leaves its number in the pipe folder; commands come on stdin.
MPS_CONTROL = """#!/bin/sh
cd "$CUDA_MPS_PIPE_DIRECTORY" || exit 1
if [ "$1" = -d ]; then
  setsid bash -c 'exec -a nvidia-cuda-mps-control sleep 300' >/dev/null 2>&1 &
  echo $! > nvidia-cuda-mps-control.pid
  exit 0
fi
read -r command
case "$command" in
  quit*) [ -e stubborn ] || kill "$(cat nvidia-cuda-mps-control.pid)" ;;
  get_server_list) ;;
  *) exit 1 ;;
esac
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in (
        ("nvidia-smi", SMI),
        ("nvidia-cuda-mps-control", MPS_CONTROL),
    ):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


def test_the_first_gpu_is_read_and_its_bus_id_is_sysfs_style(programs: Path) -> None:
    assert gpu.first_gpu() == H200


def test_no_gpu_when_nvidia_smi_fails(programs: Path) -> None:
    (programs / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
    assert gpu.first_gpu() is None


def test_the_topology_gives_the_speed_on_the_gpus_numa_node(tmp_path: Path) -> None:
    device = tmp_path / "bus/pci/devices/0000:8d:00.0"
    device.mkdir(parents=True)
    (device / "numa_node").write_text("1\n")
    assert numa_node(H200, tmp_path) == 1
    assert numa_node(None, tmp_path) == -1
    assert numa_node(Gpu("", "0000:00:00.0", "", 0), tmp_path) == -1
    path = tmp_path / "topology.xml"
    write_topology(path, "uzlab0", 25 * 10**9, None)
    assert path.read_text() == (
        '<system version="1"><cpu numaid="-1"><nic><net name="uzlab0" speed="25000"/></nic></cpu></system>\n'
    )


def test_the_speed_is_found_in_a_dump(tmp_path: Path) -> None:
    dump = tmp_path / "dump.xml"
    dump.write_text('<nic>\n <net name="eth0" speed="1"/>\n <net name="uzlab0" dev="0" speed="25000"/></nic>')
    assert dumped_speed(dump, "uzlab0") == 25000
    assert dumped_speed(dump, "uzlab1") is None
    assert dumped_speed(tmp_path / "none.xml", "uzlab0") is None


@pytest.mark.parametrize("stubborn", [False, True])
def test_the_mps_daemon_is_started_and_ended(programs: Path, tmp_path: Path, stubborn: bool) -> None:
    daemon = Mps(tmp_path)
    assert daemon.start(dict(os.environ)) is None
    pid = int((tmp_path / "mps/nvidia-cuda-mps-control.pid").read_text())
    end = time.monotonic() + 5
    while b"mps-control" not in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0] and time.monotonic() < end:
        time.sleep(0.02)
    if stubborn:
        (tmp_path / "mps/stubborn").touch()
    daemon.stop()
    end = time.monotonic() + 5
    while Path(f"/proc/{pid}").exists() and time.monotonic() < end:
        time.sleep(0.02)
    assert not Path(f"/proc/{pid}").exists()


def test_a_daemon_that_does_not_start_is_explained(programs: Path, tmp_path: Path) -> None:
    (programs / "nvidia-cuda-mps-control").write_text("#!/bin/sh\nexit 3\n")
    assert "ended with 3" in str(Mps(tmp_path).start(dict(os.environ)))


@pytest.mark.usefixtures("nothing_left", "namespaces")
def test_where_clients_cannot_use_mps_the_lab_goes_on_without(programs: Path, run_lab: Runner) -> None:
    done = run_lab("run", "--nodes", "2", "--rate", "1gbit", "--", "sh", "-c", 'echo "[$CUDA_MPS_PIPE_DIRECTORY]"')
    assert done.returncode == 0
    assert "without CUDA MPS (a first client failed" in done.stderr
    assert "[]" in done.stdout.splitlines()


def test_check_says_what_is_there_and_what_lacks(programs: Path, run_lab: Runner) -> None:
    found = {f["name"]: f for f in json.loads(run_lab("check", "--json").stdout)}
    assert set(found) == {"root", "pyroute2", "namespaces", "token bucket", "gpu", "mps", "torch"}
    assert found["gpu"]["present"] and "NVIDIA H200" in found["gpu"]["detail"]
    assert found["mps"]["present"]
    (programs / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
    lines = run_lab("check").stdout.splitlines()
    assert [line for line in lines if line.startswith("LACKS gpu") and "NCCL cannot run" in line]
