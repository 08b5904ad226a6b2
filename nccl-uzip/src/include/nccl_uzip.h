// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// C interface of nccl-uzip beside that of NCCL. C99. Every function returns ncclSuccess, or ncclInvalidArgument for a
// null pointer, a communicator that is not one, or a `size` that this library does not know; ncclGetLastError then
// has the text. Structures grow at their end: a `size` from that of the first version up to the library's own is
// accepted, and only so much is written; a larger one means that the program was built against a newer header. None of them waits for the GPU or for other ranks, and all may be called from any thread while the
// communicator lives.

#ifndef NCCL_UZIP_H_
#define NCCL_UZIP_H_

#include <stddef.h>
#include <stdint.h>

#include "nccl.h"

#ifdef __cplusplus
extern "C" {
#endif

#define NCCL_UZIP_MAJOR 0
#define NCCL_UZIP_MINOR 1
#define NCCL_UZIP_PATCH 0
#define NCCL_UZIP_VERSION_CODE (NCCL_UZIP_MAJOR * 10000 + NCCL_UZIP_MINOR * 100 + NCCL_UZIP_PATCH)

// Version of nccl-uzip (as NCCL_UZIP_VERSION_CODE), and of the slot format on the wire.
ncclResult_t ncclUzipGetVersion(int* version, int* formatVersion);

// What this rank's communicator has moved over framed links. Counts run from the communicator's creation or the last
// reset; they are those of operations that have finished on the GPU, and may lag behind by the operation that is
// ending.
typedef struct {
  size_t size;  // set by the caller: sizeof(ncclUzipStats_t)
  uint64_t sendRawBytes;  // payload bytes sent over framed links
  uint64_t sendWireBytes;  // what was handed to the transport for them, headers included
  uint64_t recvRawBytes;  // payload bytes received over framed links
  uint64_t recvWireBytes;  // what arrived for them
  uint64_t sendSlices;  // framed slices sent
  // Of those, sent without encoding: small, of another type, not compressible (also while the sender backs off), passed
  // on raw, or poison.
  uint64_t sendSlicesRaw;
  uint64_t fwdSlices;  // of those: passed on as they came
  uint64_t recvSlices;  // framed slices received
  uint64_t ops;  // collectives run by UZIP, as the channel that saw most of them counts
  uint64_t padBytes;  // memory beyond stock NCCL's that the communicator's connections take; not reset
} ncclUzipStats_t;

ncclResult_t ncclUzipCommGetStats(ncclComm_t comm, ncclUzipStats_t* stats);

// Starts all counts anew, except padBytes.
ncclResult_t ncclUzipCommResetStats(ncclComm_t comm);

// Bits of ncclUzipPolicy_t::links and ::types.
#define NCCL_UZIP_LINKS_NET 0x1u
#define NCCL_UZIP_TYPES_BF16 0x2u
#define NCCL_UZIP_TYPES_F16 0x4u
#define NCCL_UZIP_TYPES_F32 0x8u

// What the ranks of a communicator agreed on. The same on all of them.
typedef struct {
  size_t size;  // set by the caller: sizeof(ncclUzipPolicy_t)
  int enabled;  // 1: collectives may use UZIP
  char reason[256];  // why it is not enabled; empty when it is
  uint32_t links;  // NCCL_UZIP_LINKS_*: links that are framed
  uint32_t types;  // NCCL_UZIP_TYPES_*: types that are encoded
  uint64_t minBytes;  // operations of fewer bytes do not use UZIP, unless forced
  int exact;  // 1: NCCL_UZIP_EXACT, algorithm, channels and chunks are stock NCCL's
  int forced;  // 1: NCCL_PROTO forces UZIP for at least one covered function
} ncclUzipPolicy_t;

ncclResult_t ncclUzipCommGetPolicy(ncclComm_t comm, ncclUzipPolicy_t* policy);

#ifdef __cplusplus
}
#endif

#endif  // NCCL_UZIP_H_
