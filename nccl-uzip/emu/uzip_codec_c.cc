// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0

#include "uzip_codec_c.h"

#include <limits.h>
#include <stdlib.h>

#include <memory>

#include "cuda_emu.h"
#include "nccl_shim.h"

#include "../src/device/prims_uzip.h"

// A slot is made, or read, by a block that sends, or receives, one slice over a connection whose FIFO is that slot. The slice is
// a copy collective's, so that any number of bytes is allowed.

namespace {

using Prims = ProtoUzip</*SlicePerChunk=*/1, /*StepPerSlice=*/1>;
constexpr int kMaxWarps = NCCL_SIMPLE_MAX_NTHREADS / WARP_SIZE;

// Memory of exactly n bytes, 128-byte aligned, so that AddressSanitizer sees any access behind it.
struct Free {
  void operator()(char* p) const { free(p); }
};
std::unique_ptr<char, Free> exactBytes(uint64_t n) {
  void* p = nullptr;
  if (posix_memalign(&p, 128, n == 0 ? 1 : n) != 0) abort();
  return std::unique_ptr<char, Free>((char*)p);
}

struct OneSlice {
  ncclConnInfo conn = {};
  ncclConnFifo fifo[NCCL_STEPS] = {};
  uint64_t head = 0, tail = 0;
  uint32_t volatile abortFlag = 0;
  ncclUzipErrorRecord error = {};
  ncclUzipDevComm devComm = {};

  OneSlice(char* slot, uint64_t slotBytes) {
    for (ncclConnFifo& f : fifo) f.size = -1;
    conn.buffs[NCCL_PROTO_SIMPLE] = slot;
    conn.head = &head;
    conn.tail = &tail;
    conn.flags = NCCL_UZIP_LINK;
    conn.stepSize = int(min(slotBytes, uint64_t(INT_MAX)));
    conn.connFifo = fifo;
    devComm.error = &error;
    devComm.typeMask = 0xffffffffu;
  }

  // Runs `body` on a block of nwarps warps of workers, as rank 0 connected with rank 1.
  template <bool Send, typename Body>
  void run(int nwarps, uint32_t rawBytes, Body const& body) {
    // From three warps on, a sender keeps one of its warps for posting.
    int const nthreads = (nwarps + (Send && nwarps >= 3 ? 1 : 0)) * WARP_SIZE;
    ncclDevChannelPeer peers[2] = {};
    (Send ? peers[1].send : peers[1].recv)[0] = conn;
    ncclDevChannelPeer* peerPtrs[2] = {&peers[0], &peers[1]};
    EmuOptions options;
    options.sharedBytes = kEmuSharedBytes;
    EmuBlock block(nthreads, body, options);
    ncclShmemData* const shm = (ncclShmemData*)block.shared();
    shm->comm.nRanks = 2;
    shm->comm.buffSizes[NCCL_PROTO_SIMPLE] = int(min(uint64_t(roundUp(rawBytes, 16u)) * NCCL_STEPS, uint64_t(INT_MAX)));
    shm->comm.abortFlag = &abortFlag;
    shm->comm.uzip = &devComm;
    shm->channel.peers = peerPtrs;
    if (block.run() != EmuState::Done) {
      block.dump();
      abort();
    }
    conn = (Send ? peers[1].send : peers[1].recv)[0];
  }
};

bool goodArguments(void const* a, void const* b, uint32_t rawBytes, int nwarps) {
  return a != nullptr && b != nullptr && rawBytes > 0 && rawBytes <= UZIP_LIB_MAX_RAW_BYTES && nwarps >= 1 &&
         nwarps <= kMaxWarps;
}

}  // namespace

int uzip_encode_slot(int type, void const* raw, uint32_t rawBytes, void* slot, uint64_t capacity, uint32_t* wireBytes,
                     int nwarps, uint32_t* backoff) {
  if (!goodArguments(raw, slot, rawBytes, nwarps) || wireBytes == nullptr || type < 0 || type >= UZIP_TYPE_COUNT) {
    return UZIP_LIB_ERR_ARGUMENT;
  }
  uint64_t const bytes = uzipMaxWireBytes(rawBytes);
  if (capacity < bytes) return UZIP_ERR_CAPACITY;
  auto own = exactBytes(bytes);
  OneSlice slice(own.get(), bytes);
  if (backoff != nullptr) slice.conn.uzipBackoff = *backoff;
  slice.run<true>(nwarps, rawBytes, [=] {
    int const none[1] = {-1}, peer[1] = {1};
    Primitives<int8_t, FuncCopy<int8_t>, FanAsymmetric<0, 1>, 0, Prims, 0> prims(
        int(threadIdx.x), int(blockDim.x), none, peer, raw, nullptr, uint64_t(type));
    prims.send(0, int(rawBytes));
  });
  if (slice.fifo[0].size < 0 || uint64_t(slice.fifo[0].size) > bytes) abort();
  *wireBytes = uint32_t(slice.fifo[0].size);
  memcpy(slot, own.get(), *wireBytes);
  if (backoff != nullptr) *backoff = slice.conn.uzipBackoff;
  return UZIP_OK;
}

int uzip_decode_slot(void const* slot, uint64_t slotBytes, void* raw, uint32_t rawBytes, int nwarps) {
  if (!goodArguments(slot, raw, rawBytes, nwarps)) return UZIP_LIB_ERR_ARGUMENT;
  if (slotBytes < UZIP_HEADER_BYTES) {  // real slots always have room for a header
    memset(raw, 0, rawBytes);
    return UZIP_ERR_CAPACITY;
  }
  auto own = exactBytes(slotBytes);
  memcpy(own.get(), slot, slotBytes);
  OneSlice slice(own.get(), slotBytes);
  slice.tail = 1;
  slice.run<false>(nwarps, rawBytes, [=] {
    int const none[1] = {-1}, peer[1] = {1};
    Primitives<int8_t, FuncCopy<int8_t>, FanAsymmetric<1, 0>, 0, Prims, 0> prims(int(threadIdx.x), int(blockDim.x),
                                                                                 peer, none, nullptr, raw, 0);
    prims.recv(0, int(rawBytes));
  });
  return int(slice.error.code);
}

uint64_t uzip_max_wire_bytes(uint64_t rawBytes) { return uzipMaxWireBytes(rawBytes); }
uint32_t uzip_step_pad(uint32_t stepBytes) { return uzipStepPad(stepBytes); }
