# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""Real payloads: model weights from a package or a file, as raw bf16 and f32 values."""

from .floats import bf16_from_f32, f32_from_bf16
from .source import PayloadError, read_values
from .store import Payload, make_payload

__all__ = ["Payload", "PayloadError", "bf16_from_f32", "f32_from_bf16", "make_payload", "read_values"]
