// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// The UZIP protocol: Simple's steps, credits, slices and operand order, with slots that carry compressed tiles on framed links.
// Included at the end of primitives.h, and by the warp emulator behind its stand-ins for the few NCCL types used here.
//
// Roles and barriers are those of prims_simple.h: one thread waits for each peer, one posts to each peer, `nworkers` threads move
// data. What differs:
//   - a slice's wire size is known only once it is encoded, so the posting thread writes connFifo[].size, not the waiting one;
//   - the waiting threads also parse (receive) and decide (send) the framing of the slice, and publish it in UzipSliceShm;
//   - workers take whole tiles, a warp a tile, in rounds. Between the rounds one sub-barrier lets every warp learn where in the
//     slot its tile's variable part belongs, which keeps the slice contiguous on the wire.
//
// docs/DESIGN.md, "One slice", walks through it; docs/FORMAT.md has the bytes.

#ifndef UZIP_PRIMS_H_
#define UZIP_PRIMS_H_

#include "../codec/uzip_codec.h"
#include "../include/uzip_dev.h"

// Slices below this many bytes travel raw: header and table would eat what the exponents save.
static constexpr uint32_t kUzipMinSliceBytes = 4096;
// So do slices whose last tile would be padded by more than this part of the slice, which bounds what a slice that turns out
// to be incompressible can grow by.
static constexpr uint32_t kUzipMaxPadding = 32;
// An encoded slice that saves less than 1/64 counts as incompressible. The connection then sends this many slices raw at most
// (1, 2, 4, ... up to it) before it tries again.
static constexpr uint32_t kUzipMaxBackoff = 64;

template <int SlicePerChunk_1, int StepPerSlice_1, int Unroll_1 = COLL_UNROLL>
struct ProtoUzip {
  static constexpr int Id = NCCL_PROTO_SIMPLE;  // for chunking, and for the host, this is Simple
  static constexpr int SlicePerChunk = SlicePerChunk_1;
  static constexpr int StepPerSlice = StepPerSlice_1;
  static constexpr int Unroll = Unroll_1;
  static constexpr int MultimemSrcs = 0;
  static constexpr int MultimemDsts = 0;

  // Payload bytes in one step of the FIFO. The stride between steps is larger: ncclConnInfo::stepSize.
  __device__ static int calcBytePerStep() { return ncclShmem.comm.buffSizes[NCCL_PROTO_SIMPLE] / NCCL_STEPS; }
  __device__ static int calcBytePerGrain() { return sizeof(uint64_t); }
  static constexpr int MaxGroupWidth = 2;
};

// Which float type a reduction's T is on the wire. Copy collectives move int8_t and learn it from the task or the slot.
template <typename T>
struct UzipTypeOf {
  static constexpr int Type = UZIP_TYPE_NONE;
};
template <>
struct UzipTypeOf<half> {
  static constexpr int Type = UZIP_TYPE_F16;
};
template <>
struct UzipTypeOf<__nv_bfloat16> {
  static constexpr int Type = UZIP_TYPE_BF16;
};
template <>
struct UzipTypeOf<float> {
  static constexpr int Type = UZIP_TYPE_F32;
};

// How a slice lies in a slot.
enum : uint32_t {
  kUzipPlain = 0,  // values as they are: unframed link, or UZIP_CODEC_RAW
  kUzipLevels = 1,  // UZIP_CODEC_LEVELS
  kUzipBad = 2  // refused; the slice counts as zeros
};

// What a primitives group shares about the slice in work, behind the codec scratch of its first warp.
struct UzipSliceShm {
  // Incoming slice, written by the WaitRecv thread.
  char* inSlot;
  uint64_t inStep;
  int inPeer;
  uint32_t inKind, inType, inTiles, inVarBytes, inWireBytes, inFramed;
  // Outgoing slice, written by the WaitSend thread.
  char* outSlot;
  uint32_t outKind, outFramed, outCapacity;
  uint32_t bad;  // a tile of the incoming slice was refused
  uint16_t entries[2][32];  // the round's table entries, by warp; two rounds may be in use at once
  uint32_t sendSlices, sendSlicesRaw, fwdSlices, recvSlices;
  uint64_t sendRaw, sendWire, recvRaw, recvWire;
};

// The first error of a communicator; later ones are dropped. Rare, so kept out of line.
static __device__ __noinline__ void uzipReportError(uint32_t code, int peer, uint32_t detail, uint64_t step) {
  struct ncclUzipDevComm* uzip = ncclShmem.comm.uzip;
  if (uzip == nullptr || atomicCAS(&uzip->errorClaim, 0u, 1u) != 0u) return;
  struct ncclUzipErrorRecord volatile* error = uzip->error;
  error->channel = ncclShmem.channelId;
  error->peer = peer;
  error->detail = detail;
  error->step = step;
  __threadfence_system();
  error->code = code;
}

template <typename T, typename RedOp, typename Fan, int Direct, int SlicePerChunk, int StepPerSlice, int Unroll,
          int P2p, bool isNetOffload>
class Primitives<T, RedOp, Fan, Direct, ProtoUzip<SlicePerChunk, StepPerSlice, Unroll>, P2p, isNetOffload> {
  static constexpr int MaxRecv = Fan::MaxRecv, MaxSend = Fan::MaxSend;
  static_assert(MaxRecv <= 1 && MaxSend <= 1, "UZIP runs rings");
  static constexpr int Input = 0, Output = 1;
  static constexpr int RoleWaitRecv = 0x04, RoleWaitSend = 0x08, RolePostSend = 0x10, RolePostRecv = 0x20,
                       Aborted = 0x40, ConnFifoEnabled = 0x100, Framed = 0x8000;
  static constexpr int TypeOfT = UzipTypeOf<T>::Type;
  static constexpr bool Bytes = TypeOfT == UZIP_TYPE_NONE;  // a copy collective: T is a byte

  int const tid, tidInBlock;
  int const nthreads;
  int nworkers;
  int const stepSize;  // payload of a step, in elements
  int flags;
  int const group;
  int peer;
  uint32_t slicesDone;  // parity picks the word through which the posting thread learns a slice's wire size
  uint32_t backoff;  // WaitSend: low half slices still to send raw, high half how many the next failure costs
  uint64_t step;
  struct ncclConnInfo* conn;
  struct ncclConnFifo* connFifo;
  char* connFifoBuff;
  uint64_t* connStepPtr;
  uint64_t connStepCache;  // last seen value of *connStepPtr
  int connStride;  // bytes from one step's slot to the next

