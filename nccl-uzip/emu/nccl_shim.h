// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// Stand-ins for the NCCL device types and functions that prims_uzip.h uses, with NCCL's names and meaning, so that it compiles for
// the warp emulator without NCCL's source. Only the members that are used exist. ProtoPlain, at the end, is what the bits of UZIP
// are compared with: Simple's slices, steps and operand order, and nothing else.

#ifndef UZIP_NCCL_SHIM_H_
#define UZIP_NCCL_SHIM_H_

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#include "cuda_emu.h"

// --- Constants -----------------------------------------------------------------------------------------------------------

#define WARP_SIZE 32
#define MAXCHANNELS 64
#define NCCL_STEPS 8
#define NCCL_NUM_PROTOCOLS 3
#define NCCL_PROTO_SIMPLE 2
#define NCCL_MAX_CONNS 2
#define NCCL_MAX_GROUPS 16
#define NCCL_MAX_ARITY 32
#define NCCL_MAX_NTHREADS 640
#define NCCL_SIMPLE_MAX_NTHREADS 512
#define NCCL_SIMPLE_EXTRA_GROUP_IF_NTHREADS_GE (3 * WARP_SIZE)
#define NCCL_MODE_NORMAL 0
#define NCCL_MODE_OFFSET 1
#define COLL_UNROLL 4

#define ALLREDUCE_SLICESTEPS (NCCL_STEPS / 4)
#define ALLREDUCE_CHUNKSTEPS (NCCL_STEPS / 2)
#define BROADCAST_SLICESTEPS 1
#define BROADCAST_CHUNKSTEPS 1

template <typename A, typename B>
constexpr A divUp(A a, B b) {
  return A((a + A(b) - 1) / A(b));
}
template <typename A, typename B>
constexpr A roundUp(A a, B b) {
  return A(divUp(a, b) * A(b));
}
template <typename A, typename B>
constexpr A alignUp(A a, B b) {
  return roundUp(a, b);
}

// --- Connections, channels, communicator -----------------------------------------------------------------------------------

struct ncclConnFifo {
  int mode;
  int offset;
  ssize_t size;
  void* ptr;
};

struct ncclConnInfo {
  char* buffs[NCCL_NUM_PROTOCOLS];
  uint64_t* tail;
  uint64_t* head;
  int flags;
  int stepSize;  // bytes from one step's slot to the next
  struct ncclConnFifo* connFifo;
  uint64_t step;
  uint32_t uzipBackoff;
};

struct ncclRing {
  int prev, next;
  int* userRanks;
  int index;
};

struct ncclDevChannelPeer {
  struct ncclConnInfo send[NCCL_MAX_CONNS];
  struct ncclConnInfo recv[NCCL_MAX_CONNS];
};

struct ncclDevChannel {
  struct ncclDevChannelPeer** peers;  // by rank
  struct ncclRing ring;
};

struct ncclUzipDevComm;

struct ncclKernelComm {
  int rank;
  int nRanks;
  int buffSizes[NCCL_NUM_PROTOCOLS];
  uint32_t volatile* abortFlag;
  struct ncclUzipDevComm* uzip;
};

struct ncclDevWorkP2p;

// One channel's part of a collective, in elements.
struct ncclDevWorkColl {
  int root;
  void const* sendbuff;
  void* recvbuff;
  uint64_t redOpArg;
  ssize_t partOffset, partCount, chunkCount;
};

enum ncclFunc_t { ncclFuncBroadcast, ncclFuncAllReduce };
#define NCCL_ALGO_RING 1

template <ncclFunc_t Fn, typename T, typename RedOp, int Algo, int Proto>
struct RunWorkColl;

// Here a work structure already is one channel's.
template <typename Int>
inline void ncclCollCbdPart(ncclDevWorkColl* work, uint32_t /*channelId*/, int /*proto*/, int /*eltSize*/,
                            Int* /*count*/, Int* partOffset, Int* partCount, Int* chunkCount) {
  *partOffset = work->partOffset;
  *partCount = work->partCount;
  *chunkCount = work->chunkCount;
}

// --- Shared memory -------------------------------------------------------------------------------------------------------

