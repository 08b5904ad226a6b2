// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// The functions that NCCL's hook lines call, over NCCL's own structures, with stand-ins for the rest of NCCL and for
// CUDA. `binding CASE` runs a case and exits 0 when all its checks hold.

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "bootstrap.h"
#include "comm.h"
#include "graph.h"
#include "proxy.h"
#include "transport.h"

#include "uzip/host/uzip_comm.h"

// --- Stand-ins ---------------------------------------------------------------------------------------------

static std::map<std::string, std::string> environment;
static std::string warnings, infos;
static std::function<void(void*, int)> gather;  // what the other ranks contribute; unset: nobody may gather

int* standInRows();

int ncclDebugLevel = NCCL_LOG_INFO;
uint64_t ncclDebugMask = NCCL_INIT;
thread_local int ncclDebugNoWarn = 0;

void ncclDebugLog(ncclDebugLogLevel level, unsigned long, const char*, int, const char* format, ...) {
  char line[2048];
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof(line), format, args);
  va_end(args);
  (level == NCCL_LOG_WARN ? warnings : infos) += std::string(line) + "\n";
}

const char* ncclGetEnv(const char* name) {
  auto found = environment.find(name);
  return found == environment.end() ? nullptr : found->second.c_str();
}

ncclResult_t bootstrapAllGather(void*, void* data, int size) {
  if (!gather) {
    fprintf(stderr, "unexpected all-gather\n");
    exit(1);
  }
  gather(data, size);
  return ncclSuccess;
}

ncclResult_t ncclTopoGetAlgoTime(struct ncclComm* comm, int coll, int algorithm, int protocol, size_t nBytes,
                                 int pipeOps, float* time) {
  float const bandwidth = comm->bandwidths[coll][algorithm][protocol];
  *time = bandwidth == 0 ? -1 : comm->latencies[coll][algorithm][protocol] * pipeOps + nBytes / (1000 * bandwidth);
  return ncclSuccess;
}

ncclResult_t CommCheck(struct ncclComm* comm, const char*, const char*) {
  return comm ? ncclSuccess : ncclInvalidArgument;
}
ncclResult_t PtrCheck(const void* pointer, const char*, const char*) {
  return pointer ? ncclSuccess : ncclInvalidArgument;
}
const char* ncclProtoToString(int proto) { return proto == NCCL_PROTO_SIMPLE ? "SIMPLE" : "LL"; }
int64_t ncclParamBuffSize() { return -2; }
static int64_t llBuffSize = -2, ll128BuffSize = -2;  // NCCL_LL_BUFFSIZE, NCCL_LL128_BUFFSIZE
int64_t ncclParamLlBuffSize() { return llBuffSize; }
int64_t ncclParamLl128BuffSize() { return ll128BuffSize; }
static int64_t nthreads = -2;  // NCCL_NTHREADS
int64_t ncclParamNthreads() { return nthreads; }
int ncclCuMemEnable() { return 0; }

static ncclNetDeviceType netDeviceType = NCCL_NET_DEVICE_HOST;
static ncclResult_t netProperties(int, ncclNetProperties_t* props) {
  memset(props, 0, sizeof(*props));
  props->netDeviceType = netDeviceType;
  return ncclSuccess;
}
void ncclCommPushCudaFree(struct ncclComm*, void*) {}
void ncclCommPushCudaHostFree(struct ncclComm*, void*) {}

extern "C" {
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode*) { return cudaSuccess; }
cudaError_t cudaMalloc(void** pointer, size_t bytes) { return *pointer = malloc(bytes), cudaSuccess; }
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) { return *pointer = malloc(bytes), cudaSuccess; }
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t) {
  return memset(to, value, bytes), cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, enum cudaMemcpyKind, cudaStream_t) {
  return memcpy(to, from, bytes), cudaSuccess;
}
}

// --- Checks and fixtures -----------------------------------------------------------------------------------

#define CHECK(condition)                                                                                               \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      fprintf(stderr, "%s:%d: %s\nWARN: %sINFO: %s", __FILE__, __LINE__, #condition, warnings.c_str(), infos.c_str()); \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

static bool contains(std::string const& text, char const* part) { return text.find(part) != std::string::npos; }

// A communicator of ranks with one GPU on `nodes` nodes, as NCCL has it before and after the topology is known.
struct Comm {
  struct ncclComm* comm;
  struct ncclKernelComm device;

  explicit Comm(int ranks = 2, int nodes = 2) {
    comm = (struct ncclComm*)calloc(1, sizeof(struct ncclComm));
    comm->nRanks = ranks;
    comm->nNodes = nodes;
    comm->peerInfo = (struct ncclPeerInfo*)calloc(ranks, sizeof(struct ncclPeerInfo));
    comm->proxyState = new ncclProxyState();
    comm->ncclNet = (ncclNet_t*)calloc(1, sizeof(ncclNet_t));
    comm->ncclNet->getProperties = netProperties;
    comm->buffSizes[NCCL_PROTO_SIMPLE] = 4 << 20;
    comm->nChannels = 2;
    comm->maxThreads[NCCL_ALGO_RING][NCCL_PROTO_SIMPLE] = 512;
    struct ncclTopoGraph& graph = comm->graphs[NCCL_ALGO_RING];
    graph.nChannels = 2;
    graph.bwIntra = graph.bwInter = 0.6f;
    for (int f = 0; f < NCCL_NUM_FUNCTIONS; f++) {
      for (int a : {NCCL_ALGO_RING, NCCL_ALGO_TREE}) {
        for (int p = 0; p < NCCL_NUM_PROTOCOLS; p++) {
          comm->bandwidths[f][a][p] = p == NCCL_PROTO_SIMPLE ? 1.2f : 0.6f;
          comm->latencies[f][a][p] = p == NCCL_PROTO_SIMPLE ? 30.0f : 10.0f;
        }
      }
    }
    memset(&device, 0xff, sizeof(device));
  }