  __device__ void barrier() {
    if (nthreads == WARP_SIZE)
      __syncwarp();
    else
      barrier_sync(15 - group, nthreads);
  }
  __device__ static __forceinline__ void workersBarrier(int nworkers, int name) {
    if (nworkers == WARP_SIZE)
      __syncwarp();
    else
      barrier_sync(name, nworkers);
  }
  __device__ int workersBarrierName() { return 15 - group - (nworkers != nthreads ? 1 : 0); }
  __device__ void subBarrier() { workersBarrier(nworkers, workersBarrierName()); }

  __device__ UzipSliceShm* sliceShm() {
    static_assert(sizeof(UzipWarpScratch) + sizeof(UzipSliceShm) <= 3072, "must fit a warp's scratch on every arch");
    return (UzipSliceShm*)((char*)ncclScratchForWarp((tidInBlock - tid) / WARP_SIZE) + sizeof(UzipWarpScratch));
  }

  // --- Framing -----------------------------------------------------------------------------------------------------------

  // WaitRecv thread: reads and checks the header of the slot that just arrived. `bytes` is what the slice must hold.
  __device__ void parseHeader(UzipSliceShm* shm, char* slot, uint32_t bytes) {
    shm->inSlot = slot;
    shm->inStep = step;
    shm->inPeer = peer;
    shm->inFramed = (flags & Framed) != 0;
    shm->inKind = kUzipPlain;
    shm->inWireBytes = bytes;
    shm->bad = 0;
    if (!(flags & Framed)) return;

    UzipQuad const a = uzipLoadQuad(slot), b = uzipLoadQuad(slot + 16);
    uint32_t const codec = a.w[1] & 0xff, type = (a.w[1] >> 8) & 0xff, slotFlags = (a.w[1] >> 16) & 0xff,
                   tail = a.w[1] >> 24;
    uint32_t const rawBytes = a.w[2], wireBytes = a.w[3], varBytes = b.w[0], reserved = b.w[1];
    uint32_t const capacity = uint32_t(StepPerSlice * connStride);
    uint32_t error = UZIP_OK, detail = 0, tiles = 0;
    if (a.w[0] != UZIP_MAGIC) {
      error = UZIP_ERR_MAGIC, detail = a.w[0];
    } else if (slotFlags & UZIP_SLOT_POISON) {
      error = UZIP_ERR_POISON;
    } else if (slotFlags != 0 || reserved != 0) {
      error = UZIP_ERR_HEADER, detail = slotFlags;
    } else if (rawBytes != bytes) {
      error = UZIP_ERR_LENGTH, detail = rawBytes;
    } else if (wireBytes > capacity) {
      error = UZIP_ERR_CAPACITY, detail = wireBytes;
    } else if (codec == UZIP_CODEC_RAW) {
      if (type != UZIP_TYPE_NONE || tail != 0 || varBytes != 0 || wireBytes != UZIP_HEADER_BYTES + rawBytes) {
        error = UZIP_ERR_HEADER, detail = a.w[1];
      }
    } else if (codec == UZIP_CODEC_LEVELS && type != UZIP_TYPE_NONE && type < UZIP_TYPE_COUNT &&
               (Bytes || type == uint32_t(TypeOfT))) {
      uint32_t const elementBytes = uzipElementBytes(type);
      tiles = uzipTiles(rawBytes / elementBytes);
      // varBytes is at most a slot, so the sum cannot wrap.
      if (tail != rawBytes % elementBytes || tiles == 0 || varBytes > capacity || varBytes % 4 != 0 ||
          wireBytes != uzipOffVar(tiles, type) + varBytes) {
        error = UZIP_ERR_HEADER, detail = wireBytes;
      }
      shm->inKind = kUzipLevels;
    } else {
      error = UZIP_ERR_HEADER, detail = a.w[1];
    }
    shm->inType = type;
    shm->inTiles = tiles;
    shm->inVarBytes = varBytes;
    shm->inWireBytes = wireBytes;
    if (error != UZIP_OK) {
      shm->inKind = kUzipBad;
      shm->inWireBytes = UZIP_HEADER_BYTES;
      uzipReportError(error, peer, detail, step);
    }
  }

  // WaitSend thread: decides how the slice that is about to be made travels. Only what this end knows goes in; slots describe
  // themselves.
  __device__ void decideSend(UzipSliceShm* shm, char* slot, uint32_t bytes) {
    shm->outSlot = slot;
    shm->outFramed = (flags & Framed) != 0;
    shm->outCapacity = uint32_t(StepPerSlice * connStride);
    bool encode = false;
    if (flags & Framed) {
      uint32_t const type = Bytes ? sendType() : uint32_t(TypeOfT);
      uint32_t const elems = bytes / uzipElementBytes(type);
      encode = type != UZIP_TYPE_NONE && (ncclShmem.comm.uzip->typeMask >> type & 1) && bytes >= kUzipMinSliceBytes &&
               uzipTiles(elems) * UZIP_TILE_VALUES - elems <= elems / kUzipMaxPadding;
      if (encode && (backoff & 0xffff) != 0) {
        backoff -= 1;
        encode = false;
      }
    }
    shm->outKind = encode ? kUzipLevels : kUzipPlain;
  }

  // Float type of the bytes a copy collective sends: the task carries it in redOpArg, which FuncCopy ignores.
  __device__ uint32_t sendType() {
    uint64_t arg = ncclShmem.groups[group].redOpArgs;
    return arg < UZIP_TYPE_COUNT ? uint32_t(arg) : uint32_t(UZIP_TYPE_NONE);
  }

  __device__ static void writeHeader(char* slot, uint32_t codec, uint32_t type, uint32_t slotFlags, uint32_t rawBytes,
                                     uint32_t wireBytes, uint32_t varBytes, uint32_t tailBytes, uint64_t tail) {
    UzipQuad a = {{UZIP_MAGIC, codec | type << 8 | slotFlags << 16 | tailBytes << 24, rawBytes, wireBytes}};
    UzipQuad b = {{varBytes, 0, uint32_t(tail), uint32_t(tail >> 32)}};
    uzipStoreQuad(slot, a);
    uzipStoreQuad(slot + 16, b);
  }

  // --- Steps and credits (as prims_simple.h) -------------------------------------------------------------------------------

