# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""The demo without a GPU: the device code of the library, compiled for the CPU, ranks as processes over loopback."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from .table import DemoError

COLLECTIVES = ("all_reduce", "broadcast")
PROBE_VALUES = 1 << 18
DIFFERENT = 1  # the program's status when outputs differ, which its JSON also says


def _run(program: Path, collective: str, payload: Path, ranks: int, count: int, timeout: float) -> dict[str, Any]:
    """Run one collective on the first ``count`` values, also as Simple, and return the program's JSON."""
    with tempfile.TemporaryDirectory(prefix="uzip-demo-") as folder:
        out = Path(folder, "result.json")
        command = [
            *(str(program), "--ranks", str(ranks), "--collective", collective, "--op", "sum", "--dtype", "bf16"),
            *("--mode", "uzip", "--payload", str(payload), "--count", str(count), "--compare", "--json", str(out)),
        ]
        try:
            done = subprocess.run(command, stdout=2, timeout=timeout, check=False)
            if done.returncode not in (0, DIFFERENT):
                raise DemoError(f"{program.name} --collective {collective} ended with {done.returncode}")
            result = json.loads(out.read_text())
        except subprocess.TimeoutExpired as err:
            raise DemoError(f"{program.name} --collective {collective}: no end after {timeout:g} s") from err
        except (OSError, ValueError) as err:
            raise DemoError(f"{program.name} --collective {collective}: {err}") from err
    if isinstance(result, list):
        result = result[0]
    if not isinstance(result, dict) or not {"raw_bytes", "wire_bytes", "identical", "seconds"} <= result.keys():
        raise DemoError(f"{program.name}: its JSON lacks raw_bytes, wire_bytes, identical or seconds")
    return result


def run_cpu(program: Path, payload: Path, ranks: int, budget: float) -> list[dict[str, Any]]:
    """Run both collectives on as many of the payload's bf16 values as ``budget`` seconds allow. Raises DemoError."""
    if not program.is_file():
        raise DemoError(f"no program {program}: make demo-cpu builds it")
    values = payload.stat().st_size // 2
    results = []
    for collective in COLLECTIVES:
        count = values
        if values > PROBE_VALUES:
            print(f"demo: {collective}, {ranks} ranks: how fast is this machine?", file=sys.stderr, flush=True)
            probe = _run(program, collective, payload, ranks, PROBE_VALUES, 300)
            share = budget / len(COLLECTIVES) / max(float(probe["seconds"]), 1e-3)
            count = min(values, max(PROBE_VALUES, int(PROBE_VALUES * share)))
        print(f"demo: {collective}, {ranks} ranks: {count} of {values} values", file=sys.stderr, flush=True)
        result = _run(program, collective, payload, ranks, count, 60 + 4 * budget)
        raw, wire = int(result["raw_bytes"]), int(result["wire_bytes"])
        results.append(
            {
                "collective": collective,
                "mode": "cpu",
                "payload": payload.name,
                "dtype": "bf16",
                "ranks": ranks,
                "count": count,
                "payload_values": values,
                "bytes": 2 * count,
                "raw_bytes": raw,
                "wire_bytes": wire,
                "ratio": wire / raw if raw else None,
                "identical": result["identical"] is True,
            }
        )
    return results