  ncclResult_t agree() {
    for (int r = 0; r < comm->nRanks; r++) {
      if (comm->peerInfo[r].uzipPolicy == 0) comm->peerInfo[r].uzipPolicy = comm->peerInfo[comm->rank].uzipPolicy;
    }
    return ncclUzipAgree(comm);
  }

  // All of init; `proxies`: owns the proxies rather than sharing its parent's.
  void init() {
    CHECK(ncclUzipInit(comm, nullptr) == ncclSuccess);
    CHECK(agree() == ncclSuccess);
    comm->proxyState->uzipPadBytes = ncclUzipPadBytes(comm);
    CHECK(ncclUzipDevCommInit(comm, &device, nullptr) == ncclSuccess);
  }

  std::string reason() { return comm->uzip->reason; }
};

static struct ncclTaskColl task(ncclFunc_t func, size_t count, ncclDataType_t type, ncclDevRedOp_t op = ncclDevSum) {
  struct ncclTaskColl t = {};
  t.func = func;
  t.count = count;
  t.datatype = type;
  t.opDev.op = op;
  t.algorithm = NCCL_ALGO_RING;
  t.protocol = NCCL_PROTO_SIMPLE;
  t.devFuncId = 7;
  return t;
}

// The cost table for a task, filled by NCCL's model and corrected by ours.
typedef float Table[NCCL_NUM_ALGORITHMS][NCCL_NUM_PROTOCOLS];
static void costs(struct ncclComm* comm, struct ncclTaskColl* t, size_t nBytes, Table stock, Table ours) {
  for (int a = 0; a < NCCL_NUM_ALGORITHMS; a++) {
    for (int p = 0; p < NCCL_NUM_PROTOCOLS; p++) {
      stock[a][p] = -1;
      if (a == NCCL_ALGO_RING || a == NCCL_ALGO_TREE) ncclTopoGetAlgoTime(comm, t->func, a, p, nBytes, 1, &stock[a][p]);
    }
  }
  memcpy(ours, stock, sizeof(Table));
  ncclUzipUpdateCost(comm, t, nBytes, 1, (float**)ours);
}

static bool chosen(struct ncclComm* comm, struct ncclTaskColl t) {
  ncclUzipChoose(comm, &t, 1);
  CHECK(t.devFuncId == (t.uzip ? (unsigned)ncclUzipDevFuncId(t.func, t.opDev.op, t.datatype, NCCL_ALGO_RING) : 7u));
  return t.uzip;
}

// --- Cases -------------------------------------------------------------------------------------------------

// Prints "function operation type row" for each device function, for the comparison with what generate.py makes.
static void rows() {
  char const* const ops[] = {"Sum", "Prod", "MinMax", "PreMulSum", "SumPostDiv"};
  std::map<int, char const*> const types = {
      {ncclInt8, "i8"},     {ncclUint8, "u8"},      {ncclInt32, "i32"},         {ncclUint32, "u32"},
      {ncclInt64, "i64"},   {ncclUint64, "u64"},    {ncclFloat16, "f16"},       {ncclFloat32, "f32"},
      {ncclFloat64, "f64"}, {ncclBfloat16, "bf16"}, {ncclFloat8e4m3, "f8e4m3"}, {ncclFloat8e5m2, "f8e5m2"}};
  for (int op = 0; op < ncclNumDevRedOps; op++) {
    for (auto type : types) {
      int const row = ncclUzipDevFuncId(ncclFuncAllReduce, op, type.first, NCCL_ALGO_RING);
      if (row >= 0) printf("AllReduce %s %s RING UZIP %d\n", ops[op], type.second, row);
      CHECK(ncclUzipDevFuncId(ncclFuncAllReduce, op, type.first, NCCL_ALGO_TREE) == -1);
      CHECK(ncclUzipDevFuncId(ncclFuncReduceScatter, op, type.first, NCCL_ALGO_RING) == -1);
    }
  }
  printf("Broadcast RING UZIP %d\n", ncclUzipDevFuncId(ncclFuncBroadcast, ncclDevSum, ncclInt8, NCCL_ALGO_RING));
}

static void wrongKnobs() {
  std::pair<char const*, char const*> const wrong[] = {
      {"NCCL_UZIP_ENABLE", "2"}, {"NCCL_UZIP_EXACT", "on"}, {"NCCL_UZIP_MIN_BYTES", "1M"}, {"NCCL_PROTO", "UZIPP"}};
  for (auto knob : wrong) {
    Comm c;
    environment = {{knob.first, knob.second}};
    warnings.clear();
    CHECK(ncclUzipInit(c.comm, nullptr) == ncclInvalidArgument);
    CHECK(contains(warnings, knob.first) && contains(warnings, knob.second) && contains(warnings, "allowed"));
    CHECK(c.comm->peerInfo[0].uzipPolicy == 0);
    ncclUzipFree(c.comm);
    CHECK(c.comm->uzip == nullptr);
  }
}

