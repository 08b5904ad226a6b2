// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// The warp emulator and the NCCL stand-ins against values worked out by hand or by a plainer formula. `emu_test NAME` runs one
// case; names that begin with "fail-" must end in abort() with a message. Without a name all other cases run.

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "../../nccl-uzip/emu/cuda_emu.h"
#include "../../nccl-uzip/emu/nccl_shim.h"

static constexpr uint32_t kAll = 0xffffffffu;

#define CHECK(cond)                                                             \
  do {                                                                          \
    if (!(cond)) {                                                              \
      fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #cond); \
      exit(1);                                                                  \
    }                                                                           \
  } while (0)

// Every case that runs blocks does so in ascending order and in some random ones.
static void runOrders(int nthreads, std::function<void()> const& kernel, size_t sharedBytes = 0) {
  for (uint64_t seed = 0; seed < 12; seed++) {
    EmuOptions options;
    options.seed = seed;
    options.sharedBytes = sharedBytes;
    uzipEmuRunBlock(nthreads, kernel, options);
  }
}

static void testThreadNames() {
  std::vector<int> seen(640);
  EmuOptions options;
  options.block = dim3(5);
  options.grid = dim3(7);
  uzipEmuRunBlock(
      640,
      [&] {
        CHECK(blockIdx.x == 5 && gridDim.x == 7 && blockDim.x == 640);
        seen[threadIdx.x] += 1;
      },
      options);
  for (int n : seen) CHECK(n == 1);
}

static void testShuffles() {
  runOrders(64, [] {
    uint32_t const lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int round = 0; round < 20; round++) {
      uint32_t const v = threadIdx.x * 1000 + uint32_t(round);
      auto of = [&](uint32_t l) { return (warp * 32 + l) * 1000 + uint32_t(round); };
      CHECK(__shfl_sync(kAll, v, round) == of(uint32_t(round)));
      CHECK(__shfl_sync(kAll, v, 33) == of(1));
      CHECK(__shfl_sync(kAll, v, int(lane + 1)) == of((lane + 1) % 32));
      CHECK(__shfl_up_sync(kAll, v, 3) == (lane < 3 ? v : of(lane - 3)));
      CHECK(__shfl_down_sync(kAll, v, 5) == (lane + 5 < 32 ? of(lane + 5) : v));
      CHECK(__shfl_xor_sync(kAll, v, 21) == of(lane ^ 21));
      CHECK(__shfl_sync(kAll, v, 3, 8) == of((lane & ~7u) | 3));
      CHECK(__shfl_up_sync(kAll, v, 1, 4) == (lane % 4 == 0 ? v : of(lane - 1)));
      CHECK(__shfl_down_sync(kAll, v, 1, 4) == (lane % 4 == 3 ? v : of(lane + 1)));
      CHECK(__shfl_xor_sync(kAll, v, 3, 4) == of(lane ^ 3));
      CHECK(__shfl_sync(kAll, uint64_t(v) << 20 | lane, 9) == (uint64_t(of(9)) << 20 | 9));
      CHECK(__shfl_sync(kAll, float(lane), 4) == 4.0f);
      CHECK(__shfl_sync(kAll, -int(lane), 4) == -4);
    }
  });
}

static void testVotesAndReductions() {
  runOrders(96, [] {
    uint32_t const lane = threadIdx.x % 32;
    CHECK(__ballot_sync(kAll, lane % 3 == 0) == 0x49249249u);
    CHECK(__any_sync(kAll, lane == 31) && !__any_sync(kAll, 0));
    CHECK(__all_sync(kAll, 1) && !__all_sync(kAll, lane != 7));
    CHECK(__reduce_add_sync(kAll, lane) == 496);
    CHECK(__reduce_max_sync(kAll, lane * 7 % 32) == 31);
    CHECK(__reduce_min_sync(kAll, lane * 7 % 32 + 4) == 4);
    CHECK(__reduce_or_sync(kAll, 1u << lane) == kAll);
    CHECK(__reduce_and_sync(kAll, ~(1u << (lane % 5))) == ~0x1fu);
    CHECK(__reduce_xor_sync(kAll, 1u << (lane % 5)) ==
          0x03u);  // 32 lanes: bits 0 and 1 seven times, bits 2 to 4 six times
    CHECK(__match_any_sync(kAll, lane / 8) == 0xffu << (8 * (lane / 8)));
  });
}

