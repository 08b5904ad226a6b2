# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""A lab of N nodes on one machine and one GPU: namespaces, shaped links, MPS, time-outs. See docs/LAB.md."""

from .errors import LabError
from .lab import Lab
from .procs import RankResult, RunResult
from .rate import parse_rate

__all__ = ["Lab", "LabError", "RankResult", "RunResult", "parse_rate"]
