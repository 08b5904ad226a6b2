// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// What host and device share beside the slot format: the link flag, the protocol number of our rows in the device function
// table, counters and the error record. Both sides must be built from the same copy of this file.

#ifndef UZIP_DEV_H_
#define UZIP_DEV_H_

#include <stdint.h>

// A bit of ncclConnInfo::flags that upstream does not use: slots of this connection are framed (FORMAT.md).
// Both ends of a connection must agree; see the policy exchange in host/uzip_policy.cc.
#define NCCL_UZIP_LINK 0x100

// Template argument of RunWorkColl for our device functions. Never an index into an upstream table of protocols:
// for the host, proxies and plugins a UZIP task is NCCL_PROTO_SIMPLE.
#define NCCL_PROTO_UZIP 3

// One record per channel and primitives group. Written by one thread of the channel's block at the end of an operation:
// `stats` in device memory is the master copy, `statsHost` its image in host memory. Bytes and counts since the last reset.
struct alignas(16) ncclUzipGroupStats {
  uint64_t sendRawBytes;  // payload bytes that went into framed slots
  uint64_t sendWireBytes;  // bytes of those slots, headers included
  uint64_t recvRawBytes;
  uint64_t recvWireBytes;
  uint64_t sendSlices;  // framed slices sent ...
  uint64_t sendSlicesRaw;  // ... of which as UZIP_CODEC_RAW
  uint64_t fwdSlices;  // ... of which forwarded untouched
  uint64_t recvSlices;
  uint64_t ops;  // operations that used this group
  uint64_t reserved[7];
};

// First error of a communicator. The kernel writes `code` last.
struct ncclUzipErrorRecord {
  uint32_t code;  // uzipError, 0 = none
  uint32_t channel;
  int32_t peer;  // rank whose slot was refused
  uint32_t detail;  // offending value, by code
  uint64_t step;
};

// Reached through ncclKernelComm::uzip; null when the communicator runs without UZIP.
struct ncclUzipDevComm {
  struct ncclUzipGroupStats* stats;  // [MAXCHANNELS][NCCL_MAX_GROUPS], device memory
  struct ncclUzipGroupStats* statsHost;  // the same, host memory mapped into the device
  struct ncclUzipErrorRecord* error;  // host memory mapped into the device
  uint32_t typeMask;  // bit t set: payloads of uzipType t are encoded
  uint32_t errorClaim;  // 0 until a block has claimed the error record
};

#endif  // UZIP_DEV_H_
