# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""The lab's own errors."""


class LabError(Exception):
    """Something the user can put right; the message names the thing and the way out."""


class Interrupted(BaseException):
    """A signal asked the lab to stop. ``signum`` is its number."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum
