// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// The fake CUDA runtime, and perf/src/kernels.h as host loops over the code that the kernels share with the host.
//   FAKE_CUDA_DEVICES   number of GPUs (1)
//   FAKE_CUDA_BYTES     largest allocation

#include <stdlib.h>
#include <string.h>

#include <functional>
#include <vector>

#include "cuda_runtime.h"
#include "kernels.h"
#include "verify.h"

struct CUstream_st {};
struct FakeGraph {
  std::vector<std::function<void()>> nodes;
};

namespace {

CUstream_st gStream;
FakeGraph* gCapture = nullptr;
bool gBusy = false;

}  // namespace

// For the fake NCCL: runs the work, or records it under capture.
extern "C" __attribute__((visibility("default"))) void fakeCudaEnqueue(void (*fn)(void*), void* arg,
                                                                       void (*drop)(void*)) {
  if (!gCapture) {
    fn(arg);
    drop(arg);
    return;
  }
  gCapture->nodes.push_back([fn, arg] { fn(arg); });
}

// The stream is never done again.
extern "C" __attribute__((visibility("default"))) void fakeCudaHang() { gBusy = true; }

const char* cudaGetErrorString(cudaError_t e) {
  return e == cudaErrorMemoryAllocation ? "out of memory"
         : e == cudaErrorNoDevice       ? "no CUDA-capable device is detected"
                                        : "error";
}

cudaError_t cudaGetDeviceCount(int* n) {
  const char* v = getenv("FAKE_CUDA_DEVICES");
  *n = v ? atoi(v) : 1;
  return *n > 0 ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int device) {
  memset(prop, 0, sizeof *prop);
  strcpy(prop->name, "Fake GPU");
  prop->pciBusID = device + 1;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* v) { return *v = 13000, cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* v) { return *v = 13000, cudaSuccess; }

cudaError_t cudaMalloc(void** p, size_t bytes) {
  const char* limit = getenv("FAKE_CUDA_BYTES");
  if (limit && bytes > strtoull(limit, nullptr, 10)) return cudaErrorMemoryAllocation;
  *p = aligned_alloc(256, (bytes + 255) & ~size_t(255));
  return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void* p) { return free(p), cudaSuccess; }
cudaError_t cudaMemset(void* p, int value, size_t bytes) { return memset(p, value, bytes), cudaSuccess; }
cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t) { return cudaMemset(p, value, bytes); }
cudaError_t cudaMemcpy(void* dst, const void* src, size_t bytes, cudaMemcpyKind) {
  return memcpy(dst, src, bytes), cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) { return *s = &gStream, cudaSuccess; }
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamQuery(cudaStream_t) { return gBusy ? cudaErrorNotReady : cudaSuccess; }
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  return gCapture = new FakeGraph, cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* g) {
  *g = gCapture;
  gCapture = nullptr;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t g, unsigned long long) {
  return *exec = new FakeGraph(*g), cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t) {
  for (auto& node : exec->nodes) node();
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t g) { return delete g, cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { return delete exec, cudaSuccess; }

namespace perf {

cudaError_t fillInput(DType type, void* dst, uint64_t n, const Payload& p, int rank, cudaStream_t) {
  PERF_DISPATCH(type, DT,
                for (uint64_t i = 0; i < n; i++) static_cast<Elem<DT>::Bits*>(dst)[i] = rankElement<DT>(p, rank, i));
  return cudaSuccess;
}

cudaError_t checkCopy(DType type, const void* out, uint64_t n, const Payload& p, int rank, CheckCounters* c,
                      cudaStream_t) {
  PERF_DISPATCH(
      type, DT, for (uint64_t i = 0; i < n; i++) {
        c->wrong += static_cast<const Elem<DT>::Bits*>(out)[i] != rankElement<DT>(p, rank, i);
      });
  return cudaSuccess;
}

cudaError_t checkReduction(DType type, const void* out, uint64_t n, const Payload& p, RedOp op, int ranks,
                           CheckCounters* c, cudaStream_t) {
  PERF_DISPATCH(
      type, DT, for (uint64_t i = 0; i < n; i++) {
        auto input = [&](int r) { return rankElement<DT>(p, r, i); };
        Verdict v = judgeReduction<DT>(static_cast<const Elem<DT>::Bits*>(out)[i], op, ranks, input);
        c->wrong += v == kWrong;
        c->unjudged += v == kUnjudged;
      });
  return cudaSuccess;
}

cudaError_t checkBytes(const void* bytes, uint64_t n, uint8_t want, CheckCounters* c, cudaStream_t) {
  for (uint64_t i = 0; i < n; i++) c->wrong += static_cast<const uint8_t*>(bytes)[i] != want;
  return cudaSuccess;
}

cudaError_t hashOutput(DType type, const void* out, uint64_t n, CheckCounters* c, cudaStream_t) {
  PERF_DISPATCH(
      type, DT, for (uint64_t i = 0; i < n; i++) {
        c->hash += elementHash(uint64_t(static_cast<const Elem<DT>::Bits*>(out)[i]), i);
      });
  return cudaSuccess;
}

}  // namespace perf
