// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// A stand-in for libnccl-uzip.so without a GPU, for tests of the programs around it. Ranks are processes that exchange
// through a shared-memory segment named by the unique id; arrays are host memory and streams are ignored. all_reduce
// copies rank 0's contribution (what is compared is two runs, not arithmetic). FAKE_NCCL_FAULT makes it misbehave:
//   bit       flips a bit of the UZIP communicator's results      guard    writes one byte past the output
//   input     writes to the input                                 nothing  frames nothing
//   counters  loses a received slice                              simple   frames on the Simple communicator as well
//   hang      never returns from all_reduce                       async    reports an asynchronous error
//   disabled  the policy turns UZIP off

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef struct {
  char internal[128];
} ncclUniqueId;
typedef struct {
  size_t size;
  uint64_t sendRawBytes, sendWireBytes, recvRawBytes, recvWireBytes;
  uint64_t sendSlices, sendSlicesRaw, fwdSlices, recvSlices, ops, padBytes;
} Stats;
typedef struct {
  size_t size;
  int enabled;
  char reason[256];
  uint32_t links, types;
  uint64_t minBytes;
  int exact, forced;
} Policy;

enum { kOk = 0, kSystem = 2, kInvalidArgument = 4, kSlot = 1 << 22 };
typedef struct {
  volatile uint32_t arrived, generation;
  char data[kSlot];
} Shared;
typedef struct {
  int rank, ranks, uzip;
  Stats stats;
  Shared* shared;
} Comm;

static char lastError[128];
static int fault(const char* name) {
  const char* f = getenv("FAKE_NCCL_FAULT");
  return f && strcmp(f, name) == 0;
}

static int badArgument(const char* what) {
  snprintf(lastError, sizeof(lastError), "fake: %s", what);
  return kInvalidArgument;
}

static void barrier(Comm* c) {
  uint32_t generation = __atomic_load_n(&c->shared->generation, __ATOMIC_ACQUIRE);
  if (__atomic_add_fetch(&c->shared->arrived, 1, __ATOMIC_ACQ_REL) == (uint32_t)c->ranks) {
    __atomic_store_n(&c->shared->arrived, 0, __ATOMIC_RELEASE);
    __atomic_add_fetch(&c->shared->generation, 1, __ATOMIC_ACQ_REL);
  } else {
    while (__atomic_load_n(&c->shared->generation, __ATOMIC_ACQUIRE) == generation) usleep(5);
  }
}

static size_t elementBytes(int type) {
  static const size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return bytes[type];
}

int ncclGetVersion(int* version) {
  *version = 22907;
  return kOk;
}
const char* ncclGetErrorString(int code) {
  return code == kOk ? "no error" : code == kInvalidArgument ? "invalid argument" : "unhandled system error";
}
const char* ncclGetLastError(void* comm) {
  (void)comm;
  return lastError;
}

int ncclGetUniqueId(ncclUniqueId* id) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  memset(id, 0, sizeof(*id));
  snprintf(id->internal, sizeof(id->internal), "/fake-nccl-%d-%ld%09ld", getpid(), (long)now.tv_sec, now.tv_nsec);
  return kOk;
}

