# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Turns signals that end a program into an exception, so that everything is cleaned up on the way out."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

from .errors import Interrupted

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _interrupt(signum: int, _frame: FrameType | None) -> None:
    for other in _SIGNALS:
        signal.signal(other, signal.SIG_IGN)  # the way out is not to be interrupted
    raise Interrupted(signum)


@contextlib.contextmanager
def catch_signals() -> Iterator[None]:
    """Have SIGINT, SIGTERM and SIGHUP raise Interrupted in the body, the first one only."""
    before = {signum: signal.signal(signum, _interrupt) for signum in _SIGNALS}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
