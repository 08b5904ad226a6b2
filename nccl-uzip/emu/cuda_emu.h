// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// Warp emulator: runs CUDA device code on a CPU, compiled by an ordinary C++ compiler. Every CUDA thread of a block is a stackful
// fiber; all fibers of a process run on the OS thread that calls EmuBlock::run(). A fiber runs until it reaches a warp collective,
// a barrier or a poll whose condition is not met, then the next one runs. There is no preemption, so what the emulator finds are
// missing synchronisations that show under some order of threads (EmuOptions::seed), deadlocks and divergent collectives.
//
// This header gives the CUDA names that device code uses. It must not be seen by nvcc.

#ifndef UZIP_CUDA_EMU_H_
#define UZIP_CUDA_EMU_H_

#if defined(__CUDACC__)
#error "cuda_emu.h replaces CUDA; nvcc must not include it"
#endif

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <functional>
#include <memory>
#include <type_traits>

// Qualifiers. __noinline__ is empty because the standard library writes __attribute__((__noinline__)).
#define __device__
#define __host__
#define __global__
#define __constant__
#define __noinline__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

// --- Blocks --------------------------------------------------------------------------------------------------------------

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

static constexpr int kEmuMaxThreads = 1024;
static constexpr int kEmuMaxWarps = kEmuMaxThreads / 32;
static constexpr int kEmuBarriers = 16;

struct EmuOptions {
  dim3 block = dim3(0, 0, 0);  // blockIdx
  dim3 grid;  // gridDim
  size_t sharedBytes = 0;  // of the block's shared memory, zeroed at the start
  uint64_t seed = 0;  // 0: threads in ascending order. Else in an order drawn from it, some warps far ahead of others
};

enum class EmuState {
  Done,  // every thread has returned
  Polling  // at least one thread polls memory that another block or the host must change
};

// One thread block. Create, then call run() until it returns Done; between calls change what the polling threads wait for. run()
// goes on for as long as threads do anything but poll.
// A deadlock, threads of a warp at different collectives, or a stack overflow print every thread's position and abort().
class EmuBlock {
 public:
  EmuBlock(int nthreads, std::function<void()> kernel, EmuOptions const& options = EmuOptions());
  ~EmuBlock();
  EmuBlock(EmuBlock const&) = delete;
  EmuBlock& operator=(EmuBlock const&) = delete;

  EmuState run();
  void* shared() const;
  // Counts what threads did other than to poll. Unchanged over a run() that came to nothing.
  uint64_t events() const;
  // Prints to stderr where each thread is, threads at the same place in one line.
  void dump() const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl;
};

// Runs a block whose threads wait for nothing outside; aborts if one polls for what nobody will change.
void uzipEmuRunBlock(int nthreads, std::function<void()> kernel, EmuOptions const& options = EmuOptions());

// --- Inside a thread -----------------------------------------------------------------------------------------------------

struct EmuThread {
  unsigned tid, lane, warp, nthreads;
  dim3 block, grid;
  void* shared;
};
extern thread_local EmuThread const* uzipEmuThread __attribute__((tls_model("initial-exec")));

inline void* uzipEmuShared() { return uzipEmuThread->shared; }
inline uint3 uzipEmuThreadIdx() { return uint3{uzipEmuThread->tid, 0, 0}; }
inline dim3 uzipEmuBlockIdx() { return uzipEmuThread->block; }
inline dim3 uzipEmuBlockDim() { return dim3(uzipEmuThread->nthreads); }
inline dim3 uzipEmuGridDim() { return uzipEmuThread->grid; }
#define threadIdx (uzipEmuThreadIdx())
#define blockIdx (uzipEmuBlockIdx())
#define blockDim (uzipEmuBlockDim())
#define gridDim (uzipEmuGridDim())

// A thread that polls calls this in its loop: all other threads, blocks and the host go first.
void uzipEmuYield(char const* file = __builtin_FILE(), int line = __builtin_LINE());

// Prints the message and every thread's position, and aborts.
[[noreturn]] void uzipEmuFail(char const* message);

// --- Warp collectives ----------------------------------------------------------------------------------------------------

enum class EmuOp : uint8_t {
  SyncWarp,
  Shuffle,
  Ballot,
  ReduceAdd,
  ReduceMax,
  ReduceMin,
  ReduceAnd,
  ReduceOr,
  ReduceXor,
  Match
};

// What the lanes brought to a collective. val holds only what Shuffle and Match lanes of the mask brought.
struct EmuExchange {
  uint32_t val[32];
  uint32_t result;  // of the reductions and of Ballot
  uint32_t mask;
};

