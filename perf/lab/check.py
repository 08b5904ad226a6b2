# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""What this machine has of the things a lab wants."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import asdict, dataclass

from . import mps, net
from .errors import LabError
from .gpu import first_gpu


@dataclass(frozen=True)
class Finding:
    """One thing a lab wants. ``without``: what it means when it is lacking."""

    name: str
    present: bool
    detail: str
    without: str

    def as_dict(self) -> dict[str, object]:
        """The finding as plain data."""
        return asdict(self)


def _network() -> tuple[bool, bool, str]:
    """Whether namespaces with a veth pair, and a token bucket on it, can be made; and what stood in the way."""
    try:
        net.Network(2, None).close()
    except OSError as err:
        return False, False, str(err) or repr(err)
    try:
        net.Network(2, 10**10).close()
    except OSError as err:
        return True, False, str(err) or repr(err)
    return True, True, ""


def findings() -> list[Finding]:
    """Look at everything once. Starts no daemon and leaves nothing behind."""
    unshaped = "runs go over unshaped loopback"
    try:
        pyroute2 = net.load_pyroute2()
        route = (True, f"version {getattr(pyroute2, '__version__', 'unknown')}")
    except LabError as err:
        route = (False, str(err))
    namespaces, bucket, why = _network() if route[0] else (False, False, "needs pyroute2")
    gpu = first_gpu()
    torch = importlib.util.find_spec("torch") is not None
    return [
        Finding("root", os.geteuid() == 0, f"uid {os.geteuid()}", "namespaces need CAP_SYS_ADMIN and CAP_NET_ADMIN"),
        Finding("pyroute2", *route, unshaped),
        Finding("namespaces", namespaces, "network namespaces, veth" if namespaces else why, unshaped),
        Finding("token bucket", bucket, "tbf" if bucket else why, unshaped),
        Finding(
            "gpu",
            gpu is not None,
            f"{gpu.name}, driver {gpu.driver}" if gpu else "no answer from nvidia-smi",
            "NCCL cannot run",
        ),
        Finding(
            "mps",
            mps.available(),
            "nvidia-cuda-mps-control" if mps.available() else "nvidia-cuda-mps-control is not installed",
            "ranks take turns on the GPU: right but slow",
        ),
        Finding("torch", torch, "importable" if torch else "not importable", "no column for PyTorch's own NCCL"),
    ]
