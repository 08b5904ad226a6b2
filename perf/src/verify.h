// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// What makes an output element right, and the hash of an output. docs/PERF.md ("What is checked") states the bounds.
// Host and device share this code.

#ifndef PERF_VERIFY_H_
#define PERF_VERIFY_H_

#include "payload.h"

namespace perf {

enum Verdict : int { kRight = 0, kWrong = 1, kUnjudged = 2 };

// Factor of rank r's input under mulsum; exact in every type.
PERF_HD double mulScalarFloat(int rank) { return rank % 2 ? 0.75 : 1.5; }
PERF_HD uint64_t mulScalarInt(int rank) { return rank % 2 ? 3 : 2; }

template <int DT>
PERF_HD typename Elem<DT>::Bits mulScalarBits(int rank) {
  if constexpr (Elem<DT>::kFloat) {
    return Elem<DT>::encode(mulScalarFloat(rank));
  } else {
    return typename Elem<DT>::Bits(mulScalarInt(rank));
  }
}

// (1 + u)^k - 1 without cancellation.
PERF_HD double growth(double u, int k) { return expm1(double(k) * log1p(u)); }

// Judges `out` as the reduction of input(0) .. input(ranks - 1), bits of type DT.
template <int DT, typename Input>
PERF_HD Verdict judgeFloat(typename Elem<DT>::Bits out, RedOp op, int ranks, const Input& input) {
  using E = Elem<DT>;
  double got = E::decode(out);
  // Eight-bit floats are computed in half precision and rounded again: an operation's error is a little above half a unit.
  double u = pow2(-E::kMantissa - 1) * (sizeof(out) == 1 ? 1.0 + pow2(-6) : 1.0);
  double tiny = E::decode(1);  // smallest positive value
  double scale = op == kAvg ? 1.0 / ranks : 1.0;
  double sum = 0, sumAbs = 0, prod = 1, prodAbs = 1, lo = HUGE_VAL, hi = -HUGE_VAL;
  bool nanIn = false, infIn = false;
  for (int r = 0; r < ranks; r++) {
    double v = E::decode(input(r));
    nanIn |= isNan(v);
    infIn |= !isNan(v) && !isFinite(v);
    if (op == kMulSum) v *= mulScalarFloat(r);
    v *= scale;
    sum += v;
    sumAbs += fabs(v);
    prod *= v;
    prodAbs *= fmax(1.0, fabs(v));
    lo = fmin(lo, v);
    hi = fmax(hi, v);
  }
  bool minMax = op == kMin || op == kMax;
  if (nanIn) return minMax ? kUnjudged : isNan(got) ? kRight : kWrong;
  if (minMax) return got == (op == kMin ? lo : hi) ? kRight : kWrong;
  if (infIn) return kUnjudged;
  int roundings = ranks - 1 + (op == kMulSum ? 1 : op == kAvg ? 2 : 0);
  double rel = growth(u, roundings) + double(ranks) * pow2(-51);  // the second term: this reference's own roundings
  double want = op == kProd ? prod : sum;
  double reach = op == kProd ? prodAbs : sumAbs;  // no partial result is larger
  double bound = op == kProd ? rel * fabs(prod) + roundings * tiny * prodAbs : rel * sumAbs + roundings * tiny;
  if (!(reach * (1.0 + rel) <= E::maxFinite())) return kUnjudged;
  return fabs(got - want) <= bound ? kRight : kWrong;
}

template <int DT, typename Input>
PERF_HD Verdict judgeInt(typename Elem<DT>::Bits out, RedOp op, int ranks, const Input& input) {
  using E = Elem<DT>;
  using Bits = typename E::Bits;
  uint64_t acc = 0;
  for (int r = 0; r < ranks; r++) {
    uint64_t v = E::widen(input(r));
    if (op == kMulSum) v *= mulScalarInt(r);
    bool less = E::kSigned ? int64_t(v) < int64_t(acc) : v < acc;
    if (r == 0)
      acc = v;
    else if (op == kProd)
      acc *= v;
    else if (op == kMin)
      acc = less ? v : acc;
    else if (op == kMax)
      acc = less ? acc : v;
    else
      acc += v;
  }
  if (op == kAvg) {  // the sum wraps in the type, then divides toward zero
    uint64_t s = E::widen(Bits(acc));
    acc = E::kSigned ? uint64_t(int64_t(s) / ranks) : s / uint64_t(ranks);
  }
  return out == Bits(acc) ? kRight : kWrong;
}

template <int DT, typename Input>
PERF_HD Verdict judgeReduction(typename Elem<DT>::Bits out, RedOp op, int ranks, const Input& input) {
  if constexpr (Elem<DT>::kFloat) {
    return judgeFloat<DT>(out, op, ranks, input);
  } else {
    return judgeInt<DT>(out, op, ranks, input);
  }
}

// An output's hash is the sum of its elements' hashes modulo 2^64: independent of the order of evaluation, not of the
// elements' order. combineHashes folds the ranks' hashes in rank order.
PERF_HD uint64_t elementHash(uint64_t bits, uint64_t i) { return mix64(mix64(i) ^ bits); }

inline uint64_t combineHashes(const uint64_t* hashes, int ranks) {
  uint64_t h = uint64_t(ranks);
  for (int r = 0; r < ranks; r++) h = mix64(h ^ hashes[r]);
  return h;
}

}  // namespace perf

#endif  // PERF_VERIFY_H_
