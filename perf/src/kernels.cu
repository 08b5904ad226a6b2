// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0

#include "kernels.h"

#include "verify.h"

namespace perf {

namespace {

constexpr int kThreads = 256;

int blocksFor(uint64_t n) {
  uint64_t blocks = (n + kThreads - 1) / kThreads;
  return int(blocks < 1 ? 1 : blocks > 2048 ? 2048 : blocks);
}

// Adds the sum over the block to *total. All threads of the block take part.
__device__ void addToTotal(unsigned long long v, unsigned long long* total) {
  for (int delta = 16; delta > 0; delta /= 2) v += __shfl_xor_sync(0xffffffffu, v, delta);
  if (threadIdx.x % 32 == 0 && v != 0) atomicAdd(total, v);
}

#define FOR_EACH_ELEMENT(i, n)                                                                                 \
  for (uint64_t i = blockIdx.x * uint64_t(blockDim.x) + threadIdx.x, step_ = uint64_t(gridDim.x) * blockDim.x; \
       i < (n); i += step_)

template <int DT>
__global__ void fillKernel(typename Elem<DT>::Bits* dst, uint64_t n, Payload p, int rank) {
  FOR_EACH_ELEMENT(i, n) dst[i] = rankElement<DT>(p, rank, i);
}

template <int DT>
__global__ void copyKernel(const typename Elem<DT>::Bits* out, uint64_t n, Payload p, int rank, CheckCounters* c) {
  unsigned long long wrong = 0;
  FOR_EACH_ELEMENT(i, n) wrong += out[i] != rankElement<DT>(p, rank, i);
  addToTotal(wrong, &c->wrong);
}

template <int DT>
struct RankInput {
  Payload p;
  uint64_t i;
  __device__ typename Elem<DT>::Bits operator()(int rank) const { return rankElement<DT>(p, rank, i); }
};

template <int DT>
__global__ void reductionKernel(const typename Elem<DT>::Bits* out, uint64_t n, Payload p, RedOp op, int ranks,
                                CheckCounters* c) {
  unsigned long long wrong = 0, unjudged = 0;
  FOR_EACH_ELEMENT(i, n) {
    Verdict v = judgeReduction<DT>(out[i], op, ranks, RankInput<DT>{p, i});
    wrong += v == kWrong;
    unjudged += v == kUnjudged;
  }
  addToTotal(wrong, &c->wrong);
  addToTotal(unjudged, &c->unjudged);
}

__global__ void bytesKernel(const uint8_t* bytes, uint64_t n, uint8_t want, CheckCounters* c) {
  unsigned long long wrong = 0;
  FOR_EACH_ELEMENT(i, n) wrong += bytes[i] != want;
  addToTotal(wrong, &c->wrong);
}

template <typename Bits>
__global__ void hashKernel(const Bits* out, uint64_t n, CheckCounters* c) {
  unsigned long long sum = 0;
  FOR_EACH_ELEMENT(i, n) sum += elementHash(uint64_t(out[i]), i);
  addToTotal(sum, &c->hash);
}

}  // namespace

cudaError_t fillInput(DType type, void* dst, uint64_t n, const Payload& p, int rank, cudaStream_t stream) {
  PERF_DISPATCH(type, DT,
                fillKernel<DT><<<blocksFor(n), kThreads, 0, stream>>>(static_cast<Elem<DT>::Bits*>(dst), n, p, rank));
  return cudaGetLastError();
}

cudaError_t checkCopy(DType type, const void* out, uint64_t n, const Payload& p, int rank, CheckCounters* c,
                      cudaStream_t stream) {
  PERF_DISPATCH(type, DT,
                copyKernel<DT>
                <<<blocksFor(n), kThreads, 0, stream>>>(static_cast<const Elem<DT>::Bits*>(out), n, p, rank, c));
  return cudaGetLastError();
}

cudaError_t checkReduction(DType type, const void* out, uint64_t n, const Payload& p, RedOp op, int ranks,
                           CheckCounters* c, cudaStream_t stream) {
  PERF_DISPATCH(type, DT,
                reductionKernel<DT>
                <<<blocksFor(n), kThreads, 0, stream>>>(static_cast<const Elem<DT>::Bits*>(out), n, p, op, ranks, c));
  return cudaGetLastError();
}

cudaError_t checkBytes(const void* bytes, uint64_t n, uint8_t want, CheckCounters* c, cudaStream_t stream) {
  bytesKernel<<<blocksFor(n), kThreads, 0, stream>>>(static_cast<const uint8_t*>(bytes), n, want, c);
  return cudaGetLastError();
}

cudaError_t hashOutput(DType type, const void* out, uint64_t n, CheckCounters* c, cudaStream_t stream) {
  int blocks = blocksFor(n);
  switch (kDTypeInfo[type].bytes) {
    case 1: hashKernel<<<blocks, kThreads, 0, stream>>>(static_cast<const uint8_t*>(out), n, c); break;
    case 2: hashKernel<<<blocks, kThreads, 0, stream>>>(static_cast<const uint16_t*>(out), n, c); break;
    case 4: hashKernel<<<blocks, kThreads, 0, stream>>>(static_cast<const uint32_t*>(out), n, c); break;
    default: hashKernel<<<blocks, kThreads, 0, stream>>>(static_cast<const uint64_t*>(out), n, c); break;
  }
  return cudaGetLastError();
}

}  // namespace perf
