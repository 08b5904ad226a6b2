// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// libnccl.so.2 for tests of the perf programs: ranks are processes of one host that meet in shared memory. Values are reduced
// in rank order and rounded after each step, as NCCL's kernels do. With FAKE_UZIP defined it also has ncclUzip*.
//   FAKE_NCCL_FAULT  KIND:RANK, what goes wrong on a rank: flip (a bit of the middle element), value (that element is doubled),
//                    behind (a byte behind the output), input (a bit of the send buffer), poison (writes nothing), hang (stream never
//                    done), async (asynchronous error), refuse (the call fails), die (the process ends). Without a rank:
//                    finite (an output that is no finite number is an asynchronous error)

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <vector>

#include "verify.h"

using namespace perf;

extern "C" void fakeCudaEnqueue(void (*fn)(void*), void* arg, void (*drop)(void*));
extern "C" void fakeCudaHang();

namespace {

constexpr size_t kSlot = 1 << 16;
constexpr int kMaxRanks = 8;

struct Shared {
  std::atomic<uint32_t> arrived;
  uint8_t slots[kMaxRanks][kSlot];
};

struct Comm {
  Shared* shared;
  int ranks, rank;
  uint32_t barriers = 0;
  uint64_t raw = 0, wire = 0, ops = 0;
  NcclResult async = kNcclSuccess;
  std::string fault;
};

bool broken(const Comm* c, const char* kind) { return c->fault == std::string(kind) + ":" + std::to_string(c->rank); }

// Gives up after a minute: the test has killed a rank.
void barrier(Comm* c) {
  uint32_t want = ++c->barriers * uint32_t(c->ranks);
  c->shared->arrived++;
  for (int spins = 0; int32_t(c->shared->arrived - want) < 0; spins++) {
    if (spins > 600) usleep(1000);
    if (spins > 60000) _exit(3);
    sched_yield();
  }
}

template <int DT>
typename Elem<DT>::Bits combine(typename Elem<DT>::Bits a, typename Elem<DT>::Bits b, int op) {
  using E = Elem<DT>;
  if constexpr (E::kFloat) {
    double x = E::decode(a), y = E::decode(b);
    return E::encode(op == kProd ? x * y : op == kMax ? fmax(x, y) : op == kMin ? fmin(x, y) : x + y);
  } else {
    uint64_t x = E::widen(a), y = E::widen(b);
    bool less = E::kSigned ? int64_t(x) < int64_t(y) : x < y;
    return typename E::Bits(op == kProd ? x * y : op == kMax ? (less ? y : x) : op == kMin ? (less ? x : y) : x + y);
  }
}

template <int DT>
typename Elem<DT>::Bits scaled(typename Elem<DT>::Bits a, uint64_t scalar) {
  using E = Elem<DT>;
  if constexpr (E::kFloat) {
    return E::encode(E::decode(a) * E::decode(typename E::Bits(scalar)));
  } else {
    return typename E::Bits(E::widen(a) * scalar);
  }
}

template <int DT>
void reduceSlots(Comm* c, uint8_t* out, size_t n, int op) {
  using E = Elem<DT>;
  using Bits = typename E::Bits;
  for (size_t i = 0; i < n; i++) {
    Bits acc{};
    for (int r = 0; r < c->ranks; r++) {
      Bits v = reinterpret_cast<Bits*>(c->shared->slots[r])[i];
      if constexpr (E::kFloat) {
        if (op == kAvg) v = scaled<DT>(v, E::encode(1.0 / c->ranks));
      }
      if (op >= kMulSum) v = scaled<DT>(v, mulScalarBits<DT>(r));
      acc = r == 0 ? v : combine<DT>(acc, v, op);
    }
    if constexpr (!E::kFloat) {
      uint64_t s = E::widen(acc);
      if (op == kAvg) acc = Bits(E::kSigned ? uint64_t(int64_t(s) / c->ranks) : s / uint64_t(c->ranks));
    }
    reinterpret_cast<Bits*>(out)[i] = acc;
  }
}

template <int DT>
bool allFinite(const uint8_t* out, size_t n) {
  if constexpr (Elem<DT>::kFloat) {
    for (size_t i = 0; i < n; i++) {
      if (!isFinite(Elem<DT>::decode(reinterpret_cast<const typename Elem<DT>::Bits*>(out)[i]))) return false;
    }
  }
  return true;
}

struct Call {
  Comm* comm;
  uint8_t *in, *out;
  size_t count;
  int type, op, root;  // op -1: broadcast
};

void perform(void* arg) {
  Call& k = *static_cast<Call*>(arg);
  Comm* c = k.comm;
  size_t es = size_t(kDTypeInfo[k.type].bytes);
  for (size_t at = 0; at < k.count; at += kSlot / es) {
    size_t n = std::min(kSlot / es, k.count - at);
    memcpy(c->shared->slots[c->rank], k.in + at * es, n * es);
    barrier(c);
    if (broken(c, "poison")) {
    } else if (k.op < 0) {
      memcpy(k.out + at * es, c->shared->slots[k.root], n * es);
    } else {
      PERF_DISPATCH(k.type, DT, reduceSlots<DT>(c, k.out + at * es, n, k.op));
    }
    barrier(c);
  }
  if (kDTypeInfo[k.type].isFloat) {
    c->raw += k.count * es;
    c->wire += k.count * es * 2 / 3;
  }
  c->ops++;
  if (c->fault == "finite" && k.op >= 0) {
    bool finite = true;
    PERF_DISPATCH(k.type, DT, finite = allFinite<DT>(k.out, k.count));
    if (!finite) c->async = NcclResult(3);
  }
  if (k.count < 2) return;  // the perf programs' own barrier stays whole
  uint8_t* middle = k.out + k.count / 2 * es;
  if (broken(c, "flip")) *middle ^= 1;
  if (broken(c, "value")) middle[es - 1] ^= 0x40;
  if (broken(c, "behind")) k.out[k.count * es] = 0;
  if (broken(c, "input")) *k.in ^= 1;
  if (broken(c, "async")) c->async = NcclResult(6);
  if (broken(c, "hang")) fakeCudaHang();
  if (broken(c, "die")) _exit(3);
}

NcclResult start(Call call) {
  if (call.count > 1 && broken(call.comm, "refuse")) return NcclResult(4);
  fakeCudaEnqueue(perform, new Call(call), [](void* p) { delete static_cast<Call*>(p); });
  return kNcclSuccess;
}

}  // namespace