static void testPartialMasks() {
  runOrders(32, [] {
    uint32_t const lane = threadIdx.x;
    uint32_t const mask = lane < 16 ? 0x0000ffffu : 0xffff0000u;
    for (int round = 0; round < 10; round++) {
      if (lane < 16) {
        CHECK(__reduce_add_sync(mask, lane) == 120);
        CHECK(__reduce_min_sync(mask, lane + 3) == 3);
      } else {
        CHECK(__ballot_sync(mask, lane & 1) == 0xaaaa0000u);
        CHECK(__all_sync(mask, 1));
        CHECK(__shfl_sync(mask, lane, 17) == 17);
      }
    }
    if (lane == 3) __syncwarp(8);
    CHECK(__reduce_add_sync(kAll, 1) == 32);
  });
}

// What lanes wrote before a collective is seen after it, in every order; a plain read before it is not in all of them.
static void testMemoryOrder() {
  int early = 0;
  runOrders(
      128,
      [&] {
        uint32_t volatile* words = (uint32_t volatile*)uzipEmuShared();
        uint32_t const tid = threadIdx.x, nthreads = blockDim.x;
        for (uint32_t round = 1; round < 9; round++) {
          words[tid] = round * 1000 + tid;
          if (tid == 0 && words[nthreads - 1] == round * 1000 + nthreads - 1) early += 1;
          __syncwarp();
          CHECK(words[tid ^ 31] == round * 1000 + (tid ^ 31));
          __syncthreads();
          CHECK(words[nthreads - 1 - tid] == round * 1000 + nthreads - 1 - tid);
          __syncthreads();
        }
      },
      128 * 4);
  CHECK(early > 0 && early < 12 * 8);
}

static void testBarriers() {
  runOrders(
      160,
      [] {
        uint32_t* counts = (uint32_t*)uzipEmuShared();
        uint32_t const tid = threadIdx.x;
        bool const worker = tid < 128;
        for (uint32_t round = 1; round <= 10; round++) {
          if (worker) {
            atomicAdd(&counts[0], 1u);
            barrier_sync(14, 128);
            CHECK(counts[0] == 128 * round);
            CHECK(barrier_red_or(tid == 77, 14, 128));
            CHECK(!barrier_red_or(false, 14, 128));
          }
          if (tid == 159) counts[1] = round;
          barrier_sync(15, 160);
          CHECK(counts[1] == round);
          CHECK(__syncthreads_or(tid == round) == 1);
        }
      },
      8);
}

static void testPolling() {
  for (uint64_t seed = 0; seed < 5; seed++) {
    uint64_t volatile step = 0;
    int woken = 0;
    EmuOptions options;
    options.seed = seed;
    EmuBlock block(
        64,
        [&] {
          for (uint64_t want = 1; want <= 3; want++) {
            if (threadIdx.x == 1) {
              while (step < want) uzipEmuYield();
              woken += 1;
            }
            __syncthreads();
          }
        },
        options);
    for (int want = 0; want < 3; want++) {
      CHECK(block.run() == EmuState::Polling && woken == want);
      step = step + 1;
    }
    CHECK(block.run() == EmuState::Done && woken == 3);
    CHECK(block.run() == EmuState::Done);
  }
}

static void testIntegers() {
  CHECK(__popc(0xf0f00001u) == 9 && __popcll(~0ull) == 64);
  CHECK(__clz(0) == 32 && __clz(1) == 31 && __clzll(0) == 64 && __clzll(1) == 63);
  CHECK(__ffs(0) == 0 && __ffs(8) == 4 && __ffsll(1ull << 40) == 41);
  CHECK(__brev(1) == 0x80000000u && __brev(0x12345678u) == 0x1e6a2c48u);
  CHECK(__byte_perm(0x33221100u, 0x77665544u, 0x7531) == 0x77553311u);
  CHECK(__byte_perm(0x33221100u, 0x77665544u, 0x0123) == 0x00112233u);
  CHECK(__byte_perm(0x00800000u, 0x7f000000u, 0x02fa) == 0x008000ffu);  // bit 3 of a nibble replicates the byte's sign
  CHECK(__byte_perm(0x33221100u, 0, 0xffff0001u) == 0x00000011u);  // the upper half of the selector is not used
  CHECK(__funnelshift_l(0x80000001u, 0x40000000u, 1) == 0x80000001u && __funnelshift_l(1, 2, 32) == 2);
  CHECK(__funnelshift_r(0x80000001u, 0x40000001u, 1) == 0xc0000000u && __funnelshift_r(1, 2, 32) == 1);
  CHECK(__umulhi(0x80000000u, 6) == 3);
  CHECK(__vmaxu2(0x00010005u, 0x00030004u) == 0x00030005u && __vminu2(0x00010005u, 0x00030004u) == 0x00010004u);
  CHECK(__vmaxu4(0x01ff0380u, 0x02000481u) == 0x02ff0481u && __vminu4(0x01ff0380u, 0x02000481u) == 0x01000380u);
  CHECK(__vadd4(0xff010280u, 0x01020380u) == 0x00030500u && __vsub4(0x00010280u, 0x01020380u) == 0xffffff00u);
  CHECK(__vcmpeq4(0x01020304u, 0x01ff03ffu) == 0xff00ff00u && __vseteq4(0x01020304u, 0x01ff03ffu) == 0x01000100u);
  CHECK(__vcmpgtu4(0x80010203u, 0x7f010104u) == 0xff00ff00u && __vsetltu4(0x80010203u, 0x7f010104u) == 0x00000001u);
  CHECK(__vsubus4(0x01050000u, 0x02030001u) == 0x00020000u && __vabsdiffu4(0x01050000u, 0x02030001u) == 0x01020001u);
  CHECK(__dp4a(0x01020304u, 0x01010101u, 5u) == 15u && __dp4a(int(0xff020304u), 0x01010101, 0) == 8);
  uint32_t word = 5;
  CHECK(atomicAdd(&word, 2u) == 5 && atomicMax(&word, 3u) == 7 && atomicMax(&word, 9u) == 7 &&
        atomicOr(&word, 6u) == 9);
  CHECK(atomicCAS(&word, 15u, 1u) == 15 && atomicCAS(&word, 15u, 2u) == 1 && word == 1 && atomicExch(&word, 8u) == 1 &&
        word == 8);
}

