# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Two NCCL libraries through one binary in one lab, in interleaved pairs. See docs/LAB.md for the rule."""

from .ab import Comparison, Task, compare
from .perfbin import BenchError, Library, Sample
from .stats import Outcome, judge

__all__ = ["BenchError", "Comparison", "Library", "Outcome", "Sample", "Task", "compare", "judge"]
