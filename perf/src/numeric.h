// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// Element types: sizes, names and exact conversion to and from double. Host and device share this code.
// Narrow floats round to nearest even; e4m3 has no infinity and saturates at 448.

#ifndef PERF_NUMERIC_H_
#define PERF_NUMERIC_H_

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "nccl_api.h"

#if defined(__CUDACC__)
#define PERF_HD __host__ __device__ inline
#else
#define PERF_HD inline
#endif

namespace perf {

struct DTypeInfo {
  const char* name;
  int bytes;
  bool isFloat;
};

constexpr DTypeInfo kDTypeInfo[kDTypes] = {{"int8", 1, false},    {"uint8", 1, false}, {"int32", 4, false},
                                           {"uint32", 4, false},  {"int64", 8, false}, {"uint64", 8, false},
                                           {"half", 2, true},     {"float", 4, true},  {"double", 8, true},
                                           {"bfloat16", 2, true}, {"f8e4m3", 1, true}, {"f8e5m2", 1, true}};

// 2^e for -1022 <= e <= 1023.
PERF_HD double pow2(int e) {
  uint64_t bits = uint64_t(e + 1023) << 52;
  double v;
  memcpy(&v, &bits, 8);
  return v;
}

PERF_HD uint64_t doubleBits(double x) {
  uint64_t b;
  memcpy(&b, &x, 8);
  return b;
}

PERF_HD bool isNan(double x) { return x != x; }
PERF_HD bool isFinite(double x) { return (doubleBits(x) >> 52 & 0x7ff) != 0x7ff; }

// A float of 1 + E + M bits; kInf says whether its top exponent means infinity and NaN (else all ones alone is NaN).
template <int E, int M, bool kInf>
struct Narrow {
  static constexpr int kBias = (1 << (E - 1)) - 1;
  static constexpr uint32_t kTopExp = (1u << E) - 1;
  static constexpr uint32_t kManMask = (1u << M) - 1;
  static constexpr uint32_t kMaxFinite = kInf ? (kTopExp << M) - 1 : (kTopExp << M | kManMask) - 1;
  static constexpr uint32_t kOverflow = kInf ? kTopExp << M : kMaxFinite;
  static constexpr uint32_t kNan = kTopExp << M | (kInf ? 1u << (M - 1) : kManMask);

  static PERF_HD double decode(uint32_t bits) {
    uint32_t exp = bits >> M & kTopExp, man = bits & kManMask;
    double sign = bits >> (E + M) & 1 ? -1.0 : 1.0;
    if (exp == kTopExp && (kInf || man == kManMask)) return kInf && man == 0 ? sign * HUGE_VAL : nan("");
    return exp == 0 ? sign * double(man) * pow2(1 - kBias - M)
                    : sign * double(man | 1u << M) * pow2(int(exp) - kBias - M);
  }

