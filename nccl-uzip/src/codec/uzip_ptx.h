// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// Everything of the codec that is PTX, or differs between the GPU and the warp emulator: global memory accesses and warp
// reductions. Warp intrinsics that CUDA has as functions (__shfl_sync, __ballot_sync, __byte_perm, ...) are called by their
// names; the emulator defines them.

#ifndef UZIP_PTX_H_
#define UZIP_PTX_H_

#include <stdint.h>

#include "uzip_format.h"

#if defined(__CUDACC__)
#define UZIP_DEV __device__ __forceinline__
#define UZIP_UNROLL _Pragma("unroll")
#define UZIP_NO_UNROLL _Pragma("unroll 1")
#else
#include <string.h>

#include "cuda_emu.h"
#define UZIP_DEV inline
#define UZIP_UNROLL
#define UZIP_NO_UNROLL
#endif

static constexpr uint32_t kUzipFullWarp = 0xffffffffu;

// --- Global memory -------------------------------------------------------------------------------------------------------
//
// Slots are written by another processor while this kernel runs, so they are read with volatile loads: plain or non-coherent
// ones may hit a stale line in L1. User buffers are read the same way, as upstream's Simple protocol does.

struct alignas(8) UzipPair {
  uint32_t w[2];
};
struct alignas(16) UzipQuad {
  uint32_t w[4];
};

#if defined(__CUDACC__)

UZIP_DEV size_t uzipGlobal(void const* ptr) { return __cvta_generic_to_global(ptr); }

UZIP_DEV uint32_t uzipLoadByte(void const* ptr) {
  uint32_t v;
  asm volatile("ld.volatile.global.u8 %0, [%1];" : "=r"(v) : "l"(uzipGlobal(ptr)) : "memory");
  return v;
}
UZIP_DEV uint32_t uzipLoadHalf(void const* ptr) {
  uint16_t v;
  asm volatile("ld.volatile.global.u16 %0, [%1];" : "=h"(v) : "l"(uzipGlobal(ptr)) : "memory");
  return v;
}
UZIP_DEV uint32_t uzipLoadWord(void const* ptr) {
  uint32_t v;
  asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(v) : "l"(uzipGlobal(ptr)) : "memory");
  return v;
}
UZIP_DEV UzipPair uzipLoadPair(void const* ptr) {
  UzipPair v;
  asm volatile("ld.volatile.global.v2.u32 {%0,%1}, [%2];"
               : "=r"(v.w[0]), "=r"(v.w[1])
               : "l"(uzipGlobal(ptr))
               : "memory");
  return v;
}
UZIP_DEV UzipQuad uzipLoadQuad(void const* ptr) {
  UzipQuad v;
  asm volatile("ld.volatile.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
               : "l"(uzipGlobal(ptr))
               : "memory");
  return v;
}
UZIP_DEV void uzipStoreByte(void* ptr, uint32_t v) {
  asm volatile("st.global.u8 [%0], %1;" ::"l"(uzipGlobal(ptr)), "r"(v) : "memory");
}
UZIP_DEV void uzipStoreHalf(void* ptr, uint32_t v) {
  asm volatile("st.global.u16 [%0], %1;" ::"l"(uzipGlobal(ptr)), "h"(uint16_t(v)) : "memory");
}
UZIP_DEV void uzipStoreWord(void* ptr, uint32_t v) {
  asm volatile("st.global.u32 [%0], %1;" ::"l"(uzipGlobal(ptr)), "r"(v) : "memory");
}
UZIP_DEV void uzipStorePair(void* ptr, UzipPair v) {
  asm volatile("st.global.v2.u32 [%0], {%1,%2};" ::"l"(uzipGlobal(ptr)), "r"(v.w[0]), "r"(v.w[1]) : "memory");
}
UZIP_DEV void uzipStoreQuad(void* ptr, UzipQuad v) {
  asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(uzipGlobal(ptr)), "r"(v.w[0]), "r"(v.w[1]), "r"(v.w[2]),
               "r"(v.w[3])
               : "memory");
}

#else  // the emulator: every access is to ordinary memory of this process

template <typename V>
inline V uzipEmuLoad(void const* ptr) {
  V v;
  memcpy(&v, ptr, sizeof(V));
  return v;
}
template <typename V>
inline void uzipEmuStore(void* ptr, V v) {
  memcpy(ptr, &v, sizeof(V));
}
inline uint32_t uzipLoadByte(void const* ptr) { return uzipEmuLoad<uint8_t>(ptr); }
inline uint32_t uzipLoadHalf(void const* ptr) { return uzipEmuLoad<uint16_t>(ptr); }
inline uint32_t uzipLoadWord(void const* ptr) { return uzipEmuLoad<uint32_t>(ptr); }
inline UzipPair uzipLoadPair(void const* ptr) { return uzipEmuLoad<UzipPair>(ptr); }
inline UzipQuad uzipLoadQuad(void const* ptr) { return uzipEmuLoad<UzipQuad>(ptr); }
inline void uzipStoreByte(void* ptr, uint32_t v) { uzipEmuStore(ptr, uint8_t(v)); }
inline void uzipStoreHalf(void* ptr, uint32_t v) { uzipEmuStore(ptr, uint16_t(v)); }
inline void uzipStoreWord(void* ptr, uint32_t v) { uzipEmuStore(ptr, v); }
inline void uzipStorePair(void* ptr, UzipPair v) { uzipEmuStore(ptr, v); }
inline void uzipStoreQuad(void* ptr, UzipQuad v) { uzipEmuStore(ptr, v); }

#endif

// PRMT in full: a nibble of the selector with its top bit set gives eight copies of the chosen byte's top bit.
// (__byte_perm drops that bit, at the price of an instruction.)
#if defined(__CUDACC__)
UZIP_DEV uint32_t uzipPerm(uint32_t a, uint32_t b, uint32_t selector) {
  uint32_t v;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(v) : "r"(a), "r"(b), "r"(selector));
  return v;
}
#else
inline uint32_t uzipPerm(uint32_t a, uint32_t b, uint32_t selector) {
  uint64_t const bytes = uint64_t(b) << 32 | a;
  uint32_t v = 0;
  for (int i = 0; i < 4; i++) {
    uint32_t const s = selector >> (4 * i), byte = uint32_t(bytes >> (8 * (s & 7))) & 0xff;
    v |= ((s & 8) ? (byte & 0x80 ? 0xffu : 0u) : byte) << (8 * i);
  }
  return v;
}
#endif

// --- Warp reductions -----------------------------------------------------------------------------------------------------
//
// redux.sync, sm_80 and later; the build takes no earlier architecture.

UZIP_DEV uint32_t uzipWarpAdd(uint32_t v) { return __reduce_add_sync(kUzipFullWarp, v); }
UZIP_DEV uint32_t uzipWarpMax(uint32_t v) { return __reduce_max_sync(kUzipFullWarp, v); }
UZIP_DEV uint32_t uzipWarpOr(uint32_t v) { return __reduce_or_sync(kUzipFullWarp, v); }

// Sum of v over the lanes below this one; *total gets the sum over all lanes.
UZIP_DEV uint32_t uzipWarpScan(uint32_t v, uint32_t lane, uint32_t* total) {
  uint32_t sum = v;
  UZIP_UNROLL
  for (uint32_t d = 1; d < 32; d <<= 1) {
    uint32_t below = __shfl_up_sync(kUzipFullWarp, sum, d);
    if (lane >= d) sum += below;
  }
  *total = __shfl_sync(kUzipFullWarp, sum, 31);
  return sum - v;
}

#endif  // UZIP_PTX_H_
