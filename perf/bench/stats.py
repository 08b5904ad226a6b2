# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""The rule for noise: medians of pairs, and A against A measured in the same run."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

TOLERANCE = 0.03
MIN_PAIRS = 5


@dataclass(frozen=True)
class Outcome:
    """What pairs of times say. Ratios are speeds of B over A: above 1, B is faster.

    median: of the pairs' ratios. spread: the largest distance from 1 of A against A. bar: what the median must reach,
    or None for "as fast as", which is 1 less the larger of 3 % and the spread. noisy: the spread exceeds 3 %, so that
    "as fast as" says little.
    """

    ratios: list[float]
    aa_ratios: list[float]
    median: float
    spread: float
    bar: float | None
    needed: float
    passed: bool
    noisy: bool


def judge(a_times: Sequence[float], b_times: Sequence[float], bar: float | None = None) -> Outcome:
    """Judge interleaved samples A B A B ... A B A: one more of A than of B, in the order measured.

    Times may have any unit, all the same. Pair i is A[i] and B[i]; A against A are neighbours A[i] and A[i + 1].
    Raises ValueError for other numbers of samples or times that are not positive.
    """
    if len(a_times) != len(b_times) + 1 or not b_times:
        raise ValueError(f"{len(a_times)} samples of A and {len(b_times)} of B: one more of A than of B is needed")
    if min(*a_times, *b_times) <= 0:
        raise ValueError("a time is not positive")
    ratios = [a / b for a, b in zip(a_times, b_times)]  # noqa: B905 (A has one more)
    aa_ratios = [a / next_a for a, next_a in itertools.pairwise(a_times)]
    spread = max(abs(r - 1) for r in aa_ratios)
    median = statistics.median(ratios)
    needed = 1 - max(TOLERANCE, spread) if bar is None else bar
    return Outcome(ratios, aa_ratios, median, spread, bar, needed, median >= needed, spread > TOLERANCE)