extern "C" {

NcclResult ncclGetVersion(int* v) { return *v = 22907, kNcclSuccess; }

NcclResult ncclGetUniqueId(NcclUniqueId* id) {
  snprintf(id->internal, sizeof id->internal, "/fake_nccl_%d", int(getpid()));
  return kNcclSuccess;
}

NcclResult ncclCommInitRank(Comm** out, int ranks, NcclUniqueId id, int rank) {
  if (ranks > kMaxRanks) return NcclResult(4);
  int fd = shm_open(id.internal, O_CREAT | O_RDWR, 0600);
  if (fd < 0 || ftruncate(fd, sizeof(Shared)) != 0) return NcclResult(2);
  void* p = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  const char* fault = getenv("FAKE_NCCL_FAULT");
  Comm* c = new Comm;
  c->shared = static_cast<Shared*>(p);
  c->ranks = ranks;
  c->rank = rank;
  c->fault = fault ? fault : "";
  barrier(c);
  shm_unlink(id.internal);
  *out = c;
  return kNcclSuccess;
}

NcclResult ncclCommDestroy(Comm* c) {
  munmap(c->shared, sizeof(Shared));
  delete c;
  return kNcclSuccess;
}

NcclResult ncclCommAbort(Comm*) { return kNcclSuccess; }
NcclResult ncclCommGetAsyncError(Comm* c, NcclResult* e) { return *e = c->async, kNcclSuccess; }
const char* ncclGetErrorString(NcclResult r) {
  return r == 0   ? "no error"
         : r == 4 ? "invalid argument"
         : r == 6 ? "remote process exited or there was a network error"
                  : "error";
}
const char* ncclGetLastError(Comm*) { return "the fake says so"; }
NcclResult ncclGroupStart() { return kNcclSuccess; }
NcclResult ncclGroupEnd() { return kNcclSuccess; }

NcclResult ncclAllReduce(const void* in, void* out, size_t n, int type, int op, Comm* c, NcclStream) {
  return start({c, (uint8_t*)in, (uint8_t*)out, n, type, op, 0});
}

NcclResult ncclBroadcast(const void* in, void* out, size_t n, int type, int root, Comm* c, NcclStream) {
  return start({c, (uint8_t*)in, (uint8_t*)out, n, type, -1, root});
}

NcclResult ncclRedOpCreatePreMulSum(int* op, void* scalar, int type, int residence, Comm* c) {
  uint64_t want = 0;
  PERF_DISPATCH(type, DT, want = mulScalarBits<DT>(c->rank));
  if (residence != 1 || memcmp(scalar, &want, size_t(kDTypeInfo[type].bytes)) != 0) return NcclResult(4);
  return *op = kMulSum, kNcclSuccess;
}

NcclResult ncclRedOpDestroy(int, Comm*) { return kNcclSuccess; }

#ifdef FAKE_UZIP
NcclResult ncclUzipGetVersion(int* v, int* f) { return *v = 100, *f = 1, kNcclSuccess; }

NcclResult ncclUzipCommGetStats(Comm* c, UzipStats* s) {
  if (s->size != sizeof *s) return NcclResult(4);
  s->sendRawBytes = c->raw;
  s->sendWireBytes = c->wire;
  s->ops = c->ops;
  return kNcclSuccess;
}

NcclResult ncclUzipCommGetPolicy(Comm*, UzipPolicy* p) {
  p->enabled = p->forced = 1;
  strcpy(p->reason, "agreed");
  p->minBytes = 65536;
  return kNcclSuccess;
}
#endif

}  // extern "C"
