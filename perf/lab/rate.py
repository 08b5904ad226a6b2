# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Link rates and the token bucket that holds a link to one."""

from __future__ import annotations

import re

from .errors import LabError

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}

# The kernel's TBF takes the rate as a 32-bit count of bytes per second, which ends just above 34 Gbit/s.
MAX_RATE = 34 * 10**9
MIN_RATE = 10**6

# A bucket smaller than a segmentation-offload packet (64 KiB plus headers) makes TBF cut every packet up in software.
_BURST_MIN = 128 * 1024
_BURST_SECONDS = 250e-6

# Bytes that may wait behind the bucket. TCP keeps about a millisecond per socket in flight, so this never drops.
QUEUE_BYTES = 64 * 1024 * 1024


def parse_rate(text: str) -> int | None:
    """Return a link rate in bit/s, or None for ``none``.

    ``text`` is a number with the unit bit, kbit, mbit or gbit, as in ``10gbit`` or ``2.5gbit``.
    Raises LabError for anything else and for rates outside 1mbit ... 34gbit.
    """
    if text == "none":
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg]?)bit", text)
    if not match:
        raise LabError(f"rate '{text}' is not understood: give for example 10gbit, 25gbit, 200mbit or none")
    rate = round(float(match[1]) * _UNITS[match[2]])
    if not MIN_RATE <= rate <= MAX_RATE:
        raise LabError(f"rate '{text}' is outside 1mbit ... 34gbit, the range of the token bucket")
    return rate


def bucket_bytes(rate: int) -> int:
    """Return the token bucket's size in bytes for ``rate`` in bit/s: what may cross at once after a pause.

    250 us of the link, at least 128 KiB: large enough that timer wake-ups of the shaper do not cost rate, small enough
    that a bulk transfer never notices it. Messages smaller than the bucket are not slowed by it.
    """
    return max(_BURST_MIN, round(rate / 8 * _BURST_SECONDS))