int ncclCommInitRank(Comm** comm, int ranks, ncclUniqueId id, int rank) {
  int fd = shm_open(id.internal, O_RDWR | O_CREAT, 0600);
  if (fd < 0 || ftruncate(fd, sizeof(Shared)) != 0) return kSystem;
  Comm* c = (Comm*)calloc(1, sizeof(Comm));
  c->rank = rank;
  c->ranks = ranks;
  const char* proto = getenv("NCCL_PROTO");
  c->uzip = (proto && strcmp(proto, "UZIP") == 0 && !fault("disabled")) || fault("simple");
  c->shared = (Shared*)mmap(NULL, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (c->shared == MAP_FAILED) return kSystem;
  barrier(c);
  if (rank == 0) shm_unlink(id.internal);
  *comm = c;
  return kOk;
}

int ncclCommDestroy(Comm* c) {
  munmap(c->shared, sizeof(Shared));
  free(c);
  return kOk;
}
int ncclCommAbort(Comm* c) { return ncclCommDestroy(c); }

int ncclCommGetAsyncError(Comm* c, int* code) {
  *code = c->uzip && fault("async") ? kSystem : kOk;
  return kOk;
}

// Gives everybody the root's bytes.
static void spread(Comm* c, const char* in, char* out, size_t bytes, int root) {
  for (size_t at = 0; at < bytes; at += kSlot) {
    size_t n = bytes - at < kSlot ? bytes - at : kSlot;
    if (c->rank == root) memcpy(c->shared->data, in + at, n);
    barrier(c);
    memmove(out + at, c->shared->data, n);
    barrier(c);
  }
}

// Spreads the root's array, and counts what a ring would have framed: rank 0 books all of it.
static int exchange(Comm* c, const void* in, void* out, size_t count, int type, int root, int hops) {
  size_t bytes = count * elementBytes(type);
  if (c->uzip && fault("hang"))
    for (;;) pause();
  spread(c, (const char*)in, (char*)out, bytes, root);
  int isFloat = type == 6 || type == 7 || type == 9;
  if (!c->uzip || !isFloat) return kOk;
  if (fault("bit") && c->rank == c->ranks - 1) ((char*)out)[bytes / 2] ^= 4;
  if (fault("guard")) ((char*)out)[bytes] ^= 4;
  if (fault("input") && in != out) ((char*)(uintptr_t)in)[0] ^= 4;
  if (fault("nothing")) return kOk;
  if (c->rank == 0) {
    c->stats.sendRawBytes += hops * bytes;
    c->stats.sendWireBytes += hops * (bytes * 2 / 3 + 32);
    c->stats.sendSlices += hops;
  }
  if (c->rank == 1) {
    c->stats.recvRawBytes += hops * bytes;
    c->stats.recvWireBytes += hops * (bytes * 2 / 3 + 32);
    c->stats.recvSlices += hops - (fault("counters") ? 1 : 0);
  }
  c->stats.ops++;
  return kOk;
}

int ncclAllReduce(const void* in, void* out, size_t count, int type, int op, Comm* c, void* stream) {
  (void)op;
  (void)stream;
  return exchange(c, in, out, count, type, 0, 2 * (c->ranks - 1));
}
int ncclBroadcast(const void* in, void* out, size_t count, int type, int root, Comm* c, void* stream) {
  (void)stream;
  return exchange(c, in, out, count, type, root, c->ranks - 1);
}
int ncclAllGather(const void* in, void* out, size_t count, int type, Comm* c, void* stream) {
  (void)stream;
  size_t bytes = count * elementBytes(type);
  for (int root = 0; root < c->ranks; root++) spread(c, (const char*)in, (char*)out + root * bytes, bytes, root);
  return kOk;
}
int ncclReduceScatter(void) { return badArgument("no reduce_scatter"); }
int ncclReduce(void) { return badArgument("no reduce"); }
int ncclGroupStart(void) { return kOk; }
int ncclGroupEnd(void) { return kOk; }
int ncclRedOpCreatePreMulSum(int* op, void* scalar, int type, int residence, Comm* c) {
  (void)scalar;
  (void)type;
  (void)residence;
  (void)c;
  *op = 5;
  return kOk;
}
int ncclRedOpDestroy(int op, Comm* c) {
  (void)c;
  return op == 5 ? kOk : badArgument("unknown op");
}

int ncclUzipGetVersion(int* version, int* formatVersion) {
  *version = 100;
  *formatVersion = 1;
  return kOk;
}
int ncclUzipCommGetStats(Comm* c, Stats* stats) {
  if (c == NULL) return badArgument("comm is NULL");
  if (stats->size != sizeof(Stats)) return badArgument("size of ncclUzipStats_t");
  *stats = c->stats;
  stats->size = sizeof(Stats);
  return kOk;
}
int ncclUzipCommResetStats(Comm* c) {
  if (c == NULL) return badArgument("comm is NULL");
  memset(&c->stats, 0, sizeof(c->stats));
  return kOk;
}
int ncclUzipCommGetPolicy(Comm* c, Policy* policy) {
  if (c == NULL) return badArgument("comm is NULL");
  if (policy->size != sizeof(Policy)) return badArgument("size of ncclUzipPolicy_t");
  memset(policy, 0, sizeof(*policy));
  policy->size = sizeof(Policy);
  policy->enabled = c->uzip;
  policy->forced = c->uzip;
  snprintf(policy->reason, sizeof(policy->reason), c->uzip ? "" : "NCCL_PROTO excludes UZIP");
  policy->links = c->uzip ? 1 : 0;
  policy->types = c->uzip ? 0xe : 0;
  policy->minBytes = 65536;
  return kOk;
}
