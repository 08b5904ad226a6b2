// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// All-reduce over UZIP: the ring algorithm with one send of lookahead. Chunks and slices, and what is reduced with what in which
// order, are those of upstream's ring over Simple, or results would not be equal. Only the order in which one rank works on
// different chunks differs: a ring that waits for the last chunk of a loop before it sends the first one of the next leaves the
// wire idle for as long as a slice takes to be decoded, reduced and encoded. Here that first send goes before the loop's last
// receive.
//
// Credits: a chunk takes half of a connection's steps. When a rank sends ahead, its next rank may still hold the one chunk
// sent before, which leaves just enough steps; that rank consumes it after a send ahead of its own, which waits for nothing else.

#ifndef UZIP_ALL_REDUCE_H_
#define UZIP_ALL_REDUCE_H_

template <typename T, typename RedOp, typename Proto>
__device__ __forceinline__ void uzipRunRingAllReduce(int tid, int nthreads, struct ncclDevWorkColl* work) {
  static_assert(2 * Proto::SlicePerChunk * Proto::StepPerSlice <= NCCL_STEPS,
                "two chunks must fit the steps of a connection");
  ncclRing* const ring = &ncclShmem.channel.ring;
  int const nranks = ncclShmem.comm.nRanks;
  ssize_t gridOffset, channelCount, chunkCount;
  ncclCollCbdPart(work, ncclShmem.channelId, Proto::Id, sizeof(T), (ssize_t*)nullptr, &gridOffset, &channelCount,
                  &chunkCount);
  ssize_t const loopCount = nranks * chunkCount;

  Primitives<T, RedOp, FanSymmetric<1>, 1, Proto, 0> prims(tid, nthreads, &ring->prev, &ring->next, work->sendbuff,
                                                           work->recvbuff, work->redOpArg, 0, 0, 0, work);

  // Where the chunk is that this rank handles `behind` places behind its own in the ring, in the loop that begins at `loop`.
  struct Place {
    ssize_t offset;
    int nelem;
  };
  auto placeOf = [&] __device__(ssize_t loop, int behind) -> Place {
    ssize_t const left = channelCount - loop;
    ssize_t const chunk = left < loopCount ? alignUp(divUp(left, nranks), 16 / sizeof(T)) : chunkCount;
    int index = ring->index + nranks - behind;
    index -= index >= nranks ? nranks : 0;
    return {gridOffset + loop + index * chunk, (int)min(chunk, left - index * chunk)};
  };

  if (channelCount > 0) {
    Place const p = placeOf(0, 1);
    prims.send(p.offset, p.nelem);
  }
  for (ssize_t loop = 0; loop < channelCount; loop += loopCount) {
    for (int behind = 2; behind < nranks; behind++) {
      Place const p = placeOf(loop, behind);
      prims.recvReduceSend(p.offset, p.nelem);
    }
    {
      Place const p = placeOf(loop, nranks);  // this rank's own chunk: the result
      prims.recvReduceCopySend(p.offset, p.offset, p.nelem, /*postOp=*/true);
    }
    for (int behind = 1; behind < nranks - 1; behind++) {
      Place const p = placeOf(loop, behind);
      prims.recvCopySend(p.offset, p.nelem);
    }
    if (loop + loopCount < channelCount) {
      Place const p = placeOf(loop + loopCount, 1);
      prims.send(p.offset, p.nelem);
    }
    Place const p = placeOf(loop, nranks - 1);
    prims.recv(p.offset, p.nelem);
  }
}

template <typename T, typename RedOp>
struct RunWorkColl<ncclFuncAllReduce, T, RedOp, NCCL_ALGO_RING, NCCL_PROTO_UZIP> {
  __device__ __forceinline__ void run(int tid, int nthreads, struct ncclDevWorkColl* work) {
    using Proto = ProtoUzip<ALLREDUCE_CHUNKSTEPS / ALLREDUCE_SLICESTEPS, ALLREDUCE_SLICESTEPS>;
    uzipRunRingAllReduce<T, RedOp, Proto>(tid, nthreads, work);
  }
};

#endif  // UZIP_ALL_REDUCE_H_
