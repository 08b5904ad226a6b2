# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Tells NCCL the true speed of a lab link.

NCCL takes a socket device's speed from /sys/class/net/<interface>/speed, a constant 10000 for a veth and not even
visible inside a namespace. In a topology file, a net element found by its name keeps the attributes it has
there; NCCL only adds those that are missing and sets `dev` and `keep` itself. GPU, PCI and CPU are detected as always:
the CPU element needs no more than the NUMA node, which has to be the GPU's, so that both hang on the same one.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from .gpu import Gpu


def numa_node(gpu: Gpu | None, sys_root: Path = Path("/sys")) -> int:
    """NUMA node that NCCL will put ``gpu`` on: what sysfs says, else -1."""
    if gpu is None:
        return -1
    try:
        return int((sys_root / "bus/pci/devices" / gpu.bus_id / "numa_node").read_text())
    except (OSError, ValueError):
        return -1


def write_topology(path: Path, ifname: str, rate: int, gpu: Gpu | None) -> None:
    """Write an NCCL topology file that gives ``ifname`` the speed ``rate`` (bit/s) beside ``gpu``."""
    system = ElementTree.Element("system", version="1")
    cpu = ElementTree.SubElement(system, "cpu", numaid=str(numa_node(gpu)))
    nic = ElementTree.SubElement(cpu, "nic")
    ElementTree.SubElement(nic, "net", name=ifname, speed=str(rate // 10**6))
    # NCCL's parser takes the blank in " />" for the start of an attribute without a name.
    path.write_text(ElementTree.tostring(system, encoding="unicode").replace(" />", "/>") + "\n")


def dumped_speed(path: Path, ifname: str) -> int | None:
    """Mbit/s that NCCL settled on for ``ifname``, from a file that NCCL_TOPO_DUMP_FILE named; None if unknown."""
    try:
        text = path.read_text()
    except OSError:
        return None
    for net in re.findall(r"<net\b[^>]*>", text):
        attributes = dict(re.findall(r'(\w+)="([^"]*)"', net))
        if attributes.get("name") == ifname and "speed" in attributes:
            return int(attributes["speed"])
    return None