  template <int Recv, int Send, int Src, int Dst>
  __device__ __forceinline__ void waitPeer(int nelts) {
    bool const isSendNotRecv = (Send && Recv) ? (flags & RoleWaitSend) : Send;
    if (flags & (Recv * RoleWaitRecv | Send * RoleWaitSend)) {
      int spins = 0;
      while (connStepCache + (isSendNotRecv ? NCCL_STEPS : 0) < step + StepPerSlice) {
        connStepCache = ld_volatile_global(connStepPtr);
        if (checkAbort(flags, Aborted, spins)) break;
      }
      if (nelts > 0 && !(flags & Aborted)) {
        UzipSliceShm* shm = sliceShm();
        char* slot = connFifoBuff + (step % NCCL_STEPS) * connStride;
        if ((flags & ConnFifoEnabled) && connFifo[step % NCCL_STEPS].mode == NCCL_MODE_OFFSET) {
          slot = connFifoBuff + loadInt(&connFifo[step % NCCL_STEPS].offset);
        }
        if (isSendNotRecv) {
          decideSend(shm, slot, uint32_t(nelts * sizeof(T)));
          ncclShmem.groups[group].dsts[Dst] = slot + (shm->outFramed ? UZIP_HEADER_BYTES : 0);
        } else {
          parseHeader(shm, slot, uint32_t(nelts * sizeof(T)));
          ncclShmem.groups[group].srcs[Src] = slot + (shm->inFramed ? UZIP_HEADER_BYTES : 0);
        }
      }
      step += StepPerSlice;
    }
  }

  template <int Recv, int Send>
  __device__ __forceinline__ void postPeer(bool dataStored) {
    if (flags & (Recv * RolePostRecv | Send * RolePostSend)) {
      if (Send && (flags & RolePostSend)) {
        // Size, then data and size fenced, then the step: the proxy never sees a step before what belongs to it.
        if (flags & ConnFifoEnabled) {
          connFifo[step % NCCL_STEPS].size = dataStored ? ncclShmem.groups[group].dstSizes[slicesDone & 1] : 0;
        }
        if (dataStored || (flags & ConnFifoEnabled)) fence_acq_rel_sys();
      }
      step += StepPerSlice;
      st_relaxed_sys_global(connStepPtr, step);
    }
  }

  // One primitive on a chunk: SlicePerChunk slices, cut as Simple cuts them, the last of which may be empty. Workers move what
  // there is; whoever has nothing to move only keeps step.
  template <int Recv, int Send, int SrcBuf, int DstBuf>
  __device__ __forceinline__ void genericOp(intptr_t srcIx, intptr_t dstIx, int nelem, bool postOp) {
    constexpr int Src = SrcBuf != -1, Dst = DstBuf != -1;
    int left = max(nelem, 0);
    int const whole = max(divUp(left, 16 * SlicePerChunk) * 16, stepSize * StepPerSlice / 32);
    UZIP_NO_UNROLL
    for (int slice = 0; slice < SlicePerChunk; slice++) {
      int const elems = min(whole, left);
      if (tid < nworkers && elems > 0) {
        if (tid == 0) {
          ncclShmemGroup& local = ncclShmem.groups[group];
          if (Src) local.srcs[0] = (T*)(SrcBuf == Input ? local.userInput : local.userOutput) + srcIx;
          if (Dst) local.dsts[0] = (T*)(DstBuf == Input ? local.userInput : local.userOutput) + dstIx;
        }
        waitPeer<Recv, Send, Src, Dst>(elems);
        subBarrier();
        // After an abort slots are not looked at any more.
        uint32_t wireBytes = 0;
        if (!ncclShmem.aborted) wireBytes = runSlice<Recv, Send, Src, Dst, SrcBuf == Input>(elems, postOp);
        if (Send && tid == 0) ncclShmem.groups[group].dstSizes[slicesDone & 1] = wireBytes;
      } else {
        waitPeer<Recv, Send, Src, Dst>(0);
      }
      barrier();
      postPeer<Recv, Send>(elems > 0 && !ncclShmem.aborted);
      slicesDone += 1;
      srcIx += elems;
      dstIx += elems;
      left -= elems;
    }
  }

  // --- One slice ---------------------------------------------------------------------------------------------------------

  // Runs a slice of `nelts` elements on all workers. Returns the bytes that go on the wire.
  template <int Recv, int Send, int Src, int Dst, bool PreOp>
  __device__ __forceinline__ uint32_t runSlice(int nelts, bool postOp) {
    UzipSliceShm* shm = sliceShm();
    uint32_t const rawBytes = uint32_t(nelts * sizeof(T));
    uint32_t const inKind = Recv ? shm->inKind : kUzipPlain;
    bool const framed = Send && shm->outFramed;
    // A compressed slice that is only passed on keeps its bytes; it is decoded for the local output alone.
    bool const forward =
        Recv && Send && !Src && inKind == kUzipLevels && framed && shm->inWireBytes <= shm->outCapacity;
    // Passing a raw slice on: encoding it again would fail again.
    bool const forwardRaw = Recv && Send && !Src && inKind == kUzipPlain && shm->inFramed;
    uint32_t const outKind = !Send || forwardRaw ? kUzipPlain : shm->outKind;
    uint32_t wireBytes = framed ? UZIP_HEADER_BYTES + rawBytes : rawBytes;

    if (inKind == kUzipBad) {
      zeroSlice<Send, Dst>(rawBytes, framed);
      wireBytes = framed ? UZIP_HEADER_BYTES : rawBytes;
      if (framed && tid == 0)
        writeHeader(shm->outSlot, UZIP_CODEC_RAW, 0, UZIP_SLOT_POISON, rawBytes, UZIP_HEADER_BYTES, 0, 0, 0);
    } else if (inKind == kUzipPlain && outKind == kUzipPlain) {
      plainSlice<Recv, Send, Src, Dst, PreOp>(tid, nworkers, group, nelts, postOp);
      if (framed && tid == 0) writeHeader(shm->outSlot, UZIP_CODEC_RAW, 0, 0, rawBytes, wireBytes, 0, 0, 0);
    } else {
      uint32_t const type = inKind == kUzipLevels ? shm->inType : Bytes ? sendType() : uint32_t(TypeOfT);
      SliceArgs const args = {shm,
                              tid,
                              nworkers,
                              group,
                              workersBarrierName(),
                              rawBytes,
                              inKind == kUzipLevels,
                              outKind == kUzipLevels && !forward,
                              forward,
                              framed,
                              postOp};
      wireBytes = TileSlice<TypeOfT, Recv, Send, Src, Dst, PreOp>::run(type, args);
    }

    if (Send && (flags & RoleWaitSend) && outKind == kUzipLevels && !forward) {
      if (wireBytes > rawBytes - rawBytes / 64) {
        uint32_t level = backoff >> 16;
        level = level == 0 ? 1 : level < kUzipMaxBackoff ? 2 * level : kUzipMaxBackoff;
        backoff = level << 16 | level;
      } else {
        backoff = 0;
      }
    }
    if (tid == 0) {
      if (framed) {
        shm->sendRaw += rawBytes;
        shm->sendWire += wireBytes;
        shm->sendSlices += 1;
        if (outKind != kUzipLevels && !forward) shm->sendSlicesRaw += 1;
        if (forward || forwardRaw) shm->fwdSlices += 1;
      }
      if (Recv && shm->inFramed) {
        shm->recvRaw += rawBytes;
        shm->recvWire += shm->inWireBytes;
        shm->recvSlices += 1;
      }
    }
    return wireBytes;
  }

