// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// Ring all-reduce and broadcast of one channel, in upstream's chunking and order, over any Proto. Device code; every thread of the
// channel's block calls it. With ProtoPlain they are what UZIP is compared with; uzip_broadcast.h also runs this broadcast over
// ProtoUzip, as it does upstream's.

#ifndef UZIP_EMU_RING_H_
#define UZIP_EMU_RING_H_

#include "nccl_shim.h"

// Elements of a channel's part are cut into loops of nRanks chunks. In a loop each chunk travels round the ring twice: first it is
// reduced, starting behind the rank that owns it and ending there, then the result goes round.
template <typename T, typename RedOp, typename Proto>
void emuRingAllReduce(int tid, int nthreads, ncclDevWorkColl* work) {
  ncclRing* const ring = &ncclShmem.channel.ring;
  int const n = ncclShmem.comm.nRanks;
  ssize_t chunkCount = work->chunkCount;
  ssize_t const loopCount = n * chunkCount;
  Primitives<T, RedOp, FanSymmetric<1>, 1, Proto, 0> prims(tid, nthreads, &ring->prev, &ring->next, work->sendbuff,
                                                           work->recvbuff, work->redOpArg, 0, 0, 0, work);
  for (ssize_t done = 0; done < work->partCount; done += loopCount) {
    ssize_t const left = work->partCount - done;
    if (left < loopCount) chunkCount = alignUp(divUp(left, n), ssize_t(16 / sizeof(T)));
    // The chunk that is `back` places behind ours in the ring, and how many elements it has.
    auto chunkAt = [&](int back, int* count) {
      ssize_t const offset = ssize_t((ring->index + n - back) % n) * chunkCount;
      *count = int(min(chunkCount, left - offset));
      return work->partOffset + done + offset;
    };
    int count;
    ssize_t at = chunkAt(1, &count);
    prims.directSend(at, at, count);
    for (int back = 2; back < n; back++) {
      at = chunkAt(back, &count);
      prims.directRecvReduceDirectSend(at, at, count);
    }
    at = chunkAt(0, &count);
    prims.directRecvReduceCopyDirectSend(at, at, count, /*postOp=*/true);
    for (int back = 1; back < n - 1; back++) {
      at = chunkAt(back, &count);
      prims.directRecvCopyDirectSend(at, at, count);
    }
    at = chunkAt(n - 1, &count);
    prims.directRecv(at, count);
  }
}

// The root sends its chunks down the ring; every rank keeps a copy and passes it on, but for the last.
template <typename T, typename RedOp, typename Proto>
void runRing(int tid, int nthreads, ncclDevWorkColl* work) {
  ncclRing* const ring = &ncclShmem.channel.ring;
  int const rank = ring->userRanks[0], nextRank = ring->userRanks[1];
  Primitives<T, RedOp, FanSymmetric<1>, 1, Proto, 0> prims(tid, nthreads, &ring->prev, &ring->next, work->sendbuff,
                                                           work->recvbuff, work->redOpArg, 0, 0, 0, work);
  for (ssize_t done = 0; done < work->partCount; done += work->chunkCount) {
    ssize_t const at = work->partOffset + done;
    int const count = int(min(work->chunkCount, work->partCount - done));
    if (rank == work->root) {
      if (work->sendbuff == work->recvbuff)
        prims.directSend(at, at, count);
      else
        prims.directCopySend(at, at, count);
    } else if (nextRank == work->root) {
      prims.directRecv(at, count);
    } else {
      prims.directRecvCopyDirectSend(at, at, count);
    }
  }
}

// Steps that a rank's network proxies count for a part, as NCCL's host side computes them.
inline int64_t emuAllReduceSteps(ncclDevWorkColl const& work, int nRanks) {
  return int64_t(divUp(work.partCount, nRanks * work.chunkCount)) * 2 * (nRanks - 1) * ALLREDUCE_CHUNKSTEPS;
}
inline int64_t emuBroadcastSteps(ncclDevWorkColl const& work) {
  return int64_t(divUp(work.partCount, work.chunkCount)) * BROADCAST_CHUNKSTEPS;
}

#endif  // UZIP_EMU_RING_H_
