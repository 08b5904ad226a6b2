# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""The lab: one object that holds namespaces, links, MPS and a folder, and runs commands on its nodes."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TextIO

from . import mps as mps_module
from . import net
from .errors import LabError
from .gpu import first_gpu
from .owner import PREFIX, write_owner
from .procs import LAB_VARIABLE, Ranks, RunResult, end_processes
from .rate import parse_rate
from .topo import write_topology

DEFAULT_TIMEOUT = 600.0
MASTER_PORT = 29577  # any would do: rank 0's namespace has no other listeners

# Does what NCCL's init needs of CUDA: the driver, and a context on GPU 0.
_CUDA_PROBE = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
rc = cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
if rc:
    sys.exit(f"CUDA error {rc}")
"""


class Lab:
    """N nodes on this machine, up from construction to `close` (or the end of a `with`).

    nodes: how many, one rank each. rate: a link rate as `parse_rate` reads it; ``none`` means no namespaces at all, all
    ranks on unshaped loopback. strict: raise LabError where a shaped lab cannot be had, instead of falling back to
    loopback with a message. mps: use CUDA MPS where it is installed. say: where messages go.
    """

    def __init__(
        self, nodes: int, rate: str = "none", *, strict: bool = False, mps: bool = True, say: TextIO | None = None
    ) -> None:
        if nodes < 1:
            raise LabError(f"{nodes} nodes: at least 1 is needed")
        self.nodes = nodes
        self._say = say if say is not None else sys.stderr
        # /tmp and not TMPDIR: MPS puts sockets there, whose paths must be short.
        self.folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir="/tmp"))
        self.id = self.folder.name
        self._network: net.Network | None = None
        self._mps: mps_module.Mps | None = None
        self.rate: int | None = None
        try:
            write_owner(self.folder)
            self.gpu = first_gpu()
            self._make_network(parse_rate(rate), strict)
            if mps:
                self._start_mps()
        except BaseException:
            self.close()
            raise

    @property
    def shaped(self) -> bool:
        """Whether the nodes are namespaces behind shaped links."""
        return self._network is not None

    @property
    def mps(self) -> bool:
        """Whether the ranks share the GPU through MPS."""
        return self._mps is not None

    @property
    def ifname(self) -> str:
        """Name of the interface that the ranks use."""
        return net.IFNAME if self.shaped else "lo"

    def namespaces(self) -> list[int]:
        """Inode numbers of the lab's network namespaces."""
        return self._network.inodes() if self._network else []

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End everything that the lab started and remove what it made. Can be called more than once."""
        if self._mps is not None:
            self._mps.stop()
            self._mps = None
        end_processes(self.id)
        if self._network is not None:
            self._network.close()
            self._network = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def rank_env(self, rank: int, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment of a rank: this process's own, the lab's variables, then ``extra``."""
        master = self._network.address(0) if self._network else "127.0.0.1"
        env = {
            **os.environ,
            "RANK": str(rank),
            "WORLD_SIZE": str(self.nodes),
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": master,
            "MASTER_PORT": str(self._port),
            "CUDA_VISIBLE_DEVICES": "0",
            "NCCL_HOSTID": f"{self.id}-node{rank}",
            "NCCL_SOCKET_IFNAME": f"={self.ifname}",
            "NCCL_NET": "Socket",
            "NCCL_MNNVL_ENABLE": "0",
            "NCCL_NVLS_ENABLE": "0",
            "GLOO_SOCKET_IFNAME": self.ifname,
            "PYTHONFAULTHANDLER": "1",
            LAB_VARIABLE: self.id,
        }
        if self.rate is not None:
            env["NCCL_TOPO_FILE"] = str(self.folder / "topology.xml")
        if self._mps is not None:
            env.update(self._mps.env)
        env.update(extra or {})
        return env

    def run(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        grace: float = 10.0,
        log_dir: Path | None = None,
        out: TextIO | None = None,
        keep: bool = False,
    ) -> RunResult:
        """Run ``command`` once per node and wait, at most ``timeout`` seconds.

        Output goes to ``out`` and ``log_dir``/rank<r>.log as they are given, and with ``keep`` into the result. When a
        rank fails, the others have ``grace`` seconds; then, or when the time is up, all processes of the run are ended.
        Raises LabError if the command cannot be started.
        """
        self._port = MASTER_PORT if self.shaped else _free_port()
        return Ranks(
            command,
            [self.rank_env(rank, env) for rank in range(self.nodes)],
            [self._network.fd(rank) if self._network else None for rank in range(self.nodes)],
            lab_id=self.id,
            timeout=timeout,
            grace=grace,
            log_dir=log_dir,
            out=out,
            keep=keep,
        ).run()

    _port = MASTER_PORT

    def _message(self, text: str) -> None:
        print(f"lab: {text}", file=self._say, flush=True)

    def _make_network(self, rate: int | None, strict: bool) -> None:
        if rate is None or self.nodes == 1:
            if rate is not None:
                self._message("one node has no link to shape")
            return
        try:
            self._network = net.Network(self.nodes, rate)
        except PermissionError as err:
            problem = f"no privilege for network namespaces ({err}): needs root, or CAP_SYS_ADMIN and CAP_NET_ADMIN"
        except LabError as err:
            if not _is_environment(err):
                raise
            problem = str(err)
        except OSError as err:
            problem = f"the kernel refused a namespace, veth, bridge or token bucket: {err}"
        else:
            self.rate = rate
            write_topology(self.folder / "topology.xml", net.IFNAME, rate, self.gpu)
            return
        if strict:
            raise LabError(problem)
        self._message(f"{problem}. Running over UNSHAPED LOOPBACK: times say nothing of a {rate / 1e9:g} Gbit/s link.")

    def _start_mps(self) -> None:
        if self.gpu is None or self.nodes == 1:
            return
        why: str | None
        if not mps_module.available():
            why = "nvidia-cuda-mps-control is not installed"
        else:
            daemon = mps_module.Mps(self.folder)
            self._mps = daemon  # close() stops it from here on
            why = daemon.start({**os.environ, "CUDA_VISIBLE_DEVICES": "0", LAB_VARIABLE: self.id})
            if why is None:
                why = self._probe_cuda()
            if why is not None:
                daemon.stop()
                self._mps = None
        if why is not None:
            self._message(f"without CUDA MPS ({why}): the ranks' kernels take turns, which is right but slow")

    def _probe_cuda(self) -> str | None:
        """Have a client connect from rank 0's place. Return None, or what went wrong."""
        place = net.entered(self._network.fd(0)) if self._network else contextlib.nullcontext()
        try:
            with place:
                done = subprocess.run(
                    [sys.executable, "-c", _CUDA_PROBE],
                    env=self.rank_env(0),
                    capture_output=True,
                    text=True,
                    timeout=60,
                    check=False,
                )
        except subprocess.TimeoutExpired:
            return "a first client hung"
        return None if done.returncode == 0 else f"a first client failed: {done.stderr.strip().splitlines()[-1:]}"


def _is_environment(err: LabError) -> bool:
    return isinstance(err.__cause__, ImportError)


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