// The nearest value of T by search over all of its finite values; ties to the even one.
template <typename T>
static void testRounding(int mantissaBits, float largest) {
  std::vector<std::pair<double, uint16_t>> values;
  for (uint32_t b = 0; b < 0x8000; b++) {
    T v;
    v.bits = uint16_t(b);
    double const f = double(emuToFloat(v));
    if (std::isfinite(f)) values.push_back({f, uint16_t(b)});
  }
  CHECK(std::is_sorted(values.begin(), values.end()));
  CHECK(values.back().first == double(largest));
  std::mt19937 rng(7);
  for (int i = 0; i < 300000; i++) {
    float f = emuFloatOf(rng());
    if (i % 3 == 0) {  // ties and their neighbours
      size_t const k = rng() % (values.size() - 1);
      f = emuFloatOf(emuBitsOf(float((values[k].first + values[k + 1].first) / 2)) + rng() % 3 - 1);
    }
    uint16_t const got = emuRound<T>(f).bits;
    if (f != f) {
      CHECK(got == 0x7fff);
      continue;
    }
    double const a = fabs(double(f));
    size_t const above =
        size_t(std::lower_bound(values.begin(), values.end(), std::make_pair(a, uint16_t(0))) - values.begin());
    uint16_t want;
    if (above == values.size()) {  // halfway to the next power of two and beyond is infinity
      double const limit = values.back().first + ldexp(1.0, ilogb(values.back().first) - mantissaBits - 1);
      want = uint16_t(values.back().second + (a >= limit));
    } else if (values[above].first == a) {
      want = values[above].second;
    } else {
      double const low = a - values[above - 1].first, high = values[above].first - a;
      want = values[low < high || (low == high && values[above].second % 2 == 1) ? above - 1 : above].second;
    }
    CHECK(got == (want | (emuBitsOf(f) >> 31 << 15)));
  }
}

static void testReductions() {
  testRounding<half>(10, 65504.0f);
  testRounding<__nv_bfloat16>(7, 0x1.fep127f);
  auto bf = [](float f) { return emuRound<__nv_bfloat16>(f); };
  CHECK(emuReduce(FuncSum<__nv_bfloat16>(), bf(1.0f), bf(0x1p-8f)).bits == bf(1.0f).bits);  // a tie, to even
  CHECK(emuReduce(FuncProd<half>(), emuRound<half>(3.0f), emuRound<half>(-0.5f)).bits == emuRound<half>(-1.5f).bits);
  FuncMinMax<float> least(0), most(1);
  CHECK(emuBitsOf(emuReduce(least, 0.0f, -0.0f)) == 0x80000000u && emuBitsOf(emuReduce(most, -0.0f, 0.0f)) == 0);
  CHECK(emuReduce(least, NAN, 2.0f) == 2.0f && emuReduce(most, 3.0f, NAN) == 3.0f);
  CHECK(emuBitsOf(emuReduce(least, emuFloatOf(0x7f800001u), NAN)) == 0x7fffffffu);
  CHECK(emuBitsOf(emuReduce(FuncSum<float>(), emuFloatOf(0xffc12345u), 1.0f)) == 0x7fffffffu);
  uint64_t arg = 0;
  float const third = 0.25f;
  memcpy(&arg, &third, 4);
  CHECK(emuPreOp(FuncPreMulSum<float>(arg), 8.0f) == 2.0f && emuReduce(FuncPreMulSum<float>(arg), 8.0f, 1.0f) == 9.0f);
}