struct ncclShmemGroup {
  void* userInput;
  void* userOutput;
  void* srcs[NCCL_MAX_ARITY + 1];
  void* dsts[NCCL_MAX_ARITY + 1];
  int32_t dstSizes[NCCL_MAX_ARITY + 1];
  uint64_t redOpArgs;
};

struct alignas(16) ncclShmemData {
  int channelId;
  int aborted;
  struct ncclKernelComm comm;
  struct ncclDevChannel channel;
  struct ncclShmemGroup groups[NCCL_MAX_GROUPS];
};
#define ncclShmem (*(ncclShmemData*)uzipEmuShared())

static constexpr size_t kEmuScratchBytes = 4112;  // a warp's share of NCCL's dynamic shared memory on sm_90
static constexpr size_t kEmuSharedBytes = sizeof(ncclShmemData) + (NCCL_MAX_NTHREADS / WARP_SIZE) * kEmuScratchBytes;

inline void* ncclScratchForWarp(int warp) {
  return (char*)uzipEmuShared() + sizeof(ncclShmemData) + size_t(warp) * kEmuScratchBytes;
}

// --- Memory accesses -----------------------------------------------------------------------------------------------------

inline uint64_t ld_volatile_global(uint64_t* ptr) { return __atomic_load_n(ptr, __ATOMIC_ACQUIRE); }
inline void st_relaxed_sys_global(uint64_t* ptr, uint64_t v) { __atomic_store_n(ptr, v, __ATOMIC_RELAXED); }
inline void fence_acq_rel_sys() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline int loadInt(int* ptr) { return __atomic_load_n(ptr, __ATOMIC_RELAXED); }

// Called in every spin of a loop that waits for a peer; lets everything else go first.
inline int checkAbort(int& abortCache, int const abortValue, int& spins) {
  if (abortCache & abortValue) return 1;
  spins += 1;
  uzipEmuYield();
  uint32_t const abort = *ncclShmem.comm.abortFlag;
  if (abort) {
    ncclShmem.aborted = int(abort);
    abortCache |= abortValue;
  }
  return int(abort);
}

// --- Floats --------------------------------------------------------------------------------------------------------------
//
// bf16 and f16 are computed in float and rounded to nearest even. A NaN result is the GPU's canonical one, whatever the operands:
// x86 would propagate the payload of either operand, as the compiler happens to order them.

struct __nv_bfloat16 {
  uint16_t bits;
};
struct half {
  uint16_t bits;
};

inline uint32_t emuBitsOf(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  return u;
}
inline float emuFloatOf(uint32_t u) {
  float f;
  memcpy(&f, &u, 4);
  return f;
}

inline float emuToFloat(float v) { return v; }
inline float emuToFloat(__nv_bfloat16 v) { return emuFloatOf(uint32_t(v.bits) << 16); }
inline float emuToFloat(half v) {
  uint32_t const magnitude = uint32_t(v.bits & 0x7fffu) << 13;
  float f = emuFloatOf(magnitude) * 0x1p112f;
  if ((v.bits & 0x7c00u) == 0x7c00u) f = emuFloatOf(magnitude | 0x7f800000u);
  return emuFloatOf(emuBitsOf(f) | uint32_t(v.bits & 0x8000u) << 16);
}

template <typename T>
T emuRound(float v);
template <>
inline float emuRound<float>(float v) {
  return v == v ? v : emuFloatOf(0x7fffffffu);
}
template <>
inline __nv_bfloat16 emuRound<__nv_bfloat16>(float v) {
  uint32_t const u = emuBitsOf(v);
  return __nv_bfloat16{uint16_t(v == v ? (u + 0x7fffu + (u >> 16 & 1)) >> 16 : 0x7fffu)};
}
template <>
inline half emuRound<half>(float v) {
  uint32_t const u = emuBitsOf(v), magnitude = u & 0x7fffffffu;
  uint32_t h;
  if (magnitude > 0x7f800000u) return half{0x7fff};
  if (magnitude >= 0x47800000u)
    h = 0x7c00u;  // 2^16 and more
  else if (magnitude < 0x38800000u)
    h = emuBitsOf(emuFloatOf(magnitude) + 0.5f) - 0x3f000000u;  // subnormal: 0.5 has its ulp
  else
    h = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1)) >> 13;
  return half{uint16_t(h | (u >> 16 & 0x8000u))};
}

