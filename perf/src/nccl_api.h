// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// The part of NCCL's C API that the perf programs use, bound at run time. Declaring it here instead of including nccl.h
// lets one binary run any NCCL 2 library and be built without one. Values and signatures are NCCL's stable ABI.

#ifndef PERF_NCCL_API_H_
#define PERF_NCCL_API_H_

#include <stddef.h>
#include <stdint.h>

#include <string>

struct CUstream_st;  // cudaStream_t is a pointer to this

namespace perf {

struct NcclUniqueId {
  char internal[128];
};

using NcclComm = struct NcclCommOpaque*;
using NcclStream = CUstream_st*;

enum NcclResult : int { kNcclSuccess = 0, kNcclInProgress = 7 };

enum DType : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kHalf = 6,
  kFloat = 7,
  kDouble = 8,
  kBfloat16 = 9,
  kFloat8e4m3 = 10,
  kFloat8e5m2 = 11,
  kDTypes = 12
};

// The first five are ncclRedOp_t; mulsum is made by ncclRedOpCreatePreMulSum.
enum RedOp : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4, kMulSum = 5, kRedOps = 6 };

enum NcclScalarResidence : int { kScalarHostImmediate = 1 };

// As in nccl_uzip.h.
struct UzipStats {
  size_t size;
  uint64_t sendRawBytes, sendWireBytes, recvRawBytes, recvWireBytes;
  uint64_t sendSlices, sendSlicesRaw, fwdSlices, recvSlices, ops, padBytes;
};

struct UzipPolicy {
  size_t size;
  int enabled;
  char reason[256];
  uint32_t links, types;
  uint64_t minBytes;
  int exact, forced;
};

// Function pointers into the loaded library. The ncclUzip* ones are null when the library has none.
struct NcclApi {
  NcclResult (*getVersion)(int*);
  NcclResult (*getUniqueId)(NcclUniqueId*);
  NcclResult (*commInitRank)(NcclComm*, int, NcclUniqueId, int);
  NcclResult (*commDestroy)(NcclComm);
  NcclResult (*commAbort)(NcclComm);
  NcclResult (*commGetAsyncError)(NcclComm, NcclResult*);
  const char* (*getErrorString)(NcclResult);
  const char* (*getLastError)(NcclComm);
  NcclResult (*groupStart)();
  NcclResult (*groupEnd)();
  NcclResult (*allReduce)(const void*, void*, size_t, int, int, NcclComm, NcclStream);
  NcclResult (*broadcast)(const void*, void*, size_t, int, int, NcclComm, NcclStream);
  NcclResult (*redOpCreatePreMulSum)(int*, void*, int, int, NcclComm);
  NcclResult (*redOpDestroy)(int, NcclComm);
  NcclResult (*uzipGetVersion)(int*, int*);
  NcclResult (*uzipCommGetStats)(NcclComm, UzipStats*);
  NcclResult (*uzipCommGetPolicy)(NcclComm, UzipPolicy*);

  std::string path;  // file the functions came from, links resolved
  int version;  // ncclGetVersion, e.g. 22907
};

// Loads the file named by UZIP_PERF_NCCL, else libnccl.so.2 as LD_PRELOAD and LD_LIBRARY_PATH decide. Throws Error with
// the loader's words and the way out; also when another libnccl.so.2 is preloaded beside UZIP_PERF_NCCL, since symbols of
// one would then answer for the other.
NcclApi loadNccl();

}  // namespace perf

#endif  // PERF_NCCL_API_H_
