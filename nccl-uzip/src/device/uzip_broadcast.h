// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// Broadcast over UZIP: upstream's ring with our protocol. It moves bytes; what floats they are, the root knows from
// ncclDevWorkColl::redOpArg (a uzipType), and everyone else from the slots.

#ifndef UZIP_BROADCAST_H_
#define UZIP_BROADCAST_H_

template <typename T, typename RedOp>
struct RunWorkColl<ncclFuncBroadcast, T, RedOp, NCCL_ALGO_RING, NCCL_PROTO_UZIP> {
  __device__ __forceinline__ void run(int tid, int nthreads, struct ncclDevWorkColl* work) {
    using Proto = ProtoUzip<BROADCAST_CHUNKSTEPS / BROADCAST_SLICESTEPS, BROADCAST_SLICESTEPS>;
    runRing<T, RedOp, Proto>(tid, nthreads, work);
  }
};

#endif  // UZIP_BROADCAST_H_