// Arrives at a collective of the lanes in `mask` and returns once all of them have.
EmuExchange const* uzipEmuExchange(EmuOp op, uint32_t mask, uint32_t value, char const* file, int line);

#define UZIP_EMU_SITE char const *file = __builtin_FILE(), int line = __builtin_LINE()

inline void __syncwarp(uint32_t mask = 0xffffffffu, UZIP_EMU_SITE) {
  uzipEmuExchange(EmuOp::SyncWarp, mask, 0, file, line);
}
inline uint32_t __ballot_sync(uint32_t mask, int predicate, UZIP_EMU_SITE) {
  return uzipEmuExchange(EmuOp::Ballot, mask, predicate != 0, file, line)->result;
}
inline int __any_sync(uint32_t mask, int predicate, UZIP_EMU_SITE) {
  return uzipEmuExchange(EmuOp::Ballot, mask, predicate != 0, file, line)->result != 0;
}
inline int __all_sync(uint32_t mask, int predicate, UZIP_EMU_SITE) {
  return uzipEmuExchange(EmuOp::Ballot, mask, predicate != 0, file, line)->result == mask;
}
inline uint32_t __reduce_add_sync(uint32_t mask, uint32_t v, UZIP_EMU_SITE) {
  return uzipEmuExchange(EmuOp::ReduceAdd, mask, v, file, line)->result;
}
inline uint32_t __reduce_max_sync(uint32_t mask, uint32_t v, UZIP_EMU_SITE) {
  return uzipEmuExchange(EmuOp::ReduceMax, mask, v, file, line)->result;
}
inline uint32_t __reduce_min_sync(uint32_t mask, uint32_t v, UZIP_EMU_SITE) {
  return uzipEmuExchange(EmuOp::ReduceMin, mask, v, file, line)->result;
}
inline uint32_t __reduce_and_sync(uint32_t mask, uint32_t v, UZIP_EMU_SITE) {
  return uzipEmuExchange(EmuOp::ReduceAnd, mask, v, file, line)->result;
}
inline uint32_t __reduce_or_sync(uint32_t mask, uint32_t v, UZIP_EMU_SITE) {
  return uzipEmuExchange(EmuOp::ReduceOr, mask, v, file, line)->result;
}
inline uint32_t __reduce_xor_sync(uint32_t mask, uint32_t v, UZIP_EMU_SITE) {
  return uzipEmuExchange(EmuOp::ReduceXor, mask, v, file, line)->result;
}
inline uint32_t __match_any_sync(uint32_t mask, uint32_t v, UZIP_EMU_SITE) {
  EmuExchange const* x = uzipEmuExchange(EmuOp::Match, mask, v, file, line);
  uint32_t same = 0;
  for (uint32_t i = 0; i < 32; i++) same |= (mask >> i & 1) && x->val[i] == v ? 1u << i : 0u;
  return same;
}

// The lane a shuffle reads from, by PTX's rules for `c` and `width`. Reading from a lane outside the mask is an error here; on
// the GPU its value is undefined.
inline uint32_t uzipEmuPick(EmuExchange const* x, uint32_t lane, uint32_t own) {
  if (lane == uzipEmuThread->lane) return own;
  if (!(x->mask >> lane & 1)) uzipEmuFail("a shuffle reads from a lane that is not in its mask");
  return x->val[lane];
}
// 8-byte values travel as two words, as they do on the GPU.
template <typename T, typename Lane>
inline T uzipEmuShuffle(uint32_t mask, T v, Lane const& sourceOf, char const* file, int line) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles take 4- and 8-byte values");
  static_assert(std::is_trivially_copyable<T>::value, "shuffles move bits");
  uint32_t words[sizeof(T) / 4];
  memcpy(words, &v, sizeof(T));
  for (uint32_t& w : words) {
    EmuExchange const* x = uzipEmuExchange(EmuOp::Shuffle, mask, w, file, line);
    w = uzipEmuPick(x, sourceOf(uzipEmuThread->lane), w);
  }
  memcpy(&v, words, sizeof(T));
  return v;
}
template <typename T>
inline T __shfl_sync(uint32_t mask, T v, int source, int width = 32, UZIP_EMU_SITE) {
  uint32_t w = uint32_t(width), s = uint32_t(source);
  return uzipEmuShuffle(mask, v, [=](uint32_t lane) { return (lane & ~(w - 1)) | (s & (w - 1)); }, file, line);
}
template <typename T>
inline T __shfl_up_sync(uint32_t mask, T v, unsigned delta, int width = 32, UZIP_EMU_SITE) {
  uint32_t w = uint32_t(width);
  return uzipEmuShuffle(
      mask, v, [=](uint32_t lane) { return (lane & (w - 1)) >= delta ? lane - delta : lane; }, file, line);
}
template <typename T>
inline T __shfl_down_sync(uint32_t mask, T v, unsigned delta, int width = 32, UZIP_EMU_SITE) {
  uint32_t w = uint32_t(width);
  return uzipEmuShuffle(
      mask, v, [=](uint32_t lane) { return (lane & (w - 1)) + delta < w ? lane + delta : lane; }, file, line);
}
template <typename T>
inline T __shfl_xor_sync(uint32_t mask, T v, int bits, int width = 32, UZIP_EMU_SITE) {
  uint32_t w = uint32_t(width), b = uint32_t(bits);
  return uzipEmuShuffle(
      mask, v, [=](uint32_t lane) { return (lane ^ b) < (lane & ~(w - 1)) + w ? lane ^ b : lane; }, file, line);
}
// Lanes of this warp that have not returned. Which of them are converged is not modelled.
uint32_t __activemask();