  // What the functions below need to know of a slice. They are out of line: a call a slice costs nothing, and each gets all
  // registers to itself instead of spilling together with the ring's state.
  struct SliceArgs {
    UzipSliceShm* shm;
    int tid, nworkers, group, workersBarrier;
    uint32_t rawBytes;
    bool inLevels;  // the incoming slice is compressed
    bool outLevels;  // the outgoing one is to be
    bool forward;  // the incoming bytes are passed on as they are
    bool framed;  // the outgoing link is framed
    bool postOp;
  };

  // Neither side is compressed: what Simple does.
  template <int Recv, int Send, int Src, int Dst, bool PreOp>
  __device__ static __noinline__ void plainSlice(int tid, int nworkers, int group, int nelts, bool postOp) {
    reduceCopy<Unroll, RedOp, T, 0, Recv + Src, Recv + Src, 0, Send + Dst, Send + Dst, PreOp && Src ? 1 : 0>(
        tid, nworkers, ncclShmem.groups[group].redOpArgs, postOp, Recv + Src, ncclShmem.groups[group].srcs, Send + Dst,
        ncclShmem.groups[group].dsts, nelts);
  }

  // Compressed on at least one side. The type is known at compile time for reductions; the bytes of copy collectives carry any.
  template <int Type, int Recv, int Send, int Src, int Dst, bool PreOp>
  struct TileSlice {
    __device__ static __forceinline__ uint32_t run(uint32_t, SliceArgs const& args) {
      constexpr bool CanForward = Recv && Send && !Src;
      if (CanForward && args.forward) return tileSlice<Type, Recv, Send, Src, Dst, PreOp, CanForward>(args);
      return tileSlice<Type, Recv, Send, Src, Dst, PreOp, false>(args);
    }
  };
  template <int Recv, int Send, int Src, int Dst, bool PreOp>
  struct TileSlice<UZIP_TYPE_NONE, Recv, Send, Src, Dst, PreOp> {
    __device__ static __forceinline__ uint32_t run(uint32_t type, SliceArgs const& args) {
      return type == UZIP_TYPE_BF16  ? TileSlice<UZIP_TYPE_BF16, Recv, Send, Src, Dst, PreOp>::run(type, args)
             : type == UZIP_TYPE_F16 ? TileSlice<UZIP_TYPE_F16, Recv, Send, Src, Dst, PreOp>::run(type, args)
                                     : TileSlice<UZIP_TYPE_F32, Recv, Send, Src, Dst, PreOp>::run(type, args);
    }
  };

  // Bytes of a refused slice: zeros for the user, and for a neighbour on an unframed link.
  template <int Send, int Dst>
  __device__ void zeroSlice(uint32_t rawBytes, bool framed) {
    UZIP_UNROLL
    for (int d = 0; d < Dst + Send; d++) {
      if (d == Dst && framed) continue;
      char* to = (char*)ncclShmem.groups[group].dsts[d];
      for (uint32_t i = tid; i < rawBytes; i += nworkers) uzipStoreByte(to + i, 0);
    }
  }

  // Values of chunk k of a tile, from plain memory. Elements past the end read as zero.
  // `unit`: 16 when `from` is 16-byte aligned, the element size when it is aligned to that, else 1.
  template <int Type>
  __device__ static __forceinline__ void loadValues(char const* from, uint32_t unit, uint32_t first, uint32_t elems,
                                                    uint32_t* v) {
    using Front = UzipFront<Type>;
    constexpr uint32_t ElementBytes = uzipElementBytes(Type);
    if (unit == 16 && first + 8 <= elems) {
      UZIP_UNROLL
      for (int q = 0; q < Front::Words / 4; q++) {
        UzipQuad quad = uzipLoadQuad(from + size_t(first) * ElementBytes + 16 * q);
        UZIP_UNROLL
        for (int i = 0; i < 4; i++) v[4 * q + i] = quad.w[i];
      }
      return;
    }
    UZIP_UNROLL
    for (int i = 0; i < Front::Words; i++) v[i] = 0;
    UZIP_UNROLL
    for (int j = 0; j < 8; j++) {
      if (first + j < elems) {
        char const* at = from + size_t(first + j) * ElementBytes;
        uint32_t value;
        if (unit == 1) {
          value = uzipLoadByte(at) | uzipLoadByte(at + 1) << 8;
          if (ElementBytes == 4) value |= uzipLoadByte(at + 2) << 16 | uzipLoadByte(at + 3) << 24;
        } else {
          value = ElementBytes == 4 ? uzipLoadWord(at) : uzipLoadHalf(at);
        }
        v[j * ElementBytes / 4] |= value << (ElementBytes == 4 ? 0 : 16 * (j & 1));
      }
    }
  }

