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
  kUzipPlain = 0,   // values as they are: unframed link, or UZIP_CODEC_RAW
  kUzipLevels = 1,  // UZIP_CODEC_LEVELS
  kUzipBad = 2      // refused; the slice counts as zeros
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
  uint16_t words[2][32];  // sizes of the round's variable parts, by warp; two rounds may be in use at once
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

template <typename T, typename RedOp, typename Fan, int Direct, int SlicePerChunk, int StepPerSlice, int Unroll, int P2p,
          bool isNetOffload>
class Primitives<T, RedOp, Fan, Direct, ProtoUzip<SlicePerChunk, StepPerSlice, Unroll>, P2p, isNetOffload> {
  static constexpr int MaxRecv = Fan::MaxRecv, MaxSend = Fan::MaxSend;
  static_assert(MaxRecv <= 1 && MaxSend <= 1, "UZIP runs rings");
  static constexpr int Input = 0, Output = 1;
  static constexpr int RoleWaitRecv = 0x04, RoleWaitSend = 0x08, RolePostSend = 0x10, RolePostRecv = 0x20, Aborted = 0x40,
                       ConnFifoEnabled = 0x100, Framed = 0x8000;
  static constexpr int TypeOfT = UzipTypeOf<T>::Type;
  static constexpr bool Bytes = TypeOfT == UZIP_TYPE_NONE;  // a copy collective: T is a byte

  int const tid, tidInBlock;
  int const nthreads;
  int nworkers;
  int const stepSize;  // payload of a step, in elements
  Fan fan;
  int index;  // peer index I'm responsible for
  int flags;
  int const group;
  int peer;
  uint32_t slicesDone;  // parity picks the word through which the posting thread learns a slice's wire size
  uint32_t backoff;     // WaitSend: low half slices still to send raw, high half how many the next failure costs
  uint64_t step;
  struct ncclConnInfo* conn;
  struct ncclConnFifo* connFifo;
  char* connFifoBuff;
  uint64_t* connStepPtr;
  uint64_t connStepCache;  // last seen value of *connStepPtr
  int connStride;          // bytes from one step's slot to the next