// --- Block barriers ------------------------------------------------------------------------------------------------------

// Waits until `nthreads` threads have arrived at the barrier; 0 means all of the block. Returns whether any of them voted.
bool uzipEmuBarrier(unsigned id, unsigned nthreads, bool vote, char const* file, int line);

inline void barrier_sync(int id, UZIP_EMU_SITE) { uzipEmuBarrier(unsigned(id), 0, false, file, line); }
inline void barrier_sync(int id, int nthreads, UZIP_EMU_SITE) {
  uzipEmuBarrier(unsigned(id), unsigned(nthreads), false, file, line);
}
inline bool barrier_red_or(bool vote, int id, UZIP_EMU_SITE) {
  return uzipEmuBarrier(unsigned(id), 0, vote, file, line);
}
inline bool barrier_red_or(bool vote, int id, int nthreads, UZIP_EMU_SITE) {
  return uzipEmuBarrier(unsigned(id), unsigned(nthreads), vote, file, line);
}
inline void __syncthreads(UZIP_EMU_SITE) { uzipEmuBarrier(0, 0, false, file, line); }
inline int __syncthreads_or(int vote, UZIP_EMU_SITE) { return uzipEmuBarrier(0, 0, vote != 0, file, line); }

inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_ACQ_REL); }
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

// --- Atomics -------------------------------------------------------------------------------------------------------------