  template <int Type>
  __device__ static __forceinline__ void storeValues(char* to, uint32_t unit, uint32_t first, uint32_t elems,
                                                     uint32_t const* v) {
    using Front = UzipFront<Type>;
    constexpr uint32_t ElementBytes = uzipElementBytes(Type);
    if (unit == 16 && first + 8 <= elems) {
      UZIP_UNROLL
      for (int q = 0; q < Front::Words / 4; q++) {
        UzipQuad quad = {{v[4 * q], v[4 * q + 1], v[4 * q + 2], v[4 * q + 3]}};
        uzipStoreQuad(to + size_t(first) * ElementBytes + 16 * q, quad);
      }
      return;
    }
    UZIP_UNROLL
    for (int j = 0; j < 8; j++) {
      if (first + j < elems) {
        char* at = to + size_t(first + j) * ElementBytes;
        uint32_t value = v[j * ElementBytes / 4] >> (ElementBytes == 4 ? 0 : 16 * (j & 1));
        if (unit == 1) {
          UZIP_UNROLL
          for (uint32_t b = 0; b < ElementBytes; b++) uzipStoreByte(at + b, (value >> (8 * b)) & 0xff);
        } else if (ElementBytes == 4) {
          uzipStoreWord(at, value);
        } else {
          uzipStoreHalf(at, value);
        }
      }
    }
  }

  template <int Type>
  __device__ static uint32_t unitOf(void const* ptr) {
    constexpr uint32_t ElementBytes = uzipElementBytes(Type);
    return uintptr_t(ptr) % 16 == 0 ? 16 : uintptr_t(ptr) % ElementBytes == 0 ? ElementBytes : 1;
  }

  // Operand order of reduceCopy: the local input first, then the peer; preOp on the input alone.
  template <int Words, int Recv, int Src, bool PreOp>
  __device__ static __forceinline__ void reduceValues(RedOp redFn, uint32_t const* in, bool postOp, uint32_t* v) {
    UZIP_UNROLL
    for (int q = 0; q < Words / 4; q++) {
      BytePack<16> acc, other;
      UZIP_UNROLL
      for (int i = 0; i < 4; i++) {
        acc.u32[i] = v[4 * q + i];
        other.u32[i] = in[4 * q + i];
      }
      if (Src && PreOp) acc = applyPreOp(redFn, acc);
      if (Recv && Src) acc = applyReduce(redFn, acc, other);
      if (postOp) acc = applyPostOp(redFn, acc);
      UZIP_UNROLL
      for (int i = 0; i < 4; i++) v[4 * q + i] = acc.u32[i];
    }
  }

  // Where the warp's next 32 tiles lie in a compressed slot, one a lane. Read in one go: a slot in host memory is microseconds
  // away, and a lookup in front of every tile would wait for it every time.
  struct TileIndex {
    uint32_t entry, at;  // table entry, and where the variable part begins; kNowhere for one that cannot be

    // AtOnce: with eight reads under way, for when registers are free. A default slice needs no other.
    template <bool AtOnce>
    __device__ __forceinline__ void read(char const* in, uint32_t tiles, uint32_t varBytes, uint32_t first,
                                         uint32_t nwarps, uint32_t lane) {
      uint32_t const group0 = first / UZIP_TILES_PER_GROUP,
                     groups = (tiles + UZIP_TILES_PER_GROUP - 1) / UZIP_TILES_PER_GROUP;
      uint32_t const bases = group0 + lane < groups ? uzipLoadWord(in + uzipOffGroups() + 4 * (group0 + lane)) : 0;
      uint32_t base = 0, before = 0;
      entry = 0;
      auto lookUp = [&] __device__(uint32_t r) {
        uint32_t const tile = first + r * nwarps, group = tile / UZIP_TILES_PER_GROUP,
                       place = tile % UZIP_TILES_PER_GROUP;
        bool const there = group * UZIP_TILES_PER_GROUP + lane < tiles;
        uint32_t const row =
            there ? uzipLoadHalf(in + uzipOffTable(tiles) + 2 * (group * UZIP_TILES_PER_GROUP + lane)) : 0;
        uint32_t const sum = uzipWarpAdd(lane < place ? row & UZIP_TILE_WORDS_MASK : 0);  // below 2^17
        uint32_t const its = __shfl_sync(kUzipFullWarp, row, place),
                       itsBase = __shfl_sync(kUzipFullWarp, bases, (group - group0) & 31);
        if (lane == r) entry = its, base = itsBase, before = sum;
      };
      if (AtOnce) {
        _Pragma("unroll 8") for (uint32_t r = 0; r < 32; r++) lookUp(r);
      } else {
        UZIP_NO_UNROLL
        for (uint32_t r = 0; r < 32; r++) lookUp(r);
      }
      at = base + 4 * before;
      uint32_t const words = entry & UZIP_TILE_WORDS_MASK;
      bool const found = words <= UZIP_TILE_MAX_WORDS && base % 4 == 0 && base <= varBytes && at <= varBytes &&
                         4 * words <= varBytes - at;
      if (!found) entry = kNowhere;
    }
  };
  // No words, and a kind that the decoder refuses.
  static constexpr uint32_t kNowhere = 0xfu << UZIP_TILE_KIND_SHIFT;

  // A compressed tile's variable part, read ahead.
  struct TileAhead {
    uint32_t entry, at;
    uint32_t var[8];  // lane by lane

    __device__ __forceinline__ void read(TileIndex const& index, uint32_t r, char const* inVar, uint32_t lane) {
      entry = __shfl_sync(kUzipFullWarp, index.entry, r);
      at = __shfl_sync(kUzipFullWarp, index.at, r);
      uint32_t const words = entry & UZIP_TILE_WORDS_MASK;
      UZIP_UNROLL
      for (int i = 0; i < 8; i++) var[i] = i * 32 + lane < words ? uzipLoadWord(inVar + at + 4 * (i * 32 + lane)) : 0;
    }
    // Into the warp's stage; with `to`, also into the same place of the next slot.
    __device__ __forceinline__ void stage(UzipWarpScratch* scratch, char* to, uint32_t lane) const {
      uint32_t const words = entry & UZIP_TILE_WORDS_MASK;
      __syncwarp();  // earlier readers of the stage are done
      UZIP_UNROLL
      for (int i = 0; i < 8; i++) {
        if (i * 32 + lane < words) {
          scratch->stage[i * 32 + lane] = var[i];
          if (to != nullptr) uzipStoreWord(to + at + 4 * (i * 32 + lane), var[i]);
        }
      }
      __syncwarp();
    }
  };