static void testReduceCopy() {
  for (int n : {1, 31, 63, 64, 65, 1000, 4097}) {
    size_t const count = size_t(n);
    std::vector<float> a(count), b(count, 2.0f), c(count), d(count);
    for (int i = 0; i < n; i++) a[size_t(i)] = float(i);
    uint64_t arg = 0;
    float const scalar = 3.0f;
    memcpy(&arg, &scalar, 4);
    runOrders(64, [&] {
      void *srcs[2] = {a.data(), b.data()}, *dsts[2] = {c.data(), d.data()};
      reduceCopy<4, FuncPreMulSum<float>, float, 0, 2, 2, 0, 2, 2, 1>(int(threadIdx.x), 64, arg, false, 2, srcs, 2,
                                                                      dsts, n);
    });
    for (int i = 0; i < n; i++) CHECK(c[size_t(i)] == 3.0f * float(i) + 2.0f && d[size_t(i)] == c[size_t(i)]);
  }
}

// --- Cases that must fail ------------------------------------------------------------------------------------------------

static void failBarrierDeadlock() {
  uzipEmuRunBlock(64, [] {
    if (threadIdx.x < 32) barrier_sync(3, 64);
  });
}
static void failDifferentCollectives() {
  uzipEmuRunBlock(32, [] {
    if (threadIdx.x == 4)
      __syncwarp();
    else
      __ballot_sync(kAll, 1);
  });
}
static void failMissingLane() {
  uzipEmuRunBlock(32, [] {
    if (threadIdx.x != 9)
      __syncwarp();
    else
      barrier_sync(0, 32);
  });
}
static void failReturnedLane() {
  uzipEmuRunBlock(32, [] {
    if (threadIdx.x != 0) __syncwarp();
  });
}
static void failOutsideMask() {
  uzipEmuRunBlock(32, [] { __syncwarp(0x7fffffffu); });
}
static void failShuffleOutsideMask() {
  uzipEmuRunBlock(32, [] {
    if (threadIdx.x < 16) __shfl_sync(0xffffu, 1, 20);
  });
}
static void failBarrierCounts() {
  uzipEmuRunBlock(96, [] { barrier_sync(1, threadIdx.x < 32 ? 64 : 96); });
}
static void failPartOfWarp() {
  uzipEmuRunBlock(64, [] {
    if (threadIdx.x % 32 < 16) barrier_sync(1, 32);
  });
}
static void failPollsForever() {
  uzipEmuRunBlock(32, [] {
    while (threadIdx.x == 0) uzipEmuYield();
  });
}
// Uses far more stack than a thread has; the guard page below it ends the program.
static int deep(int n) {
  char volatile frame[1024];
  frame[n % 1024] = char(n);
  return n == 0 ? 0 : deep(n - 1) + frame[n % 1024];
}
static void failStackOverflow() {
  uzipEmuRunBlock(32, [] { exit(deep(1 << 20) & 1); });
}

struct Case {
  char const* name;
  void (*run)();
};
static Case const kCases[] = {
    {"thread-names", testThreadNames},
    {"shuffles", testShuffles},
    {"votes-and-reductions", testVotesAndReductions},
    {"partial-masks", testPartialMasks},
    {"memory-order", testMemoryOrder},
    {"barriers", testBarriers},
    {"polling", testPolling},
    {"integers", testIntegers},
    {"reductions", testReductions},
    {"reduce-copy", testReduceCopy},
    {"fail-barrier-deadlock", failBarrierDeadlock},
    {"fail-different-collectives", failDifferentCollectives},
    {"fail-missing-lane", failMissingLane},
    {"fail-returned-lane", failReturnedLane},
    {"fail-outside-mask", failOutsideMask},
    {"fail-shuffle-outside-mask", failShuffleOutsideMask},
    {"fail-barrier-counts", failBarrierCounts},
    {"fail-part-of-warp", failPartOfWarp},
    {"fail-polls-forever", failPollsForever},
    {"fail-stack-overflow", failStackOverflow},
};

int main(int argc, char** argv) {
  if (argc == 2 && strcmp(argv[1], "--list") == 0) {
    for (Case const& c : kCases) puts(c.name);
    return 0;
  }
  int ran = 0;
  for (Case const& c : kCases) {
    if (argc == 2 ? strcmp(argv[1], c.name) != 0 : strncmp(c.name, "fail-", 5) == 0) continue;
    c.run();
    ran += 1;
  }
  if (ran == 0) {
    fprintf(stderr, "emu_test: no such case\n");
    return 2;
  }
  printf("%d cases hold\n", ran);
  return 0;
}