// --- Reductions ----------------------------------------------------------------------------------------------------------

template <typename T>
struct FuncCopy {
  using EltType = T;
  FuncCopy(uint64_t = 0) {}
};
template <typename T>
struct FuncSum {
  using EltType = T;
  FuncSum(uint64_t = 0) {}
};
template <typename T>
struct FuncProd {
  using EltType = T;
  FuncProd(uint64_t = 0) {}
};
template <typename T>
struct FuncMinMax {
  using EltType = T;
  bool isMinNotMax;
  FuncMinMax(uint64_t opArg = 0) : isMinNotMax((opArg & 1) == 0) {}
};
template <typename T>
struct FuncPreMulSum {
  using EltType = T;
  float scalar;
  FuncPreMulSum(uint64_t opArg = 0) {
    T v;
    memcpy(&v, &opArg, sizeof(T));
    scalar = emuToFloat(v);
  }
};

template <typename T>
inline T emuReduce(FuncCopy<T> const&, T a, T) {
  return a;
}
template <typename T>
inline T emuReduce(FuncSum<T> const&, T a, T b) {
  return emuRound<T>(emuToFloat(a) + emuToFloat(b));
}
template <typename T>
inline T emuReduce(FuncProd<T> const&, T a, T b) {
  return emuRound<T>(emuToFloat(a) * emuToFloat(b));
}
// A NaN loses against a number, and -0 is less than +0.
template <typename T>
inline T emuReduce(FuncMinMax<T> const& fn, T a, T b) {
  float const x = emuToFloat(a), y = emuToFloat(b);
  if (x != x) return y == y ? b : emuRound<T>(x);
  if (y != y) return a;
  bool const less = x < y || (x == y && (emuBitsOf(x) >> 31) > (emuBitsOf(y) >> 31));
  return less == fn.isMinNotMax ? a : b;
}
template <typename T>
inline T emuReduce(FuncPreMulSum<T> const&, T a, T b) {
  return emuReduce(FuncSum<T>(), a, b);
}

template <typename Fn>
inline typename Fn::EltType emuPreOp(Fn const&, typename Fn::EltType v) {
  return v;
}
template <typename T>
inline T emuPreOp(FuncPreMulSum<T> const& fn, T v) {
  return emuRound<T>(emuToFloat(v) * fn.scalar);
}

// N bytes that hold whole elements.
template <int N>
struct alignas(N) BytePack {
  union {
    uint8_t u8[N];
    uint16_t u16[N / 2];
    uint32_t u32[N / 4];
  };
};

template <typename Fn, typename Pack>
inline Pack applyReduce(Fn const& fn, Pack a, Pack b) {
  using T = typename Fn::EltType;
  T x[sizeof(Pack) / sizeof(T)], y[sizeof(Pack) / sizeof(T)];
  memcpy(x, &a, sizeof(Pack));
  memcpy(y, &b, sizeof(Pack));
  for (size_t i = 0; i < sizeof(Pack) / sizeof(T); i++) x[i] = emuReduce(fn, x[i], y[i]);
  memcpy(&a, x, sizeof(Pack));
  return a;
}
template <typename Fn, typename Pack>
inline Pack applyPreOp(Fn const& fn, Pack a) {
  using T = typename Fn::EltType;
  T x[sizeof(Pack) / sizeof(T)];
  memcpy(x, &a, sizeof(Pack));
  for (size_t i = 0; i < sizeof(Pack) / sizeof(T); i++) x[i] = emuPreOp(fn, x[i]);
  memcpy(&a, x, sizeof(Pack));
  return a;
}
// Only NCCL's integer averages have a postOp.
template <typename Fn, typename Pack>
inline Pack applyPostOp(Fn const&, Pack a) {
  return a;
}

// Reduces nElts elements of all sources, in their order, preOp on the first PreOpSrcs, into all destinations. Threads take
// neighbouring pieces of 64 bytes. Sources and destinations may be the same buffer.
template <int Unroll, typename RedFn, typename T, int MultimemSrcs, int MinSrcs, int MaxSrcs, int MultimemDsts,
          int MinDsts, int MaxDsts, int PreOpSrcs>
