// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// All-reduce over UZIP: upstream's ring with our protocol. Chunks and slices are those of Simple, or results would not be equal.

#ifndef UZIP_ALL_REDUCE_H_
#define UZIP_ALL_REDUCE_H_

template <typename T, typename RedOp>
struct RunWorkColl<ncclFuncAllReduce, T, RedOp, NCCL_ALGO_RING, NCCL_PROTO_UZIP> {
  __device__ __forceinline__ void run(int tid, int nthreads, struct ncclDevWorkColl* work) {
    using Proto = ProtoUzip<ALLREDUCE_CHUNKSTEPS / ALLREDUCE_SLICESTEPS, ALLREDUCE_SLICESTEPS>;
    runRing<T, RedOp, Proto>(tid, nthreads, work);
  }
};

#endif  // UZIP_ALL_REDUCE_H_
