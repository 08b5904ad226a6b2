# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of the perf programs."""

from __future__ import annotations

import subprocess

import pytest

from perf_programs import Ended, Programs, Ranks, Tool, build_programs, clean_env, free_port, launch


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return build_programs(tmp_path_factory.mktemp("perf"))


@pytest.fixture(scope="session")
def tool(programs: Programs) -> Tool:
    """Runs test_perf with arguments and `data` on standard input."""

    def run(*args: object, data: bytes = b"", **env: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [programs.tool, *map(str, args)],
            input=data,
            capture_output=True,
            timeout=120,
            check=False,
            env=clean_env(**env),
        )

    return run


@pytest.fixture(scope="session")
def ranks(programs: Programs) -> Ranks:
    """Runs a perf program as `n` ranks: ranks(n, "all_reduce", "-b", "8", uzip=True, FAKE_NCCL_FAULT="flip:1")."""

    def run(n: int, collective: str, *args: object, uzip: bool = True, **env: str) -> list[Ended]:
        program = programs.all_reduce if collective == "all_reduce" else programs.broadcast
        port = str(free_port())
        library = str(programs.uzip if uzip else programs.plain)
        base = {"MASTER_PORT": port, "WORLD_SIZE": str(n), "LD_LIBRARY_PATH": library, "UZIP_PERF_TIMEOUT": "60"}
        envs = [clean_env(**(base | {"RANK": str(r)} | env)) for r in range(n)]
        return launch([[str(program), *map(str, args)]] * n, envs)

    return run
