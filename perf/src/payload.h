// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// What the ranks send. A payload is an endless sequence of elements; rank r's element i is element i + r * 4099 of it.
// Host and device share this code.

#ifndef PERF_PAYLOAD_H_
#define PERF_PAYLOAD_H_

#include "numeric.h"

namespace perf {

enum Dist : int { kDistNormal, kDistUniform, kDistRandom, kDistZeros, kDistGrad, kDistConst, kDistRamp, kDistFile };

constexpr const char* kDistNames[] = {"normal", "uniform", "random", "zeros", "grad", "const", "ramp"};
constexpr uint64_t kRankShift = 4099;

struct Payload {
  Dist dist;
  uint64_t seed;
  const void* data;  // kDistFile: `length` elements of the run's type, repeated without end
  uint64_t length;
};

// A 64-bit mixing function: multiply and xor-shift rounds over the odd constant of the golden ratio.
PERF_HD uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}

// Random bits of element `index`; independent for each `stream`.
PERF_HD uint64_t randomBits(uint64_t seed, uint64_t index, uint64_t stream) {
  return mix64(mix64(mix64(seed) + stream) ^ index);
}

// In the open interval (0, 1).
PERF_HD double unitOf(uint64_t bits) { return (double(bits >> 11) + 0.5) * pow2(-53); }

PERF_HD double standardNormal(uint64_t seed, uint64_t index) {
  double u = unitOf(randomBits(seed, index, 0)), v = unitOf(randomBits(seed, index, 1));
  return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

// normal   N(0, 0.02)
// uniform  [-1, 1)
// grad     Student's t with 4 degrees of freedom, times a scale drawn from 2^-14 .. 2^-8 anew for every 4096 elements
// const    1
// ramp     index modulo 128
// random is not here: it is bits, not values.
PERF_HD double distValue(Dist dist, uint64_t seed, uint64_t index) {
  switch (dist) {
    case kDistNormal: return 0.02 * standardNormal(seed, index);
    case kDistUniform: return 2.0 * double(randomBits(seed, index, 0) >> 11) * pow2(-53) - 1.0;
    case kDistGrad: {
      double t = standardNormal(seed, index) /
                 sqrt(-0.5 * log(unitOf(randomBits(seed, index, 2)) * unitOf(randomBits(seed, index, 3))));
      return t * exp2(-14.0 + 6.0 * unitOf(randomBits(seed, index / 4096, 4)));
    }
    case kDistConst: return 1.0;
    case kDistRamp: return double(index % 128);
    default: return 0.0;
  }
}

// Integers: const, ramp and zeros as they are; the others times 100, rounded, cut to the 8-bit range; unsigned takes |v|.
template <int DT>
PERF_HD typename Elem<DT>::Bits encodeValue(Dist dist, double v) {
  using Bits = typename Elem<DT>::Bits;
  if constexpr (Elem<DT>::kFloat) {
    return Elem<DT>::encode(v);
  } else {
    if (dist == kDistNormal || dist == kDistUniform || dist == kDistGrad)
      v = fmin(fmax(rint(v * 100.0), -127.0), 127.0);
    if (!Elem<DT>::kSigned) v = fabs(v);
    return Bits(int64_t(v));
  }
}

// Element `index` of the sequence, as bits of type DT.
template <int DT>
PERF_HD typename Elem<DT>::Bits payloadElement(const Payload& p, uint64_t index) {
  using Bits = typename Elem<DT>::Bits;
  if (p.dist == kDistFile) return static_cast<const Bits*>(p.data)[index % p.length];
  if (p.dist == kDistRandom) return Bits(randomBits(p.seed, index, 0));
  return encodeValue<DT>(p.dist, distValue(p.dist, p.seed, index));
}

template <int DT>
PERF_HD typename Elem<DT>::Bits rankElement(const Payload& p, int rank, uint64_t i) {
  return payloadElement<DT>(p, i + uint64_t(rank) * kRankShift);
}

}  // namespace perf

#endif  // PERF_PAYLOAD_H_