  // forward: the incoming bytes are passed on as they are, and decoded for the local output.
  template <int Type, int Recv, int Send, int Src, int Dst, bool PreOp, bool forward>
  __device__ static __noinline__ uint32_t tileSlice(SliceArgs const& args) {
    using Front = UzipFront<Type>;
    constexpr uint32_t ElementBytes = uzipElementBytes(Type);
    constexpr uint32_t FixedBytes = uzipFixedBytes(Type);
    UzipSliceShm* const shm = args.shm;
    int const tid = args.tid, nworkers = args.nworkers, group = args.group;
    uint32_t const lane = tid % WARP_SIZE, warp = tid / WARP_SIZE, nwarps = nworkers / WARP_SIZE;
    uint32_t const rawBytes = args.rawBytes, elems = rawBytes / ElementBytes;
    uint32_t const tiles = uzipTiles(elems);
    bool const inLevels = Recv && (forward || args.inLevels), outLevels = Send && !forward && args.outLevels;
    bool const framed = Send && args.framed, postOp = args.postOp;
    char const* const in = Recv ? shm->inSlot : nullptr;
    char* const out = Send ? shm->outSlot : nullptr;
    char const* const inPlain = Recv ? (char const*)ncclShmem.groups[group].srcs[Src] : nullptr;
    char* const outPlain = Send ? (char*)ncclShmem.groups[group].dsts[Dst] : nullptr;
    char const* const src = Src ? (char const*)ncclShmem.groups[group].srcs[0] : nullptr;
    char* const dst = Dst ? (char*)ncclShmem.groups[group].dsts[0] : nullptr;
    uint32_t const srcUnit = Src ? unitOf<Type>(src) : 16, dstUnit = Dst ? unitOf<Type>(dst) : 16;
    uint32_t const offFixed = uzipOffFixed(tiles), offVar = offFixed + tiles * FixedBytes;
    UzipWarpScratch* const scratch = (UzipWarpScratch*)ncclScratchForWarp(threadIdx.x / WARP_SIZE);
    RedOp redFn(ncclShmem.groups[group].redOpArgs);
    uint32_t varWords = 0;  // of the rounds before this one

    // Reads run ahead of their use. A slot in host memory is microseconds away, so the next tile is asked for before this one is
    // decoded; where registers are too short for that (ptxas decides: no UZIP function may spill more than its Simple twin), before
    // it is encoded, and its variable part before the barrier. The local input of a reduction is near and read when it is needed.
    // Four-byte types have registers for half a tile at a time.
    constexpr int Batch = Front::Words == 4 ? 4 : 2;
    constexpr bool Early = Recv && (Src ? Type == UZIP_TYPE_BF16 : Batch == 4 && (forward || !Send));
    constexpr bool LocalAhead = !(Recv && Src);
    typename Front::Rest rest[Batch];
    uint32_t v[Batch][Front::Words];
    TileIndex tileIndex;
    TileAhead ahead;
    auto readBatch = [&] __device__(uint32_t tile, int k0) {
      UZIP_UNROLL
      for (int j = 0; j < Batch; j++) {
        uint32_t const at = tile * UZIP_TILE_VALUES + (k0 + j) * 256 + lane * 8;
        if (inLevels) Front::load(in + offFixed + tile * FixedBytes, k0 + j, lane, &rest[j]);
        if (Src && LocalAhead)
          loadValues<Type>(src, srcUnit, at, elems, v[j]);
        else if (Recv && !Src && !inLevels)
          loadValues<Type>(inPlain, 16, at, elems, v[j]);
      }
    };
    auto readLocal = [&] __device__(uint32_t tile, int k0) {
      UZIP_UNROLL
      for (int j = 0; j < Batch; j++) {
        loadValues<Type>(src, srcUnit, tile * UZIP_TILE_VALUES + (k0 + j) * 256 + lane * 8, elems, v[j]);
      }
    };
    if (warp < tiles) {
      readBatch(warp, 0);
      if (inLevels) {
        tileIndex.template read<true>(in, tiles, shm->inVarBytes, warp, nwarps, lane);
        ahead.read(tileIndex, 0, in + offVar, lane);
      }
    }
    if (forward) {  // header, groups and table as they came
      for (uint32_t i = tid * 4; i < offFixed; i += nworkers * 4) uzipStoreWord(out + i, uzipLoadWord(in + i));
    }

    uint32_t round = 0;
    UZIP_NO_UNROLL
    for (uint32_t first = 0; first < tiles; first += nwarps, round++) {
      uint32_t const tile = first + warp, next = tile + nwarps;
      uint32_t outEntry = 0;
      if (tile < tiles) {
        char const* const inFixed = in + offFixed + tile * FixedBytes;
        char* const outFixed = out + offFixed + tile * FixedBytes;
        bool ok = true;
        uint32_t exps[8];
        typename Front::TileState inState, outState;
        typename Front::Rest rests[Batch];  // of this tile
        if (!LocalAhead && !Early) readLocal(tile, 0);
        if (inLevels) {
          Front::loadState(inFixed, lane, &inState);
          uint32_t const entry = ahead.entry;
          ahead.stage(scratch, forward ? out + offVar : nullptr, lane);
          UZIP_UNROLL
          for (int j = 0; j < Batch; j++) rests[j] = rest[j];
          if (next < tiles && (round + 1) % 32 == 0)
            tileIndex.template read<false>(in, tiles, shm->inVarBytes, next, nwarps, lane);
          if (Early && next < tiles) {
            readBatch(next, 0);
            ahead.read(tileIndex, (round + 1) % 32, in + offVar, lane);
          }
          ok = uzipDecodeTile<Type>(lane, entry, scratch, exps);
          if (!ok) {
            UZIP_UNROLL
            for (int i = 0; i < 8; i++) exps[i] = 0;
            if (lane == 0) {
              shm->bad = 1;
              uzipReportError(UZIP_ERR_TILE, shm->inPeer, tile, shm->inStep);
            }
          }
          if (forward) Front::storeState(outFixed, lane, inState);
        }
        if (!LocalAhead && Early) readLocal(tile, 0);
        UZIP_UNROLL
        for (int k = 0; k < 4; k++) {
          int const j = k % Batch;
          if (k != 0 && j == 0) {
            readBatch(tile, k);
            if (!LocalAhead) readLocal(tile, k);
            UZIP_UNROLL
            for (int i = 0; i < Batch; i++) rests[i] = rest[i];
          }
          uint32_t const at = tile * UZIP_TILE_VALUES + k * 256 + lane * 8;
          uint32_t peerValues[Front::Words];
          if (inLevels) {
            if (forward) Front::store(outFixed, k, lane, rests[j]);
            Front::merge(inState, k, &exps[2 * k], rests[j], peerValues);
          } else if (Recv && Src) {
            loadValues<Type>(inPlain, 16, at, elems, peerValues);
          }
          if (!Src && inLevels) {
            UZIP_UNROLL
            for (int i = 0; i < Front::Words; i++) v[j][i] = peerValues[i];
          }
          if (!Bytes) reduceValues<Front::Words, Recv, Src, PreOp>(redFn, peerValues, postOp, v[j]);
          if (!ok) {
            UZIP_UNROLL
            for (int i = 0; i < Front::Words; i++) v[j][i] = 0;
          }
          if (Dst) storeValues<Type>(dst, dstUnit, at, elems, v[j]);
          if (Send && !forward) {
            if (outLevels) {
              typename Front::Rest outRest;
              Front::split(outState, k, lane, v[j], &exps[2 * k], &outRest);
              Front::store(outFixed, k, lane, outRest);
            } else {
              storeValues<Type>(outPlain, 16, at, elems, v[j]);
            }
          }
        }
        bool const late = next < tiles && !(Early && inLevels);
        if (late) readBatch(next, 0);
        if (outLevels) {
          Front::storeState(outFixed, lane, outState);
          outEntry = uzipEncodeTile<Type>(lane, exps, scratch);
        }
        if (late && inLevels) ahead.read(tileIndex, (round + 1) % 32, in + offVar, lane);
      }
      if (outLevels) {
        // Every warp adds up the same sizes; the next round uses the other row, so one barrier a round suffices.
        uint16_t* const row = shm->entries[round & 1];
        if (lane == 0) row[warp] = uint16_t(outEntry);
        workersBarrier(nworkers, args.workersBarrier);
        uint32_t const entry = lane < nwarps ? row[lane] : 0, words = entry & UZIP_TILE_WORDS_MASK;
        uint32_t const before = varWords + uzipWarpAdd(lane < warp ? words : 0);
        varWords += uzipWarpAdd(words);
        if (warp == 0 && first + lane < tiles && lane < nwarps)
          uzipStoreHalf(out + uzipOffTable(tiles) + 2 * (first + lane), entry);
        if (tile < tiles) {
          uint32_t const mine = outEntry & UZIP_TILE_WORDS_MASK;
          char* const to = out + offVar + 4 * before;
          UZIP_UNROLL
          for (int i = 0; i < 8; i++) {
            if (i * 32 + lane < mine) uzipStoreWord(to + 4 * (i * 32 + lane), scratch->stage[i * 32 + lane]);
          }
          if (lane == 0 && tile % UZIP_TILES_PER_GROUP == 0) {
            uzipStoreWord(out + uzipOffGroups() + 4 * (tile / UZIP_TILES_PER_GROUP), 4 * before);
          }
          __syncwarp();  // the stage is read before the next tile overwrites it
        }
      }
    }

    // Bytes behind the last whole element; only copy collectives have any.
    uint64_t tail = 0;
    uint32_t const tailBytes = rawBytes % ElementBytes;
    if (tailBytes != 0 && tid == 0) {
      uint32_t const end = rawBytes - tailBytes;
      for (uint32_t i = 0; i < tailBytes; i++) {
        uint32_t b = uzipLoadByte(Src        ? src + end + i
                                  : inLevels ? in + offsetof(uzipSlotHeader, tail) + i
                                             : inPlain + end + i);
        if (Dst) uzipStoreByte(dst + end + i, b);
        if (Send && !outLevels && !forward) uzipStoreByte(outPlain + end + i, b);
        tail |= uint64_t(b) << (8 * i);
      }
    }

    if (!Send) return rawBytes;
    if (forward) return shm->inWireBytes;
    if (!framed) return rawBytes;
    if (inLevels && !outLevels)
      workersBarrier(nworkers, args.workersBarrier);  // `bad` of every warp; with outLevels the rounds' barriers did
    bool const bad = inLevels && shm->bad != 0;
    uint32_t const wireBytes = bad         ? UZIP_HEADER_BYTES
                               : outLevels ? offVar + 4 * varWords
                                           : UZIP_HEADER_BYTES + rawBytes;
    if (tid == 0) {
      if (bad)
        writeHeader(out, UZIP_CODEC_RAW, 0, UZIP_SLOT_POISON, rawBytes, wireBytes, 0, 0, 0);
      else if (outLevels)
        writeHeader(out, UZIP_CODEC_LEVELS, Type, 0, rawBytes, wireBytes, 4 * varWords, tailBytes, tail);
      else
        writeHeader(out, UZIP_CODEC_RAW, 0, 0, rawBytes, wireBytes, 0, 0, 0);
      if (outLevels) {  // padding between table and fixed section
        for (uint32_t i = uzipOffTable(tiles) + 2 * tiles; i < offFixed; i += 2) uzipStoreHalf(out + i, 0);
      }
    }
    return wireBytes;
  }