inline void reduceCopy(int thread, int nThreads, uint64_t redArg, bool postOp, int nSrcs, void** srcs, int nDsts,
                       void** dsts, ssize_t nElts) {
  static_assert(MultimemSrcs == 0 && MultimemDsts == 0, "no multimem here");
  static_assert(PreOpSrcs <= 1, "only the local input has a preOp");
  constexpr ssize_t Piece = 64 / ssize_t(sizeof(T));
  RedFn const fn(redArg);
  ssize_t const pieces = divUp(nElts, Piece), each = divUp(pieces, ssize_t(nThreads));
  ssize_t const end = min(nElts, (thread + 1) * each * Piece);
  for (ssize_t i = thread * each * Piece; i < end; i += Piece) {
    ssize_t const n = min(Piece, end - i);
    T acc[Piece], in[Piece];
    memcpy(acc, (T const*)srcs[0] + i, size_t(n) * sizeof(T));
    if (PreOpSrcs == 1)
      for (ssize_t k = 0; k < n; k++) acc[k] = emuPreOp(fn, acc[k]);
    for (int s = 1; s < nSrcs; s++) {
      memcpy(in, (T const*)srcs[s] + i, size_t(n) * sizeof(T));
      for (ssize_t k = 0; k < n; k++) acc[k] = emuReduce(fn, acc[k], in[k]);
    }
    for (int d = 0; d < nDsts; d++) memcpy((T*)dsts[d] + i, acc, size_t(n) * sizeof(T));
  }
  (void)postOp;
}

// --- Primitives ----------------------------------------------------------------------------------------------------------

template <int Receives, int Sends>
struct FanAsymmetric {
  static constexpr int MaxRecv = Receives;
  static constexpr int MaxSend = Sends;
};
template <int Both>
using FanSymmetric = FanAsymmetric<Both, Both>;

template <typename T, typename RedOp, typename Fan, int Direct, typename Proto, int P2p, bool isNetOffload = false>
class Primitives;

template <int SlicePerChunk_, int StepPerSlice_>
struct ProtoPlain {
  static constexpr int SlicePerChunk = SlicePerChunk_, StepPerSlice = StepPerSlice_;
};

// A ring's primitives over slots of plain values. Thread 0 waits for both peers, the last thread posts to both, all move data.
template <typename T, typename RedOp, typename Fan, int Direct, int SlicePerChunk, int StepPerSlice, int P2p,
          bool isNetOffload>
class Primitives<T, RedOp, Fan, Direct, ProtoPlain<SlicePerChunk, StepPerSlice>, P2p, isNetOffload> {
  int const tid, nthreads, stepElems;
  T const* const input;
  T* const output;
  uint64_t const redOpArg;
  ncclConnInfo *recvConn = nullptr, *sendConn = nullptr;
  uint64_t recvStep = 0, sendStep = 0;
  int flags = 0;

  static constexpr int Aborted = 1;

  void waitFor(uint64_t* counter, uint64_t ahead, uint64_t value) {
    for (int spins = 0; ld_volatile_global(counter) + ahead < value;) {
      if (checkAbort(flags, Aborted, spins)) return;
    }
  }
  static T* slot(ncclConnInfo const* conn, uint64_t step) {
    return (T*)(conn->buffs[NCCL_PROTO_SIMPLE] + (step % NCCL_STEPS) * uint64_t(conn->stepSize));
  }

