# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""What nvidia-smi says about the first GPU."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    """A GPU. ``bus_id`` has sysfs's form, as in 0000:1b:00.0; ``memory_mib`` is its total memory."""

    name: str
    bus_id: str
    driver: str
    memory_mib: int


def first_gpu() -> Gpu | None:
    """Return GPU 0, or None when there is no driver, no nvidia-smi or no GPU."""
    smi = shutil.which("nvidia-smi")
    if not smi:
        return None
    query = "--query-gpu=name,pci.bus_id,driver_version,memory.total"
    try:
        out = subprocess.run(
            [smi, "-i", "0", query, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        name, bus_id, driver, memory = (field.strip() for field in out.strip().splitlines()[0].split(","))
        return Gpu(name, bus_id.lower()[-12:], driver, int(memory))
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None