  // --- Connections ---------------------------------------------------------------------------------------------------------

  __device__ __forceinline__ void loadConn(struct ncclConnInfo* c, bool send) {
    conn = c;
    step = roundUp(conn->step, SlicePerChunk * StepPerSlice);
    connFifo = conn->connFifo;
    if (connFifo != nullptr) flags |= ConnFifoEnabled;
    if (ncclShmem.comm.uzip != nullptr && (conn->flags & NCCL_UZIP_LINK)) flags |= Framed;
    connFifoBuff = conn->buffs[NCCL_PROTO_SIMPLE];
    connStride = conn->stepSize;
    bool const waits = flags & (RoleWaitRecv | RoleWaitSend);
    connStepPtr = send == waits ? conn->head : conn->tail;
    if (flags & RolePostRecv) *connStepPtr = step;  // return credits in case we rounded up
    if (waits) connStepCache = ld_volatile_global(connStepPtr);
    if (flags & RoleWaitSend) backoff = conn->uzipBackoff;
  }

 public:
  __device__ Primitives(int tid, int nthreads, int const* recvPeers, int const* sendPeers, void const* inputBuf,
                        void* outputBuf, uint64_t redOpArg, uint8_t group = 0, uint8_t connIndexRecv = 0,
                        uint8_t connIndexSend = 0, struct ncclDevWorkColl* collWork = nullptr,
                        struct ncclDevWorkP2p* p2pWork = nullptr, int stepSize_ = 0, int mode = 0)
      : tid(tid),
        tidInBlock(threadIdx.x),
        nthreads(nthreads),
        stepSize(stepSize_ == 0 ? ncclShmem.comm.buffSizes[NCCL_PROTO_SIMPLE] / NCCL_STEPS / sizeof(T) : stepSize_),
        flags(0),
        group(group),
        peer(-1),
        slicesDone(0),
        backoff(0),
        step(0),
        conn(nullptr),
        connFifo(nullptr) {
    // The last warp of a block that sends does not work: it fences and posts a slice while the workers are in the next one.
    nworkers = nthreads - (MaxSend > 0 && nthreads >= NCCL_SIMPLE_EXTRA_GROUP_IF_NTHREADS_GE ? WARP_SIZE : 0);
    // As in Simple, who waits sits at the low end of the block and who posts at the high end.
    bool const recvs = MaxRecv && recvPeers[0] != -1, sends = MaxSend && sendPeers[0] != -1;
    int const fromEnd = nthreads - 1 - tid;
    if (recvs && tid == 0)
      flags |= RoleWaitRecv;
    else if (sends && tid == int(recvs))
      flags |= RoleWaitSend;
    else if (sends && fromEnd == 0)
      flags |= RolePostSend;
    else if (recvs && fromEnd == int(sends))
      flags |= RolePostRecv;

    if (flags & (RoleWaitRecv | RolePostRecv)) {
      peer = recvPeers[0];
      loadConn(&ncclShmem.channel.peers[peer]->recv[connIndexRecv], /*send=*/false);
    }
    if (flags & (RoleWaitSend | RolePostSend)) {
      peer = sendPeers[0];
      loadConn(&ncclShmem.channel.peers[peer]->send[connIndexSend], /*send=*/true);
    }
    if (tid == 0) {
      ncclShmem.groups[group].userInput = (void*)inputBuf;
      ncclShmem.groups[group].userOutput = (void*)outputBuf;
      ncclShmem.groups[group].redOpArgs = redOpArg;
      UzipSliceShm* shm = sliceShm();
      shm->bad = 0;
      shm->sendSlices = shm->sendSlicesRaw = shm->fwdSlices = shm->recvSlices = 0;
      shm->sendRaw = shm->sendWire = shm->recvRaw = shm->recvWire = 0;
    }
    barrier();
  }

