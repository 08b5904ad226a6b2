# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""How ranks find each other, with real processes and sockets."""

from __future__ import annotations

import socket
import subprocess
import time

import pytest

from perf_programs import Ended, Programs, clean_env, free_port, launch


def meet(programs: Programs, envs: list[dict[str, str]], rounds: int = 3) -> list[Ended]:
    base = {"UZIP_PERF_TIMEOUT": "20"}
    return launch(
        [[str(programs.tool), "rendezvous", str(rounds)]] * len(envs), [clean_env(**(base | e)) for e in envs]
    )


def torch_style(size: int, port: int, **extra: str) -> list[dict[str, str]]:
    return [{"RANK": str(r), "WORLD_SIZE": str(size), "MASTER_PORT": str(port)} | extra for r in range(size)]


def expect_gathered(ended: list[Ended], rounds: int = 3) -> None:
    want = "".join(" ".join(f"{i}.{r}" for r in range(len(ended))) + " \n" for i in range(rounds))
    for rank in ended:
        assert (rank.status, rank.out, rank.err) == (0, want, "")


@pytest.mark.parametrize("size", [1, 2, 5, 16])
def test_all_ranks_gather_the_same(programs: Programs, size: int) -> None:
    expect_gathered(meet(programs, torch_style(size, free_port())))


@pytest.mark.parametrize(
    ("rank", "world"),
    [("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS")],
)
def test_other_launchers(programs: Programs, rank: str, world: str) -> None:
    port = str(free_port())
    expect_gathered(meet(programs, [{rank: str(r), world: "3", "MASTER_PORT": port} for r in range(3)]))


def test_without_a_launcher_there_is_one_rank(programs: Programs) -> None:
    expect_gathered(meet(programs, [{}]))


def test_beside_torchruns_own_store(programs: Programs) -> None:
    with socket.socket() as store:
        store.bind(("", 0))
        store.listen()
        expect_gathered(meet(programs, torch_style(3, store.getsockname()[1], TORCHELASTIC_RUN_ID="none")))


def test_passes_over_ports_of_others(programs: Programs) -> None:
    """The first port belongs to a program that never answers."""
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        expect_gathered(meet(programs, torch_style(2, other.getsockname()[1])))


def test_two_jobs_that_share_ports(programs: Programs) -> None:
    port = free_port()
    jobs = torch_style(3, port, SLURM_JOB_ID="1") + torch_style(3, port, SLURM_JOB_ID="2")
    ended = meet(programs, jobs)
    expect_gathered(ended[:3])
    expect_gathered(ended[3:])


def test_a_stranger_does_not_disturb(programs: Programs) -> None:
    port = free_port()
    envs = torch_style(2, port, UZIP_PERF_TIMEOUT="30")
    first = subprocess.Popen(
        [programs.tool, "rendezvous", "2"],
        env=clean_env(**envs[0]),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        strangers = []
        for data in (b"GET / HTTP/1.1\r\n\r\n" * 4, b"\xff" * 24, b""):
            for _ in range(200):
                try:
                    strangers.append(socket.create_connection(("127.0.0.1", port), timeout=1))
                    break
                except ConnectionRefusedError:
                    time.sleep(0.05)
            strangers[-1].sendall(data)
        assert len(strangers) == 3
        second = launch([[str(programs.tool), "rendezvous", "2"]], [clean_env(**envs[1])])
        out, err = first.communicate(timeout=30)
        expect_gathered([Ended(first.returncode, out, err), *second], 2)
    finally:
        first.kill()
        for s in strangers:
            s.close()


def test_missing_ranks_are_named(programs: Programs) -> None:
    envs = torch_style(4, free_port(), UZIP_PERF_TIMEOUT="2")
    envs[2]["UZIP_PERF_TIMEOUT"] = "30"  # it must see rank 0 end, not its own limit
    ended = meet(programs, [envs[0], envs[2]])
    assert ended[0].status == 1
    assert "rank(s) 1, 3 did not connect" in ended[0].err and "UZIP_PERF_TIMEOUT" in ended[0].err
    assert ended[1].status == 1 and "rank 0 has ended" in ended[1].err


def test_no_rank_zero(programs: Programs) -> None:
    port = free_port()
    ended = meet(programs, [torch_style(2, port, UZIP_PERF_TIMEOUT="1")[1]])
    assert ended[0].status == 1
    assert f"no rank 0 at 127.0.0.1 ports {port} to {port + 15} within 1 s (Connection refused)" in ended[0].err


def test_a_host_name_that_does_not_exist(programs: Programs) -> None:
    env = torch_style(2, free_port(), UZIP_PERF_TIMEOUT="1", MASTER_ADDR="no-such-host.invalid")[1]
    ended = meet(programs, [env])
    assert ended[0].status == 1 and "no-such-host.invalid" in ended[0].err


def test_ranks_that_disagree_on_the_size(programs: Programs) -> None:
    port = str(free_port())
    ended = meet(programs, [{"RANK": str(r), "WORLD_SIZE": str(2 + r), "MASTER_PORT": port} for r in range(2)])
    for rank in ended:
        assert rank.status == 1 and "WORLD_SIZE" in rank.err and "3 ranks" in rank.err


def test_a_rank_number_twice(programs: Programs) -> None:
    envs = torch_style(2, free_port(), UZIP_PERF_TIMEOUT="3")
    ended = meet(
        programs, [{**envs[0], "WORLD_SIZE": "3"}, {**envs[1], "WORLD_SIZE": "3"}, {**envs[1], "WORLD_SIZE": "3"}]
    )
    assert "rank(s) 2 did not connect" in ended[0].err
    assert any("already has a rank of this number" in rank.err for rank in ended[1:])


def test_a_port_that_is_taken(programs: Programs) -> None:
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        port = str(other.getsockname()[1])
        ended = meet(programs, [torch_style(2, 1, UZIP_PERF_PORT=port)[0]])
    assert (
        ended[0].status == 1
        and f"port {port}: Address already in use" in ended[0].err
        and "UZIP_PERF_PORT" in ended[0].err
    )


def test_different_numbers_of_rounds(programs: Programs) -> None:
    envs = torch_style(2, free_port())
    tool = str(programs.tool)
    ended = launch([[tool, "rendezvous", "1"], [tool, "rendezvous", "9"]], [clean_env(**e) for e in envs])
    assert ended[1].status == 1 and "rank 0 has ended" in ended[1].err


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"RANK": "0"}, ["WORLD_SIZE", "RANK"]),
        ({"WORLD_SIZE": "2"}, ["RANK is not"]),
        ({"RANK": "2", "WORLD_SIZE": "2"}, ["RANK", "'2'", "0 to 1"]),
        ({"RANK": "x", "WORLD_SIZE": "2"}, ["RANK", "'x'"]),
        ({"RANK": "0", "WORLD_SIZE": "0"}, ["WORLD_SIZE", "'0'"]),
        ({"MASTER_PORT": "70000"}, ["MASTER_PORT", "70000"]),
        ({"UZIP_PERF_PORT": "http"}, ["UZIP_PERF_PORT", "http"]),
        ({"UZIP_PERF_TIMEOUT": "0"}, ["UZIP_PERF_TIMEOUT", "'0'"]),
        ({"LOCAL_RANK": "-1"}, ["LOCAL_RANK", "-1"]),
    ],
)
def test_bad_environment(programs: Programs, env: dict[str, str], words: list[str]) -> None:
    ended = meet(programs, [env])
    assert ended[0].status == 2
    for word in words:
        assert word in ended[0].err