static void agreement() {
  Comm c;
  c.init();
  CHECK(c.comm->uzip->enabled && c.comm->peerInfo[0].uzipPolicy != 0);
  CHECK(c.device.uzip != nullptr && c.device.uzip->statsHost == c.comm->uzip->statsHost);
  CHECK(c.device.uzip->typeMask == 0xe && c.device.uzip->errorClaim == 0 && c.device.uzip->error->code == 0);
  CHECK(contains(infos, "UZIP enabled") && contains(infos, "262144") && warnings.empty());

  // The knobs are read anew for each communicator.
  for (auto off : {std::make_pair("NCCL_UZIP_ENABLE", "0"), std::make_pair("NCCL_PROTO", "Simple")}) {
    environment = {{off.first, off.second}};
    Comm d;
    d.init();
    CHECK(!d.comm->uzip->enabled && contains(d.reason(), off.first));
    CHECK(d.comm->proxyState->uzipPadBytes == 0 && d.device.uzip == nullptr);
    struct ncclTaskColl t = task(ncclFuncAllReduce, 16 << 20, ncclBfloat16);
    Table stock, ours;
    costs(d.comm, &t, 32 << 20, stock, ours);
    CHECK(!chosen(d.comm, t) && memcmp(stock, ours, sizeof(stock)) == 0);
  }
  CHECK(contains(infos, "UZIP disabled") && warnings.empty());
  environment.clear();
}

static void stockRank() {
  Comm c(3, 3);
  CHECK(ncclUzipInit(c.comm, nullptr) == ncclSuccess);
  c.comm->peerInfo[1].uzipPolicy = c.comm->peerInfo[0].uzipPolicy;
  CHECK(ncclUzipAgree(c.comm) == ncclSuccess);  // rank 2 sent 0, and nobody gathers again
  CHECK(!c.comm->uzip->enabled && c.reason() == "rank 2 runs an NCCL without UZIP");
  CHECK(contains(warnings, "rank 2"));

  // A stock rank 0 cannot warn, so rank 1 does; and nobody else.
  for (int rank : {1, 2}) {
    Comm d(3, 3);
    d.comm->rank = rank;
    warnings.clear();
    CHECK(ncclUzipInit(d.comm, nullptr) == ncclSuccess);
    d.comm->peerInfo[1].uzipPolicy = d.comm->peerInfo[2].uzipPolicy = d.comm->peerInfo[rank].uzipPolicy;
    CHECK(ncclUzipAgree(d.comm) == ncclSuccess && !d.comm->uzip->enabled);
    CHECK(d.reason() == "rank 0 runs an NCCL without UZIP");
    CHECK(contains(warnings, "rank 0 runs an NCCL without UZIP") == (rank == 1));
  }
}

static char* blobOf(void* data, int rank) { return (char*)data + rank * UZIP_POLICY_BLOB_BYTES; }

// A rank with another number of threads would judge UZIP differently.
static void differingThreads() {
  auto init = [](Comm& c, int64_t value) {
    nthreads = value;
    CHECK(ncclUzipInit(c.comm, nullptr) == ncclSuccess);
    nthreads = -2;
  };
  Comm mine, same, other;
  init(mine, -2);
  init(same, 512);
  init(other, 128);
  CHECK(mine.comm->peerInfo[0].uzipPolicy == same.comm->peerInfo[0].uzipPolicy);
  mine.comm->peerInfo[1].uzipPolicy = other.comm->peerInfo[0].uzipPolicy;
  gather = [&](void* data, int) { memcpy(blobOf(data, 1), &other.comm->uzip->policy, sizeof(struct uzipPolicy)); };
  CHECK(ncclUzipAgree(mine.comm) == ncclSuccess && !mine.comm->uzip->enabled);
  CHECK(contains(mine.reason(), "NCCL_NTHREADS differs: 512 on rank 0, 128 on rank 1"));
  CHECK(mine.comm->uzip->policy.model == uzipModelWord());
}

static void differingRanks() {
  environment = {{"NCCL_UZIP_MIN_BYTES", "1000"}};
  Comm other(3, 3);
  CHECK(ncclUzipInit(other.comm, nullptr) == ncclSuccess);
  environment.clear();
  for (int rank = 0; rank < 2; rank++) {
    Comm c(3, 3);
    c.comm->rank = rank;
    CHECK(ncclUzipInit(c.comm, nullptr) == ncclSuccess);
    uint32_t const word = c.comm->peerInfo[rank].uzipPolicy;
    CHECK(word != other.comm->peerInfo[0].uzipPolicy);
    c.comm->peerInfo[0].uzipPolicy = c.comm->peerInfo[1].uzipPolicy = word;
    c.comm->peerInfo[2].uzipPolicy = other.comm->peerInfo[0].uzipPolicy;
    gather = [&](void* data, int size) {
      CHECK(size == UZIP_POLICY_BLOB_BYTES);
      CHECK(memcmp(blobOf(data, rank), &c.comm->uzip->policy, sizeof(struct uzipPolicy)) == 0);
      for (int i = sizeof(struct uzipPolicy); i < size; i++) CHECK(blobOf(data, rank)[i] == 0);
      memmove(blobOf(data, 1 - rank), blobOf(data, rank), size);
      memcpy(blobOf(data, 2), &other.comm->uzip->policy, sizeof(struct uzipPolicy));
    };
    CHECK(ncclUzipAgree(c.comm) == ncclSuccess);
    CHECK(!c.comm->uzip->enabled);
    CHECK(c.reason() ==
          "rank 2 has another UZIP policy than rank 0: NCCL_UZIP_MIN_BYTES differs: 262144 on rank 0, 1000 on rank 2");
  }
}