  static PERF_HD uint32_t encode(double x) {
    uint32_t sign = uint32_t(doubleBits(x) >> 63) << (E + M);
    if (isNan(x)) return sign | kNan;
    double a = fabs(x);
    int e = int(doubleBits(a) >> 52) - 1023;
    if (e > kBias + 1) return sign | kOverflow;  // one more than the largest exponent is left to the rounding below
    if (e < 1 - kBias) e = 1 - kBias;
    uint32_t q = uint32_t(rint(a * pow2(M - e)));  // exact but for the rounding; a carry moves into the exponent
    uint32_t bits = (uint32_t(e + kBias - 1) << M) + q;
    return sign | (bits > kMaxFinite ? kOverflow : bits);
  }
};

template <int DT>
struct Elem;

template <typename B, bool kSignedInt>
struct IntElem {
  using Bits = B;
  static constexpr bool kFloat = false;
  static constexpr bool kSigned = kSignedInt;
  // Sign or zero extended.
  static PERF_HD uint64_t widen(B b) {
    constexpr int shift = 64 - 8 * int(sizeof(B));
    return kSigned ? uint64_t(int64_t(uint64_t(b) << shift) >> shift) : uint64_t(b);
  }
};
template <>
struct Elem<kInt8> : IntElem<uint8_t, true> {};
template <>
struct Elem<kUint8> : IntElem<uint8_t, false> {};
template <>
struct Elem<kInt32> : IntElem<uint32_t, true> {};
template <>
struct Elem<kUint32> : IntElem<uint32_t, false> {};
template <>
struct Elem<kInt64> : IntElem<uint64_t, true> {};
template <>
struct Elem<kUint64> : IntElem<uint64_t, false> {};

// Floats up to 16 bits. kMantissa: stored mantissa bits; kBias: exponent bias.
template <typename B, int E, int M, bool kInf>
struct NarrowElem {
  using Bits = B;
  using Codec = Narrow<E, M, kInf>;
  static constexpr bool kFloat = true;
  static constexpr int kBias = Codec::kBias;
  static constexpr int kMantissa = M;
  static PERF_HD double decode(B b) { return Codec::decode(b); }
  static PERF_HD B encode(double x) { return B(Codec::encode(x)); }
  static PERF_HD double maxFinite() { return Codec::decode(Codec::kMaxFinite); }
};
template <>
struct Elem<kHalf> : NarrowElem<uint16_t, 5, 10, true> {};
template <>
struct Elem<kBfloat16> : NarrowElem<uint16_t, 8, 7, true> {};
template <>
struct Elem<kFloat8e4m3> : NarrowElem<uint8_t, 4, 3, false> {};
template <>
struct Elem<kFloat8e5m2> : NarrowElem<uint8_t, 5, 2, true> {};

template <>
struct Elem<kFloat> {
  using Bits = uint32_t;
  static constexpr bool kFloat = true;
  static constexpr int kBias = 127;
  static constexpr int kMantissa = 23;
  static PERF_HD double decode(uint32_t b) {
    float f;
    memcpy(&f, &b, 4);
    return f;
  }
  static PERF_HD uint32_t encode(double x) {
    float f = float(x);
    uint32_t b;
    memcpy(&b, &f, 4);
    return b;
  }
  static PERF_HD double maxFinite() { return decode(0x7f7fffffu); }
};

template <>
struct Elem<kDouble> {
  using Bits = uint64_t;
  static constexpr bool kFloat = true;
  static constexpr int kBias = 1023;
  static constexpr int kMantissa = 52;
  static PERF_HD double decode(uint64_t b) {
    double d;
    memcpy(&d, &b, 8);
    return d;
  }
  static PERF_HD uint64_t encode(double x) { return doubleBits(x); }
  static PERF_HD double maxFinite() { return decode(0x7fefffffffffffffull); }
};

// Runs the statements with NAME as the compile-time value of the run-time type: PERF_DISPATCH(type, DT, f<DT>(x)).
#define PERF_DISPATCH_CASE(T, NAME, ...) \
  case T: {                              \
    constexpr int NAME = T;              \
    __VA_ARGS__;                         \
    break;                               \
  }
#define PERF_DISPATCH(TYPE, NAME, ...)                         \
  switch (TYPE) {                                              \
    PERF_DISPATCH_CASE(::perf::kInt8, NAME, __VA_ARGS__)       \
    PERF_DISPATCH_CASE(::perf::kUint8, NAME, __VA_ARGS__)      \
    PERF_DISPATCH_CASE(::perf::kInt32, NAME, __VA_ARGS__)      \
    PERF_DISPATCH_CASE(::perf::kUint32, NAME, __VA_ARGS__)     \
    PERF_DISPATCH_CASE(::perf::kInt64, NAME, __VA_ARGS__)      \
    PERF_DISPATCH_CASE(::perf::kUint64, NAME, __VA_ARGS__)     \
    PERF_DISPATCH_CASE(::perf::kHalf, NAME, __VA_ARGS__)       \
    PERF_DISPATCH_CASE(::perf::kFloat, NAME, __VA_ARGS__)      \
    PERF_DISPATCH_CASE(::perf::kDouble, NAME, __VA_ARGS__)     \
    PERF_DISPATCH_CASE(::perf::kBfloat16, NAME, __VA_ARGS__)   \
    PERF_DISPATCH_CASE(::perf::kFloat8e4m3, NAME, __VA_ARGS__) \
    PERF_DISPATCH_CASE(::perf::kFloat8e5m2, NAME, __VA_ARGS__) \
    default: break;                                            \
  }

}  // namespace perf

#endif  // PERF_NUMERIC_H_
