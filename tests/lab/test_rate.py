# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest

from perf.lab.errors import LabError
from perf.lab.rate import bucket_bytes, parse_rate


@pytest.mark.parametrize(
    ("text", "bits"),
    [("10gbit", 10**10), ("25gbit", 25 * 10**9), ("2.5gbit", 2_500_000_000), ("200mbit", 2 * 10**8), ("none", None)],
)
def test_rates_that_are_understood(text: str, bits: int | None) -> None:
    assert parse_rate(text) == bits


@pytest.mark.parametrize("text", ["10", "10Gbit/s", "fast", "", "-1gbit", "100gbit", "1kbit", "1e3mbit"])
def test_other_rates_are_refused_by_name(text: str) -> None:
    with pytest.raises(LabError, match=f"'{text}'"):
        parse_rate(text)


def test_the_bucket_is_a_quarter_millisecond_but_holds_an_offload_packet() -> None:
    assert bucket_bytes(10**10) == 312_500
    assert bucket_bytes(25 * 10**9) == 781_250
    assert bucket_bytes(10**6) == 128 * 1024