static void sharingChild() {
  auto childOf = [](Comm& parent) {
    Comm child;
    if (parent.comm->shareResources) child.comm->proxyState = parent.comm->proxyState;
    CHECK(ncclUzipInit(child.comm, parent.comm) == ncclSuccess && child.agree() == ncclSuccess);
    return child;
  };
  Comm parent;
  parent.init();
  parent.comm->shareResources = true;
  CHECK(childOf(parent).comm->uzip->enabled);

  // May opt out ...
  environment = {{"NCCL_UZIP_ENABLE", "0"}};
  CHECK(!childOf(parent).comm->uzip->enabled);
  // ... but never in.
  Comm stockParent;
  stockParent.init();
  environment.clear();
  stockParent.comm->shareResources = true;
  Comm in = childOf(stockParent);
  CHECK(!in.comm->uzip->enabled && contains(in.reason(), "shares"));
  // A child of its own resources may.
  stockParent.comm->shareResources = false;
  CHECK(childOf(stockParent).comm->uzip->enabled);

  // Grown from it while it shares: the old rank cannot, so the new one must not.
  stockParent.comm->shareResources = true;
  Comm grown, fresh;
  CHECK(ncclUzipInit(grown.comm, stockParent.comm) == ncclSuccess && ncclUzipInit(fresh.comm, nullptr) == ncclSuccess);
  fresh.comm->peerInfo[1].uzipPolicy = grown.comm->peerInfo[0].uzipPolicy;
  gather = [&](void* data, int) { memcpy(blobOf(data, 1), &grown.comm->uzip->policy, sizeof(struct uzipPolicy)); };
  CHECK(ncclUzipAgree(fresh.comm) == ncclSuccess);
  CHECK(!fresh.comm->uzip->enabled &&
        contains(fresh.reason(), "sharing of buffers without room for UZIP differs: 0 on rank 0, 1"));
}

static void unsuitable() {
  Comm oneNode(4, 1);
  oneNode.init();
  CHECK(!oneNode.comm->uzip->enabled && contains(oneNode.reason(), "one node") &&
        oneNode.comm->proxyState->uzipPadBytes == 0);

  Comm odd;
  odd.comm->buffSizes[NCCL_PROTO_SIMPLE] = 100000;
  odd.init();
  CHECK(!odd.comm->uzip->enabled && contains(odd.reason(), "NCCL_BUFFSIZE"));

  // The sum is aligned here, but not where LL has a memory of its own.
  for (auto sizes : {std::make_pair(-2, 1000), std::make_pair(1000, -2), std::make_pair(1000, 1000)}) {
    llBuffSize = sizes.first, ll128BuffSize = sizes.second;
    Comm unaligned;
    unaligned.init();
    CHECK(!unaligned.comm->uzip->enabled &&
          contains(unaligned.reason(), "NCCL_LL128_BUFFSIZE is not a multiple of 16"));
  }
  llBuffSize = 1024, ll128BuffSize = 1040;
  Comm aligned;
  aligned.init();
  CHECK(aligned.comm->uzip->enabled);
  llBuffSize = ll128BuffSize = -2;

  netDeviceType = NCCL_NET_DEVICE_UNPACK;
  Comm offload;
  offload.init();
  netDeviceType = NCCL_NET_DEVICE_HOST;
  CHECK(!offload.comm->uzip->enabled && contains(offload.reason(), "network plugin"));

  int* table = standInRows();
  for (int r = 0; r < 4096; r++) table[r] = -1;
  Comm none;
  none.init();
  CHECK(!none.comm->uzip->enabled && contains(none.reason(), "device functions"));
}

static void pads() {
  for (int buffBytes : {4 << 20, 1 << 20, 128 << 10, 1024, 33 << 10}) {
    Comm c;
    c.comm->buffSizes[NCCL_PROTO_SIMPLE] = buffBytes;
    c.init();
    int const step = buffBytes / NCCL_STEPS, pad = c.comm->proxyState->uzipPadBytes;
    CHECK(pad > 0 && (buffBytes + pad) % (64 << 10) == 0);  // whole pages for DMA-BUF
    CHECK((step + pad / NCCL_STEPS) % 128 == 0);
    for (int steps : {1, 2}) {
      CHECK(uint64_t(steps) * (step + pad / NCCL_STEPS) >= uzipMaxWireBytes(uint64_t(steps) * step));
    }
    // Both sides of a connection, and its proxy.
    struct ncclConnInfo conn = {};
    conn.stepSize = step;
    conn.flags = NCCL_DIRECT_NIC;
    ncclUzipNetConnect(c.comm, &conn);
    int mem = 1000 + buffBytes, buff = buffBytes;
    ncclUzipNetGrow(c.comm->proxyState, &mem, &buff);
    CHECK(conn.stepSize == buff / NCCL_STEPS && mem == 1000 + buff);
    CHECK(conn.flags == (NCCL_DIRECT_NIC | NCCL_UZIP_LINK) && conn.uzipBackoff == 0);
    CHECK(c.comm->uzip->padBytes == (uint64_t)pad && c.comm->uzip->connections == 1);
    // Shared buffers are those of send/recv.
    struct ncclConnInfo shared = {};
    shared.shared = 1;
    shared.stepSize = step;
    ncclUzipNetConnect(c.comm, &shared);
    CHECK(shared.stepSize == step && shared.flags == 0);
  }
  environment = {{"NCCL_UZIP_ENABLE", "0"}};
  Comm off;
  off.init();
  struct ncclConnInfo conn = {};
  conn.stepSize = 512;
  ncclUzipNetConnect(off.comm, &conn);
  int mem = 5, buff = 6;
  ncclUzipNetGrow(off.comm->proxyState, &mem, &buff);
  CHECK(conn.stepSize == 512 && conn.flags == 0 && mem == 5 && buff == 6 && off.comm->uzip->padBytes == 0);
}