  // Recv, Send: uses that peer. In: reads the local input. Out: writes the local output.
  void op(bool recv, bool send, bool in, bool out, ssize_t inIx, ssize_t outIx, int nelem) {
    if (nelem < 0) nelem = 0;
    int const sliceElems = max(divUp(nelem, 16 * SlicePerChunk) * 16, stepElems * StepPerSlice / 32);
    int offset = 0;
    for (int slice = 0; slice < SlicePerChunk; slice++) {
      int const n = min(sliceElems, nelem - offset);
      if (tid == 0 && recv) waitFor(recvConn->tail, 0, recvStep + StepPerSlice);
      if (tid == 0 && send) waitFor(sendConn->head, NCCL_STEPS, sendStep + StepPerSlice);
      barrier_sync(15, nthreads);
      if (n > 0 && !ncclShmem.aborted) {
        void *srcs[2], *dsts[2];
        int nSrcs = 0, nDsts = 0;
        if (in) srcs[nSrcs++] = (void*)(input + inIx + offset);
        if (recv) srcs[nSrcs++] = slot(recvConn, recvStep);
        if (out) dsts[nDsts++] = output + outIx + offset;
        if (send) dsts[nDsts++] = slot(sendConn, sendStep);
        if (in)
          reduceCopy<1, RedOp, T, 0, 1, 2, 0, 1, 2, 1>(tid, nthreads, redOpArg, false, nSrcs, srcs, nDsts, dsts, n);
        else
          reduceCopy<1, RedOp, T, 0, 1, 2, 0, 1, 2, 0>(tid, nthreads, redOpArg, false, nSrcs, srcs, nDsts, dsts, n);
      }
      barrier_sync(15, nthreads);
      if (tid == nthreads - 1 && send) {
        if (sendConn->connFifo != nullptr)
          sendConn->connFifo[sendStep % NCCL_STEPS].size = ssize_t(n) * ssize_t(sizeof(T));
        fence_acq_rel_sys();
        st_relaxed_sys_global(sendConn->tail, sendStep + StepPerSlice);
      }
      if (tid == nthreads - 1 && recv) st_relaxed_sys_global(recvConn->head, recvStep + StepPerSlice);
      if (send) sendStep += StepPerSlice;
      if (recv) recvStep += StepPerSlice;
      offset += n;
    }
  }

 public:
  Primitives(int tid, int nthreads, int const* recvPeers, int const* sendPeers, void const* inputBuf, void* outputBuf,
             uint64_t redOpArg, uint8_t /*group*/ = 0, uint8_t connIndexRecv = 0, uint8_t connIndexSend = 0,
             ncclDevWorkColl* = nullptr)
      : tid(tid),
        nthreads(nthreads),
        stepElems(int(ncclShmem.comm.buffSizes[NCCL_PROTO_SIMPLE] / NCCL_STEPS / sizeof(T))),
        input((T const*)inputBuf),
        output((T*)outputBuf),
        redOpArg(redOpArg) {
    if (Fan::MaxRecv != 0 && recvPeers[0] != -1) {
      recvConn = &ncclShmem.channel.peers[recvPeers[0]]->recv[connIndexRecv];
      recvStep = roundUp(recvConn->step, SlicePerChunk * StepPerSlice);
    }
    if (Fan::MaxSend != 0 && sendPeers[0] != -1) {
      sendConn = &ncclShmem.channel.peers[sendPeers[0]]->send[connIndexSend];
      sendStep = roundUp(sendConn->step, SlicePerChunk * StepPerSlice);
    }
    barrier_sync(15, nthreads);
    if (tid == 0 && recvConn != nullptr)
      st_relaxed_sys_global(recvConn->head, recvStep);  // credits, in case step was rounded up
  }
  ~Primitives() {
    if (tid == 0 && recvConn != nullptr) recvConn->step = recvStep;
    if (tid == 0 && sendConn != nullptr) sendConn->step = sendStep;
    barrier_sync(15, nthreads);
  }

  void directSend(ssize_t inIx, ssize_t, int n) { op(false, true, true, false, inIx, 0, n); }
  void directCopySend(ssize_t inIx, ssize_t outIx, int n) { op(false, true, true, true, inIx, outIx, n); }
  void directRecv(ssize_t outIx, int n) { op(true, false, false, true, 0, outIx, n); }
  void directRecvCopyDirectSend(ssize_t, ssize_t outIx, int n) { op(true, true, false, true, 0, outIx, n); }
  void directRecvReduceDirectSend(ssize_t inIx, ssize_t, ssize_t n) { op(true, true, true, false, inIx, 0, int(n)); }
  void directRecvReduceCopyDirectSend(ssize_t inIx, ssize_t outIx, ssize_t n, bool) {
    op(true, true, true, true, inIx, outIx, int(n));
  }
};

#endif  // UZIP_NCCL_SHIM_H_