  __device__ ~Primitives() {
    if (flags & (RolePostSend | RolePostRecv)) conn->step = step;
    if (flags & RoleWaitSend) conn->uzipBackoff = backoff;
    if (tid == 0) saveStats();
    // All threads are done with conn and ncclShmem.groups[group].
    barrier();
  }

  // Adds this operation's counts to the record of this channel and group, and shows them to the host.
  __device__ void saveStats() {
    struct ncclUzipDevComm* uzip = ncclShmem.comm.uzip;
    if (uzip == nullptr || uzip->stats == nullptr) return;
    UzipSliceShm const* shm = sliceShm();
    struct ncclUzipGroupStats* stats = uzip->stats + ncclShmem.channelId * NCCL_MAX_GROUPS + group;
    struct ncclUzipGroupStats volatile* host = uzip->statsHost + ncclShmem.channelId * NCCL_MAX_GROUPS + group;
    struct ncclUzipGroupStats now = *stats;
    now.sendRawBytes += shm->sendRaw;
    now.sendWireBytes += shm->sendWire;
    now.recvRawBytes += shm->recvRaw;
    now.recvWireBytes += shm->recvWire;
    now.sendSlices += shm->sendSlices;
    now.sendSlicesRaw += shm->sendSlicesRaw;
    now.fwdSlices += shm->fwdSlices;
    now.recvSlices += shm->recvSlices;
    now.ops += 1;
    *stats = now;
    host->sendRawBytes = now.sendRawBytes;
    host->sendWireBytes = now.sendWireBytes;
    host->recvRawBytes = now.recvRawBytes;
    host->recvWireBytes = now.recvWireBytes;
    host->sendSlices = now.sendSlices;
    host->sendSlicesRaw = now.sendSlicesRaw;
    host->fwdSlices = now.fwdSlices;
    host->recvSlices = now.recvSlices;
    host->ops = now.ops;
  }

  // The primitives of the rings, with Simple's names and arguments. Framed slots are never addressed directly, so the direct
  // forms do the same work.
  __device__ __forceinline__ void send(intptr_t inpIx, int eltN) { genericOp<0, 1, Input, -1>(inpIx, -1, eltN, false); }
  __device__ __forceinline__ void recv(intptr_t outIx, int eltN, bool postOp = false) {
    genericOp<1, 0, -1, Output>(-1, outIx, eltN, postOp);
  }
  __device__ __forceinline__ void copySend(intptr_t inpIx, intptr_t outIx, int eltN, bool postOp = false) {
    genericOp<0, 1, Input, Output>(inpIx, outIx, eltN, postOp);
  }
  __device__ __forceinline__ void recvCopySend(intptr_t outIx, int eltN, bool postOp = false) {
    genericOp<1, 1, -1, Output>(-1, outIx, eltN, postOp);
  }
  __device__ __forceinline__ void recvReduceSend(intptr_t inpIx, int eltN, bool postOp = false) {
    genericOp<1, 1, Input, -1>(inpIx, -1, eltN, postOp);
  }
  __device__ __forceinline__ void recvReduceCopySend(intptr_t inpIx, intptr_t outIx, int eltN, bool postOp = false) {
    genericOp<1, 1, Input, Output>(inpIx, outIx, eltN, postOp);
  }
  __device__ __forceinline__ void directSend(intptr_t inpIx, intptr_t outIx, int eltN) { send(inpIx, eltN); }
  __device__ __forceinline__ void directRecv(intptr_t outIx, int eltN, bool postOp = false) {
    recv(outIx, eltN, postOp);
  }
  __device__ __forceinline__ void directCopySend(intptr_t inpIx, intptr_t outIx, int eltN, bool postOp = false) {
    copySend(inpIx, outIx, eltN, postOp);
  }
  __device__ __forceinline__ void directRecvCopyDirectSend(intptr_t inpIx, intptr_t outIx, int eltN,
                                                           bool postOp = false) {
    recvCopySend(outIx, eltN, postOp);
  }
};

#endif  // UZIP_PRIMS_H_