static void choice() {
  Comm c;
  c.init();
  size_t const large = 16 << 20;
  for (ncclDataType_t type : {ncclBfloat16, ncclFloat16, ncclFloat32}) {
    for (ncclDevRedOp_t op : {ncclDevSum, ncclDevProd, ncclDevMinMax, ncclDevPreMulSum}) {
      CHECK(chosen(c.comm, task(ncclFuncAllReduce, large, type, op)));
    }
    CHECK(!chosen(c.comm, task(ncclFuncAllReduce, 32, type)));
    CHECK(!chosen(c.comm, task(ncclFuncReduceScatter, large, type)));
    CHECK(!chosen(c.comm, task(ncclFuncReduce, large, type)));
  }
  for (ncclDataType_t type : {ncclInt8, ncclInt32, ncclUint64, ncclFloat64, ncclFloat8e4m3, ncclFloat8e5m2}) {
    CHECK(!chosen(c.comm, task(ncclFuncAllReduce, large, type)));
  }
  CHECK(!chosen(c.comm, task(ncclFuncAllReduce, large, ncclInt32, ncclDevSumPostDiv)));
  CHECK(!chosen(c.comm, task(ncclFuncAllGather, large, ncclInt8)));
  // The minimum counts bytes.
  CHECK(!chosen(c.comm, task(ncclFuncAllReduce, (256 << 10) / 2 - 1, ncclBfloat16)));
  CHECK(chosen(c.comm, task(ncclFuncAllReduce, (256 << 10) / 2, ncclBfloat16)));
  // Only ring Simple.
  for (int a = 0; a < NCCL_NUM_ALGORITHMS; a++) {
    for (int p = 0; p < NCCL_NUM_PROTOCOLS; p++) {
      struct ncclTaskColl t = task(ncclFuncAllReduce, large, ncclBfloat16);
      t.algorithm = a;
      t.protocol = p;
      CHECK(chosen(c.comm, t) == (a == NCCL_ALGO_RING && p == NCCL_PROTO_SIMPLE));
    }
  }
  // Nothing to gain where the codec is slower than the link.
  Comm fast;
  fast.comm->graphs[NCCL_ALGO_RING].bwIntra = fast.comm->graphs[NCCL_ALGO_RING].bwInter = 50;
  fast.init();
  CHECK(!chosen(fast.comm, task(ncclFuncAllReduce, large, ncclBfloat16)));
  // A function that the build leaves out.
  standInRows()[ncclUzipDevFuncId(ncclFuncAllReduce, ncclDevProd, ncclBfloat16, NCCL_ALGO_RING)] = -1;
  CHECK(!chosen(c.comm, task(ncclFuncAllReduce, large, ncclBfloat16, ncclDevProd)));
  CHECK(chosen(c.comm, task(ncclFuncAllReduce, large, ncclBfloat16)));
}

// Encoding wants large blocks where NCCL gives small ones, unless the user said how large.
static void blockSize() {
  Comm c;
  c.comm->maxThreads[NCCL_ALGO_RING][NCCL_PROTO_SIMPLE] = 256;
  c.init();
  struct ncclTaskColl t = task(ncclFuncAllReduce, 16 << 20, ncclBfloat16);
  t.nWarps = 9;
  ncclUzipChoose(c.comm, &t, 1);
  CHECK(t.uzip && t.nWarps == 512 / WARP_SIZE + 1);
  nthreads = 256;
  Comm asked;
  asked.init();
  nthreads = -2;
  t.nWarps = 9;
  ncclUzipChoose(asked.comm, &t, 1);
  CHECK(t.uzip && t.nWarps == 9);
  struct ncclTaskColl small = task(ncclFuncAllReduce, 8, ncclBfloat16);
  small.nWarps = 9;
  ncclUzipChoose(c.comm, &small, 1);
  CHECK(!small.uzip && small.nWarps == 9);
}

