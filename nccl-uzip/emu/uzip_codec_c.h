// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// libuzip_codec.so: encodes and decodes single slots with the device code of libnccl-uzip, on the CPU. For tests and tools.
// All functions may be called from several threads at once.

#ifndef UZIP_CODEC_C_H_
#define UZIP_CODEC_C_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// The most that uzip_encode_slot and uzip_decode_slot take for rawBytes: 256 MiB.
#define UZIP_LIB_MAX_RAW_BYTES (1u << 28)
// Returned for arguments that are out of their range; nothing has been read or written. Other codes are uzipError's.
#define UZIP_LIB_ERR_ARGUMENT 100

// Encodes rawBytes bytes of values of `type` (enum uzipType; UZIP_TYPE_NONE: sent raw) into a slot.
//   raw        rawBytes bytes, any alignment
//   slot       capacity bytes, any alignment; at least uzip_max_wire_bytes(rawBytes), else UZIP_ERR_CAPACITY
//   wireBytes  out: bytes of the slot that are used. The rest of the slot keeps what it held
//   nwarps     1, 2, or 3 to 16: warps that share the work. The bytes do not depend on it
//   backoff    in and out: the connection's state of the incompressible-data back-off, 0 at first; may be null
// Returns UZIP_OK or an error.
int uzip_encode_slot(int type, void const* raw, uint32_t rawBytes, void* slot, uint64_t capacity, uint32_t* wireBytes,
                     int nwarps, uint32_t* backoff);

// Decodes a slot of slotBytes bytes that must stand for rawBytes bytes. On error, raw holds zeros where tiles were refused, or all
// zeros. Reads only [slot, slot + slotBytes) and writes only [raw, raw + rawBytes), whatever the slot holds.
// Returns UZIP_OK or an error.
int uzip_decode_slot(void const* slot, uint64_t slotBytes, void* raw, uint32_t rawBytes, int nwarps);

// Most bytes that a slot for rawBytes takes, and what a step's stride exceeds its payload by.
uint64_t uzip_max_wire_bytes(uint64_t rawBytes);
uint32_t uzip_step_pad(uint32_t stepBytes);

#ifdef __cplusplus
}
#endif

#endif  // UZIP_CODEC_C_H_
