# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the host tests."""

from __future__ import annotations

import ctypes

import pytest

from host_shim import HERE, SOURCES, Host, compile_cxx


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    sources = [HERE / "shim.cc", SOURCES / "host" / "uzip_policy.cc", SOURCES / "host" / "uzip_model.cc"]
    library = compile_cxx(tmp_path_factory.mktemp("host") / "libshim.so", sources, ["-shared", f"-I{SOURCES}"])
    return Host(ctypes.CDLL(str(library)))