// The two ends of a broadcast may name different types.
static void broadcastIgnoresType() {
  Comm c;
  c.init();
  for (size_t bytes = 1; bytes <= (256u << 20); bytes *= 2) {
    bool const first = chosen(c.comm, task(ncclFuncBroadcast, bytes, ncclInt8));
    for (uint8_t type : {UZIP_TYPE_NONE, UZIP_TYPE_BF16, UZIP_TYPE_F16, UZIP_TYPE_F32}) {
      struct ncclTaskColl t = task(ncclFuncBroadcast, bytes, ncclInt8);
      t.uzipType = type;
      CHECK(chosen(c.comm, t) == first);
      Table stock, ours;
      struct ncclTaskColl plain = task(ncclFuncBroadcast, bytes, ncclInt8);
      Table stock2, ours2;
      costs(c.comm, &t, bytes, stock, ours);
      costs(c.comm, &plain, bytes, stock2, ours2);
      CHECK(memcmp(ours, ours2, sizeof(ours)) == 0);
    }
  }
  CHECK(chosen(c.comm, task(ncclFuncBroadcast, 16 << 20, ncclInt8)));
  CHECK(!chosen(c.comm, task(ncclFuncBroadcast, 64 << 10, ncclInt8)));
}

static void costTable() {
  Comm c;
  c.init();
  for (size_t count = 1; count <= (128u << 20); count *= 2) {
    struct ncclTaskColl t = task(ncclFuncAllReduce, count, ncclBfloat16);
    Table stock, ours;
    costs(c.comm, &t, 2 * count, stock, ours);
    float const simple = stock[NCCL_ALGO_RING][NCCL_PROTO_SIMPLE], best = ours[NCCL_ALGO_RING][NCCL_PROTO_SIMPLE];
    CHECK(best > 0 && best <= simple);
    CHECK((best < simple) == chosen(c.comm, t));  // table and choice say the same
    ours[NCCL_ALGO_RING][NCCL_PROTO_SIMPLE] = simple;
    CHECK(memcmp(stock, ours, sizeof(stock)) == 0);  // nothing else changes
    if (2 * count <= (64 << 10)) CHECK(best == simple);

    struct ncclTaskColl other = task(ncclFuncAllReduce, count, ncclInt32);
    costs(c.comm, &other, 4 * count, stock, ours);
    CHECK(memcmp(stock, ours, sizeof(stock)) == 0);
  }
  // Ring Simple switched off stays off.
  c.comm->bandwidths[ncclFuncAllReduce][NCCL_ALGO_RING][NCCL_PROTO_SIMPLE] = 0;
  struct ncclTaskColl t = task(ncclFuncAllReduce, 1 << 20, ncclBfloat16);
  Table stock, ours;
  costs(c.comm, &t, 2 << 20, stock, ours);
  CHECK(memcmp(stock, ours, sizeof(stock)) == 0);
}

static void exact() {
  environment = {{"NCCL_UZIP_EXACT", "1"}, {"NCCL_UZIP_MIN_BYTES", "1000000"}};
  Comm c;
  c.init();
  struct ncclTaskColl t = task(ncclFuncAllReduce, 16 << 20, ncclBfloat16);
  Table stock, ours;
  costs(c.comm, &t, 32 << 20, stock, ours);
  CHECK(memcmp(stock, ours, sizeof(stock)) == 0);
  CHECK(chosen(c.comm, t) && !chosen(c.comm, task(ncclFuncAllReduce, 400000, ncclBfloat16)));

  environment["NCCL_PROTO"] = "UZIP";
  Comm forced;
  forced.init();
  costs(forced.comm, &t, 32 << 20, stock, ours);
  CHECK(memcmp(stock, ours, sizeof(stock)) == 0);
  CHECK(chosen(forced.comm, task(ncclFuncAllReduce, 1, ncclBfloat16)));
}

static void forced() {
  environment = {{"NCCL_PROTO", "UZIP"}, {"NCCL_UZIP_MIN_BYTES", "1000000000"}};
  Comm c;
  c.init();
  CHECK(std::string(ncclUzipUpstreamProto(c.comm, "UZIP")) == "Simple");
  for (size_t count : {1, 3, 1 << 20}) {
    struct ncclTaskColl t = task(ncclFuncAllReduce, count, ncclFloat32);
    Table stock, ours;
    costs(c.comm, &t, 4 * count, stock, ours);
    CHECK(ours[NCCL_ALGO_RING][NCCL_PROTO_SIMPLE] > 0);
    CHECK(ours[NCCL_ALGO_TREE][NCCL_PROTO_SIMPLE] == NCCL_ALGO_PROTO_IGNORE);
    CHECK(ours[NCCL_ALGO_TREE][NCCL_PROTO_LL] == stock[NCCL_ALGO_TREE][NCCL_PROTO_LL]);  // upstream's list decides
    CHECK(chosen(c.comm, t) && chosen(c.comm, task(ncclFuncBroadcast, count, ncclInt8)));
    // Not covered: as stock.
    struct ncclTaskColl other = task(ncclFuncAllReduce, count, ncclFloat64);
    costs(c.comm, &other, 8 * count, stock, ours);
    CHECK(memcmp(stock, ours, sizeof(stock)) == 0 && !chosen(c.comm, other));
  }
  environment = {{"NCCL_PROTO", "^UZIP"}};
  Comm off;
  off.init();
  CHECK(ncclUzipUpstreamProto(off.comm, "^UZIP") == nullptr && !off.comm->uzip->enabled);
  // Apart from its peers a rank tunes as they do.
  for (auto proto : {std::make_pair("UZIP", ""), std::make_pair("LL,UZIP", "LL")}) {
    environment = {{"NCCL_PROTO", proto.first}};
    Comm apart;
    CHECK(ncclUzipInit(apart.comm, nullptr) == ncclSuccess && ncclUzipAgree(apart.comm) == ncclSuccess);
    char const* const upstream = ncclUzipUpstreamProto(apart.comm, proto.first);
    CHECK(proto.second[0] == 0 ? upstream == nullptr : upstream != nullptr && std::string(upstream) == proto.second);
  }
  environment.clear();
  Comm unset;
  unset.init();
  CHECK(ncclUzipUpstreamProto(unset.comm, nullptr) == nullptr);
}