template <typename T>
inline T atomicAdd(T* at, T v) {
  return __atomic_fetch_add(at, v, __ATOMIC_RELAXED);
}
template <typename T>
inline T atomicOr(T* at, T v) {
  return __atomic_fetch_or(at, v, __ATOMIC_RELAXED);
}
template <typename T>
inline T atomicExch(T* at, T v) {
  return __atomic_exchange_n(at, v, __ATOMIC_RELAXED);
}
template <typename T>
inline T atomicCAS(T* at, T compare, T v) {
  __atomic_compare_exchange_n(at, &compare, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return compare;
}
template <typename T>
inline T atomicMax(T* at, T v) {
  T old = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (old < v && !__atomic_compare_exchange_n(at, &old, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
  return old;
}

// --- Integer functions ---------------------------------------------------------------------------------------------------

inline int __popc(uint32_t v) { return __builtin_popcount(v); }
inline int __popcll(uint64_t v) { return __builtin_popcountll(v); }
inline int __clz(uint32_t v) { return v == 0 ? 32 : __builtin_clz(v); }
inline int __clzll(uint64_t v) { return v == 0 ? 64 : __builtin_clzll(v); }
inline int __ffs(uint32_t v) { return __builtin_ffs(int(v)); }
inline int __ffsll(uint64_t v) { return __builtin_ffsll((long long)v); }
inline uint32_t __brev(uint32_t v) {
  v = (v >> 1 & 0x55555555u) | (v & 0x55555555u) << 1;
  v = (v >> 2 & 0x33333333u) | (v & 0x33333333u) << 2;
  v = (v >> 4 & 0x0f0f0f0fu) | (v & 0x0f0f0f0fu) << 4;
  return __builtin_bswap32(v);
}
// PRMT: each nibble of the selector picks one of eight bytes; its top bit replicates the byte's sign instead.
inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t selector) {
  uint64_t const bytes = uint64_t(b) << 32 | a;
  uint32_t result = 0;
  for (int i = 0; i < 4; i++) {
    uint32_t const n = selector >> (4 * i);
    uint32_t byte = uint32_t(bytes >> (8 * (n & 7))) & 0xffu;
    if (n & 8) byte = byte & 0x80u ? 0xffu : 0u;
    result |= byte << (8 * i);
  }
  return result;
}
inline uint32_t __funnelshift_l(uint32_t low, uint32_t high, uint32_t shift) {
  return uint32_t((uint64_t(high) << 32 | low) << (shift & 31) >> 32);
}
inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t shift) {
  return uint32_t((uint64_t(high) << 32 | low) >> (shift & 31));
}
inline uint32_t __umulhi(uint32_t a, uint32_t b) { return uint32_t(uint64_t(a) * b >> 32); }

// Applies f to each Bits-wide field of a and b.
template <int Bits, typename F>
constexpr uint32_t uzipEmuFields(uint32_t a, uint32_t b, F f) {
  constexpr uint32_t field = (1u << Bits) - 1;
  uint32_t result = 0;
  for (int s = 0; s < 32; s += Bits) result |= (uint32_t(f((a >> s) & field, (b >> s) & field)) & field) << s;
  return result;
}
#define UZIP_EMU_SIMD(name, bits, expr)                                                        \
  inline uint32_t name(uint32_t a, uint32_t b) {                                               \
    return uzipEmuFields<bits>(a, b, [](uint32_t x, uint32_t y) -> uint32_t { return expr; }); \
  }
UZIP_EMU_SIMD(__vadd2, 16, x + y)
UZIP_EMU_SIMD(__vadd4, 8, x + y)
UZIP_EMU_SIMD(__vsub2, 16, x - y)
UZIP_EMU_SIMD(__vsub4, 8, x - y)
UZIP_EMU_SIMD(__vmaxu2, 16, x > y ? x : y)
UZIP_EMU_SIMD(__vmaxu4, 8, x > y ? x : y)
UZIP_EMU_SIMD(__vminu2, 16, x < y ? x : y)
UZIP_EMU_SIMD(__vminu4, 8, x < y ? x : y)
UZIP_EMU_SIMD(__vabsdiffu4, 8, x > y ? x - y : y - x)
UZIP_EMU_SIMD(__vsubus4, 8, x > y ? x - y : 0)
UZIP_EMU_SIMD(__vaddus4, 8, x + y > 0xff ? 0xff : x + y)
UZIP_EMU_SIMD(__vcmpeq2, 16, x == y ? 0xffff : 0)
UZIP_EMU_SIMD(__vcmpeq4, 8, x == y ? 0xff : 0)
UZIP_EMU_SIMD(__vcmpne4, 8, x != y ? 0xff : 0)
UZIP_EMU_SIMD(__vcmpgtu4, 8, x > y ? 0xff : 0)
UZIP_EMU_SIMD(__vcmpgeu4, 8, x >= y ? 0xff : 0)
UZIP_EMU_SIMD(__vcmpltu4, 8, x < y ? 0xff : 0)
UZIP_EMU_SIMD(__vcmpleu4, 8, x <= y ? 0xff : 0)
UZIP_EMU_SIMD(__vseteq4, 8, x == y)
UZIP_EMU_SIMD(__vsetgtu4, 8, x > y)
UZIP_EMU_SIMD(__vsetgeu4, 8, x >= y)
UZIP_EMU_SIMD(__vsetltu4, 8, x < y)
#undef UZIP_EMU_SIMD
// DP4A: c plus the dot product of the bytes.
inline uint32_t __dp4a(uint32_t a, uint32_t b, uint32_t c) {
  for (int s = 0; s < 32; s += 8) c += ((a >> s) & 0xffu) * ((b >> s) & 0xffu);
  return c;
}
inline int __dp4a(int a, int b, int c) {
  for (int s = 0; s < 32; s += 8) c += int(int8_t(uint32_t(a) >> s)) * int(int8_t(uint32_t(b) >> s));
  return c;
}

template <typename A, typename B>
constexpr typename std::common_type<A, B>::type min(A a, B b) {
  using C = typename std::common_type<A, B>::type;
  return C(b) < C(a) ? C(b) : C(a);
}
template <typename A, typename B>
constexpr typename std::common_type<A, B>::type max(A a, B b) {
  using C = typename std::common_type<A, B>::type;
  return C(a) < C(b) ? C(b) : C(a);
}

#endif  // UZIP_CUDA_EMU_H_
