// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// Device side of the perf programs: payloads are generated and outputs judged where they are.

#ifndef PERF_KERNELS_H_
#define PERF_KERNELS_H_

#include <cuda_runtime.h>

#include "payload.h"

namespace perf {

struct CheckCounters {
  unsigned long long wrong, unjudged, hash;
};

// Every function is asynchronous on `stream`; `n` counts elements. Counters are in device memory and added to.

// dst[i] = element i of `rank`.
cudaError_t fillInput(DType type, void* dst, uint64_t n, const Payload& p, int rank, cudaStream_t stream);

// wrong += elements whose bits differ from `rank`'s input.
cudaError_t checkCopy(DType type, const void* out, uint64_t n, const Payload& p, int rank, CheckCounters* c,
                      cudaStream_t stream);

// wrong, unjudged += verdicts over `out` as the reduction of all ranks' inputs (verify.h).
cudaError_t checkReduction(DType type, const void* out, uint64_t n, const Payload& p, RedOp op, int ranks,
                           CheckCounters* c, cudaStream_t stream);

// wrong += bytes that are not `want`.
cudaError_t checkBytes(const void* bytes, uint64_t n, uint8_t want, CheckCounters* c, cudaStream_t stream);

// hash += the output's hash (verify.h).
cudaError_t hashOutput(DType type, const void* out, uint64_t n, CheckCounters* c, cudaStream_t stream);

}  // namespace perf

#endif  // PERF_KERNELS_H_