// Ranks differ in what they run on, not in what they decide.
static void sameOnAllRanks() {
  Comm a(4, 4), b(4, 4);
  b.comm->rank = 3;
  b.comm->cudaDev = 5;
  a.init();
  b.init();
  for (ncclFunc_t func : {ncclFuncAllReduce, ncclFuncBroadcast}) {
    for (ncclDataType_t type : {ncclBfloat16, ncclFloat16, ncclFloat32, ncclInt8}) {
      if (func == ncclFuncBroadcast && type != ncclInt8) continue;
      for (size_t count = 1; count <= (64u << 20); count = count * 3 / 2 + 1) {
        struct ncclTaskColl t = task(func, count, type), u = t;
        Table stock, first, second;
        costs(a.comm, &t, count, stock, first);
        costs(b.comm, &u, count, stock, second);
        CHECK(memcmp(first, second, sizeof(first)) == 0 && chosen(a.comm, t) == chosen(b.comm, u));
      }
    }
  }
}

static void asyncError() {
  Comm c(4, 4);
  c.init();
  CHECK(ncclUzipAsyncError(c.comm) == ncclSuccess);
  struct ncclUzipErrorRecord* error = c.device.uzip->error;
  error->channel = 5;
  error->peer = 2;
  error->detail = 0xabc;
  error->step = 77;
  error->code = UZIP_ERR_LENGTH;
  for (int i = 0; i < 3; i++) CHECK(ncclUzipAsyncError(c.comm) == ncclRemoteError);
  CHECK(contains(warnings, "rank 2") && contains(warnings, "channel 5") && contains(warnings, "step 77") &&
        contains(warnings, "0xabc") && contains(warnings, uzipErrorText(UZIP_ERR_LENGTH)));
  CHECK(warnings.find("refused") == warnings.rfind("refused"));  // once
  // ncclCommDestroy must get through, and what nobody asked for is logged at the end.
  c.comm->destroyFlag = 1;
  CHECK(ncclUzipAsyncError(c.comm) == ncclSuccess);
  c.comm->uzip->errorReported = false;
  warnings.clear();
  ncclUzipFree(c.comm);
  CHECK(contains(warnings, "refused a slot from rank 2"));
  environment = {{"NCCL_UZIP_ENABLE", "0"}};
  Comm off;
  off.init();
  CHECK(ncclUzipAsyncError(off.comm) == ncclSuccess);
}

