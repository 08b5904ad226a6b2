# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""bf16 in numpy, which has no such type: 16-bit patterns in uint16 arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def bf16_from_f32(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Round float32 values to the nearest bf16, ties to even. Returns bit patterns of the same shape.

    NaN keeps the bits that fit, and becomes quiet where none of them would be left.
    """
    bits = values.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    top = bits >> np.uint32(16)
    nan = np.where(top & np.uint32(0x7F), top, top | np.uint32(0x40))
    result: npt.NDArray[np.uint16] = np.where(np.isnan(values), nan, rounded).astype(np.uint16)
    return result


def f32_from_bf16(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """Return the float32 values that bf16 bit patterns stand for, exactly."""
    values: npt.NDArray[np.float32] = (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return values
