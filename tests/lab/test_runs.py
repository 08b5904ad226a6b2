# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""How runs end: by themselves, by a time-out, by a rank that fails, by a signal, and by the lab's own death."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab_helpers import Runner, lab_command
from perf.lab.procs import LAB_VARIABLE

pytestmark = pytest.mark.usefixtures("nothing_left")

# A rank that hangs, ignores SIGTERM and has a child that left its process group.
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "300"], start_new_session=True)
print("pids", os.getpid(), child.pid, flush=True)
def stuck_here():
    time.sleep(300)
stuck_here()
"""


def pids_in(text: str) -> list[int]:
    return [int(word) for line in text.splitlines() if "pids " in line for word in line.split("pids ")[1].split()]


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def wait_gone(pids: list[int], seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end and not all(gone(pid) for pid in pids):
        time.sleep(0.05)
    return all(gone(pid) for pid in pids)


def start(env: dict[str, str], *args: str) -> tuple[subprocess.Popen[str], list[int]]:
    """Start a lab of two stubborn ranks; return it and the ids of its four processes once they run."""
    lab = subprocess.Popen(
        lab_command("run", "--nodes", "2", *args, "--", sys.executable, "-c", STUBBORN),
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert lab.stdout is not None
    pids = [pid for _ in range(2) for pid in pids_in(lab.stdout.readline())]
    assert len(pids) == 4
    return lab, pids


def test_a_hang_ends_with_stacks_and_everything_killed(run_lab: Runner) -> None:
    began = time.monotonic()
    done = run_lab("run", "--nodes", "2", "--rate", "none", "--timeout", "1.5", "--", sys.executable, "-c", STUBBORN)
    assert done.returncode == 124
    assert time.monotonic() - began < 30
    pids = pids_in(done.stdout)
    assert len(pids) == 4 and wait_gone(pids)
    assert "no end after 1.5 s" in done.stderr
    for rank in (0, 1):
        assert f"rank {rank} did not end; its last lines" in done.stderr
    assert done.stderr.count("in stuck_here") == 2


def test_a_hang_that_is_not_python_is_killed_too(run_lab: Runner) -> None:
    script = "trap '' TERM; echo here; while :; do sleep 0.1; done"
    done = run_lab("run", "--nodes", "2", "--rate", "none", "--timeout", "0.5", "--", "sh", "-c", script)
    assert done.returncode == 124
    assert "lab: [1] here" in done.stderr


def test_when_a_rank_fails_the_others_are_ended_and_its_status_is_the_runs(run_lab: Runner) -> None:
    script = 'if [ "$RANK" = 1 ]; then echo broken; exit 7; fi; sleep 300'
    done = run_lab("run", "--nodes", "3", "--rate", "none", "--grace", "1", "--", "sh", "-c", script)
    assert done.returncode == 7
    assert "rank 1 ended with status 7; the others did not end" in done.stderr
    assert "lab: [1] broken" in done.stderr


def test_a_rank_killed_by_a_signal_is_named(run_lab: Runner) -> None:
    done = run_lab("run", "--nodes", "2", "--rate", "none", "--", "sh", "-c", "kill -SEGV $$")
    assert done.returncode == 128 + signal.SIGSEGV
    assert "SIGSEGV" in done.stderr


@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_lab_leaves_nothing(lab_env: dict[str, str], signum: signal.Signals) -> None:
    lab, pids = start(lab_env, "--rate", "1gbit")
    lab.send_signal(signum)
    _, err = lab.communicate(timeout=30)
    assert lab.returncode == 128 + signum
    assert f"stopped by {signum.name}" in err
    assert wait_gone(pids, 0.5)


def test_clean_removes_what_a_killed_lab_left(lab_env: dict[str, str], run_lab: Runner) -> None:
    lab, pids = start(lab_env, "--rate", "none")
    folders = list(Path("/tmp").glob(f"uzip-lab-{lab.pid}-*"))
    assert len(folders) == 1
    assert str(folders[0]) not in run_lab("clean").stderr
    assert folders[0].exists() and not any(gone(pid) for pid in pids), "clean took a lab that is alive"
    lab.kill()
    lab.communicate(timeout=30)
    ranks, orphans = pids[0::2], pids[1::2]
    assert wait_gone(ranks), "ranks outlived the lab"
    assert not any(gone(pid) for pid in orphans)
    done = run_lab("clean")
    assert done.returncode == 0
    assert str(folders[0]) in done.stderr and "2 processes ended" in done.stderr
    assert wait_gone(orphans) and not folders[0].exists()


def test_a_command_that_does_not_exist(run_lab: Runner) -> None:
    done = run_lab("run", "--nodes", "2", "--rate", "none", "--", "/no/such/program")
    assert done.returncode == 2
    assert "cannot start '/no/such/program'" in done.stderr


@pytest.mark.parametrize(
    ("args", "names"),
    [
        (["--nodes", "2"], "no command"),
        (["--nodes", "0", "--", "true"], "0 nodes"),
        (["--nodes", "99", "--", "true"], "99 nodes"),
        (["--nodes", "2", "--rate", "10G", "--", "true"], "'10G'"),
        (["--nodes", "2", "--env", "X", "--", "true"], "--env 'X'"),
        (["--nodes", "2", "--timeout", "0", "--", "true"], "--timeout 0"),
    ],
)
def test_bad_input_is_one_error_that_names_it(run_lab: Runner, args: list[str], names: str) -> None:
    done = run_lab("run", *args)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("lab: error: ") and names in done.stderr


def test_without_pyroute2_it_runs_unshaped_and_says_so(
    run_lab: Runner, lab_env: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "pyroute2.py").write_text("raise ImportError('not here')\n")
    path = f"{tmp_path}{os.pathsep}{lab_env['PYTHONPATH']}"
    script = 'echo "$MASTER_ADDR $NCCL_SOCKET_IFNAME [$NCCL_TOPO_FILE]"'
    done = run_lab("run", "--nodes", "2", "--", "sh", "-c", script, PYTHONPATH=path)
    assert done.returncode == 0
    assert "UNSHAPED LOOPBACK" in done.stderr and "pyroute2" in done.stderr
    assert "127.0.0.1 =lo []" in done.stdout.splitlines()
    strict = run_lab("run", "--nodes", "2", "--strict", "--", "true", PYTHONPATH=path)
    assert strict.returncode == 2 and "pyroute2" in strict.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up a capability to see what is missed")
def test_without_privileges_it_runs_unshaped_and_says_so(run_lab: Runner, lab_env: dict[str, str]) -> None:
    lab = lab_command("run", "--nodes", "2", "--", "sh", "-c", "echo ran")
    done = subprocess.run(
        [sys.executable, "-c", DROP_ADMIN, *lab], env=lab_env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "no privilege for network namespaces" in done.stderr and "UNSHAPED LOOPBACK" in done.stderr
    assert sorted(done.stdout.splitlines()) == ["[1] ran", "ran"]


# Takes CAP_NET_ADMIN (12) and CAP_SYS_ADMIN (21) out of the bounding set, so that exec does not give them.
DROP_ADMIN = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
for capability in (12, 21):
    assert libc.prctl(24, capability, 0, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_everything_started_carries_the_labs_id(run_lab: Runner) -> None:
    done = run_lab("run", "--nodes", "2", "--rate", "none", "--", "sh", "-c", f"echo ${LAB_VARIABLE}")
    assert len({line.removeprefix("[1] ") for line in done.stdout.splitlines()}) == 1
    assert done.stdout.startswith(("uzip-lab-", "[1] uzip-lab-"))