static void stats() {
  Comm c;
  c.init();
  ncclUzipStats_t s = {};
  s.size = sizeof(s);
  CHECK(ncclUzipCommGetStats(c.comm, &s) == ncclSuccess && s.sendRawBytes == 0 && s.ops == 0);
  struct ncclUzipGroupStats* records = c.device.uzip->statsHost;
  records[0].sendRawBytes = 1000, records[0].sendWireBytes = 680, records[0].ops = 3, records[0].sendSlices = 4;
  records[NCCL_MAX_GROUPS].sendRawBytes = 500, records[NCCL_MAX_GROUPS].sendWireBytes = 500,
  records[NCCL_MAX_GROUPS].ops = 2;
  records[UZIP_STATS_RECORDS - 1].recvRawBytes = 9, records[UZIP_STATS_RECORDS - 1].recvSlices = 1;
  CHECK(ncclUzipCommGetStats(c.comm, &s) == ncclSuccess);
  CHECK(s.sendRawBytes == 1500 && s.sendWireBytes == 1180 && s.recvRawBytes == 9 && s.recvSlices == 1 &&
        s.sendSlices == 4);
  CHECK(s.ops == 3 && s.size == sizeof(s));
  CHECK(ncclUzipCommResetStats(c.comm) == ncclSuccess && ncclUzipCommGetStats(c.comm, &s) == ncclSuccess);
  CHECK(s.sendRawBytes == 0 && s.sendWireBytes == 0 && s.ops == 0 && s.recvRawBytes == 0);
  records[0].sendRawBytes += 7, records[NCCL_MAX_GROUPS].ops += 1;
  CHECK(ncclUzipCommGetStats(c.comm, &s) == ncclSuccess && s.sendRawBytes == 7 && s.ops == 1);

  ncclUzipPolicy_t p = {};
  p.size = sizeof(p);
  CHECK(ncclUzipCommGetPolicy(c.comm, &p) == ncclSuccess);
  CHECK(p.enabled == 1 && p.reason[0] == 0 && p.links == NCCL_UZIP_LINKS_NET && p.minBytes == 262144 && !p.exact &&
        !p.forced);
  CHECK(p.types == (NCCL_UZIP_TYPES_BF16 | NCCL_UZIP_TYPES_F16 | NCCL_UZIP_TYPES_F32));

  // Refusals.
  s.size = 8;
  p.size = sizeof(p) + 1;
  CHECK(ncclUzipCommGetStats(c.comm, &s) == ncclInvalidArgument && contains(warnings, "stats->size is 8"));
  CHECK(ncclUzipCommGetPolicy(c.comm, &p) == ncclInvalidArgument && contains(warnings, "policy->size is"));
  s.size = sizeof(s) + 8;
  warnings.clear();
  CHECK(ncclUzipCommGetStats(c.comm, &s) == ncclInvalidArgument && contains(warnings, "newer library"));
  // A program of the first header gets what it has room for.
  struct Grown {
    size_t size;
    uint64_t first, second, third;
  } const ours = {sizeof(Grown), 1, 2, 3};
  for (size_t size = 0; size <= sizeof(Grown) + 8; size += 8) {
    struct Grown theirs = {size, 9, 9, 9};
    bool const fits = size >= 16 && size <= sizeof(Grown);
    CHECK(uzipGive("f", "s", &theirs, &ours, 16, sizeof(Grown)) == (fits ? ncclSuccess : ncclInvalidArgument));
    CHECK(theirs.size == size && theirs.first == (fits ? 1 : 9));
    CHECK(theirs.second == (fits && size >= 24 ? 2 : 9) && theirs.third == (fits && size >= 32 ? 3 : 9));
  }
  int version, format;
  CHECK(ncclUzipCommGetStats(nullptr, &s) == ncclInvalidArgument &&
        ncclUzipCommGetStats(c.comm, nullptr) == ncclInvalidArgument);
  CHECK(ncclUzipCommGetPolicy(nullptr, &p) == ncclInvalidArgument &&
        ncclUzipCommGetPolicy(c.comm, nullptr) == ncclInvalidArgument);
  CHECK(ncclUzipCommResetStats(nullptr) == ncclInvalidArgument);
  CHECK(ncclUzipGetVersion(nullptr, &format) == ncclInvalidArgument &&
        ncclUzipGetVersion(&version, nullptr) == ncclInvalidArgument);
  CHECK(ncclUzipGetVersion(&version, &format) == ncclSuccess && version == NCCL_UZIP_VERSION_CODE &&
        format == UZIP_FORMAT_VERSION);

  // The end of the communicator says what it moved.
  infos.clear();
  ncclUzipFree(c.comm);
  CHECK(contains(infos, "sent 7 bytes raw") && c.comm->uzip == nullptr);
  ncclUzipFree(c.comm);
  ncclUzipFree(nullptr);

  // Without UZIP, and before init is done.
  s.size = sizeof(s), p.size = sizeof(p);
  CHECK(ncclUzipCommGetStats(c.comm, &s) == ncclSuccess && s.sendRawBytes == 0);
  CHECK(ncclUzipCommGetPolicy(c.comm, &p) == ncclSuccess && !p.enabled && contains(p.reason, "not initialized"));
  environment = {{"NCCL_UZIP_ENABLE", "0"}};
  Comm off;
  off.init();
  CHECK(ncclUzipCommGetStats(off.comm, &s) == ncclSuccess && s.sendRawBytes == 0 &&
        ncclUzipCommResetStats(off.comm) == ncclSuccess);
  CHECK(ncclUzipCommGetPolicy(off.comm, &p) == ncclSuccess && !p.enabled && contains(p.reason, "NCCL_UZIP_ENABLE=0") &&
        p.links == 0);
}

static void names() {
  struct ncclTaskColl t = task(ncclFuncAllReduce, 1, ncclBfloat16);
  CHECK(std::string(ncclUzipProtoName(&t)) == "SIMPLE");
  t.uzip = true;
  CHECK(std::string(ncclUzipProtoName(&t)) == "UZIP");
  CHECK(ncclUzipTypeOf(ncclBfloat16) == UZIP_TYPE_BF16 && ncclUzipTypeOf(ncclFloat16) == UZIP_TYPE_F16 &&
        ncclUzipTypeOf(ncclFloat32) == UZIP_TYPE_F32);
  for (ncclDataType_t type :
       {ncclInt8, ncclUint8, ncclInt32, ncclUint32, ncclInt64, ncclUint64, ncclFloat64, ncclFloat8e4m3}) {
    CHECK(ncclUzipTypeOf(type) == UZIP_TYPE_NONE);
  }
}

int main(int argc, char** argv) {
  std::map<std::string, void (*)()> const cases = {{"rows", rows},
                                                   {"wrong_knobs", wrongKnobs},
                                                   {"agreement", agreement},
                                                   {"stock_rank", stockRank},
                                                   {"differing_ranks", differingRanks},
                                                   {"differing_threads", differingThreads},
                                                   {"sharing_child", sharingChild},
                                                   {"unsuitable", unsuitable},
                                                   {"pads", pads},
                                                   {"block_size", blockSize},
                                                   {"choice", choice},
                                                   {"broadcast_ignores_type", broadcastIgnoresType},
                                                   {"cost_table", costTable},
                                                   {"exact", exact},
                                                   {"forced", forced},
                                                   {"same_on_all_ranks", sameOnAllRanks},
                                                   {"async_error", asyncError},
                                                   {"stats", stats},
                                                   {"names", names}};
  if (argc == 1) {
    for (auto const& c : cases) printf("%s\n", c.first.c_str());
    return 0;
  }
  auto found = cases.find(argv[1]);
  if (found == cases.end()) {
    fprintf(stderr, "no case %s\n", argv[1]);
    return 2;
  }
  standInRows();
  found->second();
  return 0;
}
