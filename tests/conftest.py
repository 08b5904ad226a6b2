# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""What all tests share. Test modules have names of their own across folders; each folder may have a conftest.py."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def build(root: Path) -> Path:
    """Where `make` puts what it builds."""
    return root / "build"


def pytest_unconfigure(config: pytest.Config) -> None:
    """End with a plain line of counts, whatever the verbosity."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and not config.option.collectonly:
        count = {name: len(reporter.stats.get(name, [])) for name in ("passed", "failed", "error", "skipped")}
        print(f"{count['passed']} passed, {count['failed'] + count['error']} failed, {count['skipped']} skipped")
