# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Network namespaces joined by shaped links.

The namespaces have no name: they live as long as this process or one of the ranks holds them, and the kernel removes
them together with their links and queues. Nothing is ever added to the namespace that the lab was started in.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .errors import LabError
from .rate import QUEUE_BYTES, bucket_bytes

IFNAME = "uzlab0"
MTU = 9000
MAX_NODES = 64

CARRIER_SECONDS = 10

_CLONE_NEWNET = 0x40000000
_IFF_RUNNING = 0x40
_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *args: int) -> None:
    if getattr(_libc, name)(*args) != 0:
        err = ctypes.get_errno()
        raise OSError(err, f"{name}: {os.strerror(err)}")


def setns(fd: int) -> None:
    """Move the calling thread into the network namespace ``fd``. Raises OSError."""
    _call("setns", fd, _CLONE_NEWNET)


def _own_namespace() -> int:
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


@contextlib.contextmanager
def entered(fd: int) -> Iterator[None]:
    """Run the body with the calling thread inside the network namespace ``fd``."""
    home = _own_namespace()
    try:
        setns(fd)
        try:
            yield
        finally:
            setns(home)
    finally:
        os.close(home)


def new_namespace() -> int:
    """Return a descriptor of a new network namespace; the last holder's close removes it. Raises OSError."""
    home = _own_namespace()
    try:
        _call("unshare", _CLONE_NEWNET)
        try:
            fd = _own_namespace()
        finally:
            setns(home)
    finally:
        os.close(home)
    with entered(fd):
        # One address per interface is enough, and IPv6 would start duplicate-address detection on each.
        switch = Path("/proc/sys/net/ipv6/conf/default/disable_ipv6")
        with contextlib.suppress(OSError):
            switch.write_text("1")
    return fd


def load_pyroute2() -> Any:
    """Import pyroute2 or raise LabError that says how to get it."""
    try:
        import pyroute2
    except ImportError as err:
        raise LabError(f"pyroute2 cannot be imported ({err}): pip install pyroute2, or use the .venv") from err
    return pyroute2


class Network:
    """N namespaces, one per rank, and the links between them.

    Two nodes are the ends of one veth pair; more hang on a bridge in a namespace of its own. ``rate`` (bit/s) holds
    every direction of every node's link; None leaves the links as fast as the machine makes them. Raises OSError for
    what the kernel refuses, LabError for a wrong number of nodes and without pyroute2.
    """

    def __init__(self, nodes: int, rate: int | None) -> None:
        if not 2 <= nodes <= MAX_NODES:
            raise LabError(f"{nodes} nodes: a lab has 2 to {MAX_NODES}")
        self.nodes = nodes
        self.rate = rate
        self._fds: list[int] = []
        self._hub = -1
        self._pyroute2 = load_pyroute2()
        try:
            self._build()
        except self._pyroute2.NetlinkError as err:
            self.close()
            raise OSError(err.code, f"netlink: {err}") from err
        except BaseException:
            self.close()
            raise

    def address(self, rank: int) -> str:
        """IPv4 address of a rank's link."""
        return f"10.77.0.{rank + 1}"

    def fd(self, rank: int) -> int:
        """Descriptor of a rank's namespace."""
        return self._fds[rank]

    def inodes(self) -> list[int]:
        """Inode numbers that identify the namespaces, the hub's last if there is one."""
        return [os.fstat(fd).st_ino for fd in [*self._fds, self._hub] if fd >= 0]

    def close(self) -> None:
        """Let go of the namespaces. They vanish when the last process inside is gone."""
        for fd in [*self._fds, self._hub]:
            if fd >= 0:
                os.close(fd)
        self._fds, self._hub = [], -1

    def _build(self) -> None:
        self._fds = [new_namespace() for _ in range(self.nodes)]
        if self.nodes == 2:
            with self._route(self._fds[0]) as route:
                route.link("add", ifname=IFNAME, kind="veth", peer={"ifname": IFNAME, "net_ns_fd": self._fds[1]})
        else:
            self._hub = new_namespace()
            with self._route(self._hub) as route:
                route.link("add", ifname="hub", kind="bridge", mtu=MTU)
                hub = self._up(route, "hub")
                for rank, fd in enumerate(self._fds):
                    port = f"port{rank}"
                    route.link("add", ifname=port, kind="veth", peer={"ifname": IFNAME, "net_ns_fd": fd})
                    index = self._up(route, port)
                    route.link("set", index=index, master=hub)
                    self._shape(route, index)  # towards the rank
        for rank, fd in enumerate(self._fds):
            with self._route(fd) as route:
                self._up(route, "lo", mtu=None)
                index = self._up(route, IFNAME)
                route.addr("add", index=index, address=self.address(rank), prefixlen=24)
                self._shape(route, index)
        for fd in self._fds:
            with self._route(fd) as route:
                self._wait_running(route)

    @staticmethod
    def _wait_running(route: Any) -> None:
        """Wait for the link's carrier: NCCL passes over an interface that is up but not running yet."""
        deadline = time.monotonic() + CARRIER_SECONDS
        while not route.get_links(route.link_lookup(ifname=IFNAME)[0])[0]["flags"] & _IFF_RUNNING:
            if time.monotonic() > deadline:
                raise LabError(f"{IFNAME} has no carrier after {CARRIER_SECONDS} s")
            time.sleep(0.01)

    @contextlib.contextmanager
    def _route(self, fd: int) -> Iterator[Any]:
        with entered(fd), self._pyroute2.IPRoute() as route:
            yield route

    @staticmethod
    def _up(route: Any, name: str, mtu: int | None = MTU) -> int:
        index: int = route.link_lookup(ifname=name)[0]
        if mtu is not None:
            route.link("set", index=index, mtu=mtu)
        route.link("set", index=index, state="up")
        return index

    def _shape(self, route: Any, index: int) -> None:
        if self.rate is not None:
            # pyroute2 wants bytes per second when the rate is a number.
            route.tc(
                "add", "tbf", index, handle="1:", rate=self.rate // 8, burst=bucket_bytes(self.rate), limit=QUEUE_BYTES
            )