  __device__ void barrier() {
    if (nthreads == WARP_SIZE) __syncwarp();
    else barrier_sync(15 - group, nthreads);
  }
  __device__ static __forceinline__ void workersBarrier(int nworkers, int name) {
    if (nworkers == WARP_SIZE) __syncwarp();
    else barrier_sync(name, nworkers);
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
    uint32_t const codec = a.w[1] & 0xff, type = (a.w[1] >> 8) & 0xff, slotFlags = (a.w[1] >> 16) & 0xff, tail = a.w[1] >> 24;
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

  __device__ static void writeHeader(char* slot, uint32_t codec, uint32_t type, uint32_t slotFlags, uint32_t rawBytes, uint32_t wireBytes,
                              uint32_t varBytes, uint32_t tailBytes, uint64_t tail) {
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

  template <int Recv, int Send, int SrcBuf, int DstBuf>
  __device__ __forceinline__ void genericOp(intptr_t srcIx, intptr_t dstIx, int nelem, bool postOp) {
    constexpr int Src = SrcBuf != -1;
    constexpr int Dst = DstBuf != -1;

    nelem = nelem < 0 ? 0 : nelem;
    int sliceSize = stepSize * StepPerSlice;
    sliceSize = max(divUp(nelem, 16 * SlicePerChunk) * 16, sliceSize / 32);
    int slice = 0;
    int offset = 0;

    // Workers take the slices that hold something; the empty ones, and all slices of the other threads, are below.
    if (tid < nworkers && offset < nelem) {
      UZIP_NO_UNROLL
      do {
        sliceSize = sliceSize < nelem - offset ? sliceSize : nelem - offset;
        if (tid == 0) {
          T* userInput = (T*)ncclShmem.groups[group].userInput;
          T* userOutput = (T*)ncclShmem.groups[group].userOutput;
          if (Src) ncclShmem.groups[group].srcs[0] = (SrcBuf == Input ? userInput : userOutput) + srcIx + offset;
          if (Dst) ncclShmem.groups[group].dsts[0] = (DstBuf == Input ? userInput : userOutput) + dstIx + offset;
        }
        waitPeer<Recv, Send, Src, Dst>(sliceSize);
        subBarrier();
        // After an abort slots are not looked at any more.
        int workSize = ncclShmem.aborted ? 0 : sliceSize;
        uint32_t wireBytes = 0;
        if (workSize > 0) wireBytes = runSlice<Recv, Send, Src, Dst, SrcBuf == Input>(workSize, postOp);
        if (Send && tid == 0) ncclShmem.groups[group].dstSizes[slicesDone & 1] = wireBytes;
        barrier();
        postPeer<Recv, Send>(0 < workSize);
        slicesDone += 1;
        offset += sliceSize;
        slice += 1;
      } while (slice < SlicePerChunk && offset < nelem);
    }

    UZIP_NO_UNROLL
    while (slice < SlicePerChunk) {
      sliceSize = sliceSize < nelem - offset ? sliceSize : nelem - offset;
      // Only workers wait, and for them this slice is empty.
      waitPeer<Recv, Send, Src, Dst>(0);
      barrier();
      int workSize = ncclShmem.aborted ? 0 : sliceSize;
      postPeer<Recv, Send>(0 < workSize);
      slicesDone += 1;
      offset += sliceSize;
      slice += 1;
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
    bool const forward = Recv && Send && !Src && inKind == kUzipLevels && framed && shm->inWireBytes <= shm->outCapacity;
    // Passing a raw slice on: encoding it again would fail again.
    bool const forwardRaw = Recv && Send && !Src && inKind == kUzipPlain && shm->inFramed;
    uint32_t const outKind = !Send || forwardRaw ? kUzipPlain : shm->outKind;
    uint32_t wireBytes = framed ? UZIP_HEADER_BYTES + rawBytes : rawBytes;

    if (inKind == kUzipBad) {
      zeroSlice<Send, Dst>(rawBytes, framed);
      wireBytes = framed ? UZIP_HEADER_BYTES : rawBytes;
      if (framed && tid == 0) writeHeader(shm->outSlot, UZIP_CODEC_RAW, 0, UZIP_SLOT_POISON, rawBytes, UZIP_HEADER_BYTES, 0, 0, 0);
    } else if (inKind == kUzipPlain && outKind == kUzipPlain) {
      plainSlice<Recv, Send, Src, Dst, PreOp>(tid, nworkers, group, nelts, postOp);
      if (framed && tid == 0) writeHeader(shm->outSlot, UZIP_CODEC_RAW, 0, 0, rawBytes, wireBytes, 0, 0, 0);
    } else {
      uint32_t const type = inKind == kUzipLevels ? shm->inType : Bytes ? sendType() : uint32_t(TypeOfT);
      SliceArgs const args = {shm, tid, nworkers, group, workersBarrierName(), rawBytes, inKind == kUzipLevels,
                              outKind == kUzipLevels && !forward, forward, framed, postOp};
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
    bool inLevels;   // the incoming slice is compressed
    bool outLevels;  // the outgoing one is to be
    bool forward;    // the incoming bytes are passed on as they are
    bool framed;     // the outgoing link is framed
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
      return tileSlice<Type, Recv, Send, Src, Dst, PreOp>(args);
    }
  };
  template <int Recv, int Send, int Src, int Dst, bool PreOp>
  struct TileSlice<UZIP_TYPE_NONE, Recv, Send, Src, Dst, PreOp> {
    __device__ static __forceinline__ uint32_t run(uint32_t type, SliceArgs const& args) {
      return type == UZIP_TYPE_BF16  ? tileSlice<UZIP_TYPE_BF16, Recv, Send, Src, Dst, PreOp>(args)
             : type == UZIP_TYPE_F16 ? tileSlice<UZIP_TYPE_F16, Recv, Send, Src, Dst, PreOp>(args)
                                     : tileSlice<UZIP_TYPE_F32, Recv, Send, Src, Dst, PreOp>(args);
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
  __device__ static __forceinline__ void loadValues(char const* from, uint32_t unit, uint32_t first, uint32_t elems, uint32_t* v) {
    using Front = UzipFront<Type>;
    constexpr uint32_t ElementBytes = Front::Words / 2;
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
  __device__ static __forceinline__ void storeValues(char* to, uint32_t unit, uint32_t first, uint32_t elems, uint32_t const* v) {
    using Front = UzipFront<Type>;
    constexpr uint32_t ElementBytes = Front::Words / 2;
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
    constexpr uint32_t ElementBytes = UzipFront<Type>::Words / 2;
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

  // What a warp reads ahead of a compressed tile: first its group's part of the table, later its variable part.
  struct TileAhead {
    uint32_t mine, base;  // this lane's entry of the tile's group, and the group's offset
    uint32_t entry, at;   // the tile's entry and where its variable part begins
    bool found;           // both are possible
    uint32_t var[8];      // the variable part, lane by lane

    __device__ __forceinline__ void readTable(char const* in, uint32_t tiles, uint32_t tile, uint32_t lane) {
      uint32_t const first = tile & ~(UZIP_TILES_PER_GROUP - 1);
      mine = first + lane < tiles ? uzipLoadHalf(in + uzipOffTable(tiles) + 2 * (first + lane)) : 0;
      base = uzipLoadWord(in + uzipOffGroups() + 4 * (tile / UZIP_TILES_PER_GROUP));
    }
    __device__ __forceinline__ void readVar(char const* inVar, uint32_t varBytes, uint32_t tile, uint32_t lane) {
      uint32_t const before = uzipWarpAdd(lane < (tile & 31) ? mine & UZIP_TILE_WORDS_MASK : 0);
      entry = __shfl_sync(kUzipFullWarp, mine, tile & 31);
      at = base + 4 * before;  // before < 2^17
      uint32_t const words = entry & UZIP_TILE_WORDS_MASK;
      found = words <= UZIP_TILE_MAX_WORDS && base % 4 == 0 && base <= varBytes && at <= varBytes && 4 * words <= varBytes - at;
      UZIP_UNROLL
      for (int i = 0; i < 8; i++) {
        var[i] = found && i * 32 + lane < words ? uzipLoadWord(inVar + at + 4 * (i * 32 + lane)) : 0;
      }
    }
    // Into the warp's stage; with `to`, also into the same place of the next slot.
    __device__ __forceinline__ void stage(UzipWarpScratch* scratch, char* to, uint32_t lane) {
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

  template <int Type, int Recv, int Send, int Src, int Dst, bool PreOp>
  __device__ static __noinline__ uint32_t tileSlice(SliceArgs const& args) {
    using Front = UzipFront<Type>;
    constexpr uint32_t ElementBytes = Front::Words / 2;
    constexpr uint32_t FixedBytes = Type == UZIP_TYPE_BF16 ? 1024 : Type == UZIP_TYPE_F16 ? 1408 : 3072;
    UzipSliceShm* const shm = args.shm;
    int const tid = args.tid, nworkers = args.nworkers, group = args.group;
    uint32_t const lane = tid % WARP_SIZE, warp = tid / WARP_SIZE, nwarps = nworkers / WARP_SIZE;
    uint32_t const rawBytes = args.rawBytes, elems = rawBytes / ElementBytes;
    uint32_t const tiles = uzipTiles(elems);
    bool const inLevels = Recv && args.inLevels, outLevels = Send && args.outLevels, framed = Send && args.framed;
    bool const forward = Recv && Send && !Src && args.forward, postOp = args.postOp;
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

    // Reads run ahead: a tile's values and fixed part are asked for while the tile before is being encoded, and its variable part
    // while the block waits for that tile's sizes. Four-byte types have registers for half a tile at a time.
    constexpr int Batch = Front::Words == 4 ? 4 : 2;
    typename Front::Rest rest[Batch];
    uint32_t v[Batch][Front::Words];
    TileAhead ahead;
    auto readBatch = [&] __device__(uint32_t tile, int k0) {
      UZIP_UNROLL
      for (int j = 0; j < Batch; j++) {
        uint32_t const at = tile * UZIP_TILE_VALUES + (k0 + j) * 256 + lane * 8;
        if (inLevels) Front::load(in + offFixed + tile * FixedBytes, k0 + j, lane, &rest[j]);
        if (Src) loadValues<Type>(src, srcUnit, at, elems, v[j]);
        else if (Recv && !inLevels) loadValues<Type>(inPlain, 16, at, elems, v[j]);
      }
    };
    if (warp < tiles) {
      readBatch(warp, 0);
      if (inLevels) {
        ahead.readTable(in, tiles, warp, lane);
        ahead.readVar(in + offVar, shm->inVarBytes, warp, lane);
      }
    }
    if (forward) {  // header, groups and table as they came
      for (uint32_t i = tid * 4; i < offFixed; i += nworkers * 4) uzipStoreWord(out + i, uzipLoadWord(in + i));
    }

    UZIP_NO_UNROLL
    for (uint32_t first = 0; first < tiles; first += nwarps) {
      uint32_t const tile = first + warp, next = tile + nwarps;
      uint32_t outEntry = 0;
      if (tile < tiles) {
        char const* const inFixed = in + offFixed + tile * FixedBytes;
        char* const outFixed = out + offFixed + tile * FixedBytes;
        bool ok = true;
        uint32_t exps[8];
        typename Front::TileState inState, outState;
        if (inLevels) {
          Front::loadState(inFixed, lane, &inState);
          ok = ahead.found;
          if (ok) {
            ahead.stage(scratch, forward ? out + offVar : nullptr, lane);
            ok = uzipDecodeTile<Type>(lane, ahead.entry, scratch, exps);
          }
          if (next < tiles) ahead.readTable(in, tiles, next, lane);
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
        UZIP_UNROLL
        for (int k = 0; k < 4; k++) {
          int const j = k % Batch;
          if (k != 0 && j == 0) readBatch(tile, k);
          uint32_t const at = tile * UZIP_TILE_VALUES + k * 256 + lane * 8;
          uint32_t peerValues[Front::Words];
          if (inLevels) {
            if (forward) Front::store(outFixed, k, lane, rest[j]);
            Front::merge(inState, k, &exps[2 * k], rest[j], peerValues);
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
        if (next < tiles) readBatch(next, 0);
        if (outLevels) {
          Front::storeState(outFixed, lane, outState);
          outEntry = uzipEncodeTile<Type>(lane, exps, scratch);
        }
        if (inLevels && next < tiles) ahead.readVar(in + offVar, shm->inVarBytes, next, lane);
      }
      if (outLevels) {
        // Every warp adds up the same sizes; the next round uses the other row, so one barrier a round suffices.
        uint16_t* const row = shm->words[(first / nwarps) & 1];
        if (lane == 0) row[warp] = uint16_t(outEntry & UZIP_TILE_WORDS_MASK);
        workersBarrier(nworkers, args.workersBarrier);
        uint32_t const words = lane < nwarps ? row[lane] : 0;
        uint32_t const before = varWords + uzipWarpAdd(lane < warp ? words : 0);
        varWords += uzipWarpAdd(words);
        if (tile < tiles) {
          uint32_t const mine = outEntry & UZIP_TILE_WORDS_MASK;
          char* const to = out + offVar + 4 * before;
          UZIP_UNROLL
          for (int i = 0; i < 8; i++) {
            if (i * 32 + lane < mine) uzipStoreWord(to + 4 * (i * 32 + lane), scratch->stage[i * 32 + lane]);
          }
          if (lane == 0) {
            uzipStoreHalf(out + uzipOffTable(tiles) + 2 * tile, outEntry);
            if (tile % UZIP_TILES_PER_GROUP == 0) uzipStoreWord(out + uzipOffGroups() + 4 * (tile / UZIP_TILES_PER_GROUP), 4 * before);
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
        uint32_t b = uzipLoadByte(Src ? src + end + i : inLevels ? in + offsetof(uzipSlotHeader, tail) + i : inPlain + end + i);
        if (Dst) uzipStoreByte(dst + end + i, b);
        if (Send && !outLevels && !forward) uzipStoreByte(outPlain + end + i, b);
        tail |= uint64_t(b) << (8 * i);
      }
    }

    if (!Send) return rawBytes;
    if (forward) return shm->inWireBytes;
    if (!framed) return rawBytes;
    if (inLevels && !outLevels) workersBarrier(nworkers, args.workersBarrier);  // `bad` of every warp; with outLevels the rounds' barriers did
    bool const bad = inLevels && shm->bad != 0;
    uint32_t const wireBytes =
        bad ? UZIP_HEADER_BYTES : outLevels ? offVar + 4 * varWords : UZIP_HEADER_BYTES + rawBytes;
    if (tid == 0) {
      if (bad) writeHeader(out, UZIP_CODEC_RAW, 0, UZIP_SLOT_POISON, rawBytes, wireBytes, 0, 0, 0);
      else if (outLevels) writeHeader(out, UZIP_CODEC_LEVELS, Type, 0, rawBytes, wireBytes, 4 * varWords, tailBytes, tail);
      else writeHeader(out, UZIP_CODEC_RAW, 0, 0, rawBytes, wireBytes, 0, 0, 0);
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
  __device__ Primitives(int tid, int nthreads, int const* recvPeers, int const* sendPeers, void const* inputBuf, void* outputBuf,
                        uint64_t redOpArg, uint8_t group = 0, uint8_t connIndexRecv = 0, uint8_t connIndexSend = 0,
                        struct ncclDevWorkColl* collWork = nullptr, struct ncclDevWorkP2p* p2pWork = nullptr, int stepSize_ = 0,
                        int mode = 0)
      : tid(tid),
        tidInBlock(threadIdx.x),
        nthreads(nthreads),
        stepSize(stepSize_ == 0 ? ncclShmem.comm.buffSizes[NCCL_PROTO_SIMPLE] / NCCL_STEPS / sizeof(T) : stepSize_),
        index(-1),
        flags(0),
        group(group),
        peer(-1),
        slicesDone(0),
        backoff(0),
        step(0),
        conn(nullptr),
        connFifo(nullptr) {
    // One more warp than the workers overlaps the fence with the next slice's copy.
    nworkers = nthreads - (MaxSend > 0 && nthreads >= NCCL_SIMPLE_EXTRA_GROUP_IF_NTHREADS_GE ? WARP_SIZE : 0);
    int nrecv = 0, nsend = 0;
    while (nrecv < MaxRecv && recvPeers[nrecv] != -1) nrecv++;
    while (nsend < MaxSend && sendPeers[nsend] != -1) nsend++;
    this->fan = Fan(nrecv, nsend);

    if (tid < nrecv) flags |= RoleWaitRecv, index = tid;
    else if (tid < nrecv + nsend) flags |= RoleWaitSend, index = tid - nrecv;
    else if (nthreads - nsend <= tid) flags |= RolePostSend, index = tid - (nthreads - nsend);
    else if (nthreads - nrecv - nsend <= tid) flags |= RolePostRecv, index = tid - (nthreads - nrecv - nsend);

    if (flags & (RoleWaitRecv | RolePostRecv)) {
      peer = recvPeers[index];
      loadConn(&ncclShmem.channel.peers[peer]->recv[connIndexRecv], /*send=*/false);
    }
    if (flags & (RoleWaitSend | RolePostSend)) {
      peer = sendPeers[index];
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

  __device__ void moveDataPtrs(intptr_t delta) {
    if (tid == 0) {
      ncclShmem.groups[group].userInput = (T*)ncclShmem.groups[group].userInput + delta;
      ncclShmem.groups[group].userOutput = (T*)ncclShmem.groups[group].userOutput + delta;
    }
  }

  // The primitives, with Simple's names and arguments. Framed slots are never addressed directly, so the direct forms do the
  // same work.
  __device__ __forceinline__ void send(intptr_t inpIx, int eltN) { genericOp<0, 1, Input, -1>(inpIx, -1, eltN, false); }
  __device__ __forceinline__ void sendFromOutput(intptr_t outIx, int eltN) { genericOp<0, 1, Output, -1>(outIx, -1, eltN, false); }
  __device__ __forceinline__ void recv(intptr_t outIx, int eltN, bool postOp = false) {
    genericOp<1, 0, -1, Output>(-1, outIx, eltN, postOp);
  }
  __device__ __forceinline__ void copySend(intptr_t inpIx, intptr_t outIx, int eltN, bool postOp = false) {
    genericOp<0, 1, Input, Output>(inpIx, outIx, eltN, postOp);
  }
  __device__ __forceinline__ void recvSend(int eltN, bool postOp = false) { genericOp<1, 1, -1, -1>(-1, -1, eltN, postOp); }
  __device__ __forceinline__ void recvCopySend(intptr_t outIx, int eltN, bool postOp = false) {
    genericOp<1, 1, -1, Output>(-1, outIx, eltN, postOp);
  }
  __device__ __forceinline__ void recvReduceCopy(intptr_t inpIx, intptr_t outIx, int eltN, bool postOp = false) {
    genericOp<1, 0, Input, Output>(inpIx, outIx, eltN, postOp);
  }
  __device__ __forceinline__ void recvReduceSend(intptr_t inpIx, int eltN, bool postOp = false) {
    genericOp<1, 1, Input, -1>(inpIx, -1, eltN, postOp);
  }
  __device__ __forceinline__ void recvReduceCopySend(intptr_t inpIx, intptr_t outIx, int eltN, bool postOp = false) {
    genericOp<1, 1, Input, Output>(inpIx, outIx, eltN, postOp);
  }

  __device__ __forceinline__ void directSend(intptr_t inpIx, intptr_t outIx, int eltN) { send(inpIx, eltN); }
  __device__ __forceinline__ void directSendFromOutput(intptr_t outIx, int eltN) { sendFromOutput(outIx, eltN); }
  __device__ __forceinline__ void directRecv(intptr_t outIx, int eltN, bool postOp = false) { recv(outIx, eltN, postOp); }
  __device__ __forceinline__ void directCopySend(intptr_t inpIx, intptr_t outIx, int eltN, bool postOp = false) {
    copySend(inpIx, outIx, eltN, postOp);
  }
  __device__ __forceinline__ void directRecvCopyDirectSend(intptr_t inpIx, intptr_t outIx, int eltN, bool postOp = false) {
    recvCopySend(outIx, eltN, postOp);
  }
  __device__ __forceinline__ void directRecvReduceCopy(intptr_t inpIx, intptr_t outIx, int eltN, bool postOp = false) {
    recvReduceCopy(inpIx, outIx, eltN, postOp);
  }
  __device__ __forceinline__ void directRecvReduceDirectSend(intptr_t inpIx, intptr_t outIx, int eltN, bool postOp = false) {
    recvReduceSend(inpIx, eltN, postOp);
  }
  __device__ __forceinline__ void directRecvReduceCopyDirectSend(intptr_t inpIx, intptr_t outIx, int eltN, bool postOp = false) {
    recvReduceCopySend(inpIx, outIx, eltN, postOp);
  }
};

#endif  // UZIP_PRIMS_H_
