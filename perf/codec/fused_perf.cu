// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// Fused rates per channel: the UZIP primitives between blocks of one GPU in one process, slots in device memory, so that the
// wire costs nothing. Simple's primitives run in the same process for comparison. Results are checked: copies bit for bit
// against the input, sums bit for bit against Simple's.
//
//   pair     rank 0 send            -> rank 1 recv
//   reduce   rank 0 send            -> rank 1 recvReduceSend -> rank 2 recv
//   forward  rank 0 send            -> rank 1 recvCopySend   -> rank 2 recv
//   sink     rank 0 send            -> rank 1 returns credits and reads nothing (the sender's own rate; no data to check)
//
// A pipeline's rate is that of its slowest stage. Built against the patched NCCL tree, whose device headers it includes:
//   make fused-perf; build/perf/fused_perf [--channels 1,4,16] [--threads 544] [--mib 32] [--iters 5] [--slots device|host] [--json FILE]

#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "common.h"
#include "collectives.h"
#include "primitives.h"

__shared__ ncclShmemData ncclShmem;

enum Mode { kPair, kReduce, kForward, kSink, kModes };
static char const* const kModeNames[] = {"pair", "reduce", "forward", "sink"};

struct BlockSetup {
  ncclDevChannelPeer* peers[3];  // by rank
  void const* input;
  void* output;
  int rank, nranks;
};

struct FusedArgs {
  BlockSetup* setups;  // [channels][ranks]
  ncclUzipDevComm* uzip;
  uint32_t* abortFlag;
  int ranks, buffSize;
  ssize_t elems;  // a channel
};

template <typename Proto, typename T, typename RedOp>
__device__ __forceinline__ void runRank(FusedArgs const& args, int mode) {
  int const rank = blockIdx.x % args.ranks, channel = blockIdx.x / args.ranks;
  BlockSetup* setup = args.setups + channel * args.ranks + rank;
  if (threadIdx.x == 0) {
    ncclShmem.channelId = channel;
    ncclShmem.aborted = 0;
    ncclShmem.comm.rank = rank;
    ncclShmem.comm.nRanks = args.ranks;
    ncclShmem.comm.buffSizes[NCCL_PROTO_SIMPLE] = args.buffSize;
    ncclShmem.comm.abortFlag = args.abortFlag;
    ncclShmem.comm.uzip = args.uzip;
    ncclShmem.channel.peers = setup->peers;
  }
  __syncthreads();
  int const none = -1, prev = rank - 1, next = rank + 1;
  int const chunk = args.buffSize / NCCL_STEPS * Proto::StepPerSlice * Proto::SlicePerChunk / sizeof(T);
  if (mode == kSink && rank == 1) {
    if (threadIdx.x == 0) {
      ncclConnInfo* conn = &setup->peers[0]->recv[0];
      uint64_t const last = conn->step + divUp(args.elems, ssize_t(chunk)) * Proto::StepPerSlice * Proto::SlicePerChunk;
      while (conn->step < last) st_relaxed_sys_global(conn->head, conn->step = ld_volatile_global(conn->tail));
    }
    return;
  }
  Primitives<T, RedOp, FanAsymmetric<1, 1>, 0, Proto, 0> prims(threadIdx.x, blockDim.x, rank == 0 ? &none : &prev,
                                                               rank == args.ranks - 1 ? &none : &next, setup->input,
                                                               setup->output, 0);
  for (ssize_t at = 0; at < args.elems; at += chunk) {
    int n = int(min(ssize_t(chunk), args.elems - at));
    if (rank == 0)
      prims.send(at, n);
    else if (rank == args.ranks - 1)
      prims.recv(at, n);
    else if (mode == kReduce)
      prims.recvReduceSend(at, n);
    else
      prims.recvCopySend(at, n);
  }
}

__global__ void __launch_bounds__(NCCL_MAX_NTHREADS, 1) fusedSimple(FusedArgs args, int mode) {
  runRank<ProtoSimple<2, 2>, __nv_bfloat16, FuncSum<__nv_bfloat16>>(args, mode);
}
__global__ void __launch_bounds__(NCCL_MAX_NTHREADS, 1) fusedUzip(FusedArgs args, int mode) {
  runRank<ProtoUzip<2, 2>, __nv_bfloat16, FuncSum<__nv_bfloat16>>(args, mode);
}

#define CHECK(call)                                                                                       \
  do {                                                                                                    \
    cudaError_t e_ = (call);                                                                              \
    if (e_ != cudaSuccess) {                                                                              \
      fprintf(stderr, "fused_perf: %s: %s (%s:%d)\n", #call, cudaGetErrorString(e_), __FILE__, __LINE__); \
      exit(1);                                                                                            \
    }                                                                                                     \
  } while (0)

template <typename V>
static V* deviceAlloc(size_t n) {
  V* p;
  CHECK(cudaMalloc(&p, n * sizeof(V)));
  CHECK(cudaMemset(p, 0, n * sizeof(V)));
  return p;
}

static uint16_t bf16Of(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  return uint16_t((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

// One pipeline set-up: links with slots and counters in device memory.
struct Pipeline {
  int channels, ranks;
  std::vector<void*> owned, ownedHost;
  BlockSetup* setups;
  ncclUzipDevComm* uzip;
  ncclUzipGroupStats *stats, *statsHost;
  ncclUzipErrorRecord* error;

  Pipeline(int channels_, int ranks_, int buffSize, bool framed, bool hostSlots, void const* input, char* output,
           size_t bytes)
      : channels(channels_), ranks(ranks_) {
    uint32_t const step = buffSize / NCCL_STEPS, stride = step + uzipStepPad(step);
    std::vector<BlockSetup> host(channels * ranks);
    for (int c = 0; c < channels; c++) {
      std::vector<ncclDevChannelPeer> peers(ranks * ranks);
      memset(peers.data(), 0, peers.size() * sizeof(peers[0]));
      for (int l = 0; l + 1 < ranks; l++) {
        ncclConnInfo conn;
        memset(&conn, 0, sizeof conn);
        conn.buffs[NCCL_PROTO_SIMPLE] =
            hostSlots ? pinned<char>(size_t(stride) * NCCL_STEPS) : take<char>(size_t(stride) * NCCL_STEPS);
        conn.tail = take<uint64_t>(64);
        conn.head = take<uint64_t>(64);
        conn.stepSize = stride;
        conn.flags = framed ? NCCL_UZIP_LINK : 0;
        peers[l * ranks + l + 1].send[0] = conn;
        peers[(l + 1) * ranks + l].recv[0] = conn;
      }
      ncclDevChannelPeer* dev = take<ncclDevChannelPeer>(ranks * ranks);
      CHECK(cudaMemcpy(dev, peers.data(), peers.size() * sizeof(peers[0]), cudaMemcpyHostToDevice));
      for (int r = 0; r < ranks; r++) {
        BlockSetup& s = host[c * ranks + r];
        for (int p = 0; p < 3; p++) s.peers[p] = p < ranks ? dev + r * ranks + p : nullptr;
        s.input = (char const*)input + c * bytes;
        s.output = output + (size_t(r) * channels + c) * bytes;
        s.rank = r, s.nranks = ranks;
      }
    }
    setups = take<BlockSetup>(host.size());
    CHECK(cudaMemcpy(setups, host.data(), host.size() * sizeof(host[0]), cudaMemcpyHostToDevice));
    stats = take<ncclUzipGroupStats>(MAXCHANNELS * NCCL_MAX_GROUPS);
    statsHost = pinned<ncclUzipGroupStats>(MAXCHANNELS * NCCL_MAX_GROUPS);
    error = pinned<ncclUzipErrorRecord>(1);
    ncclUzipDevComm comm = {};
    comm.stats = stats, comm.statsHost = statsHost, comm.error = error;
    comm.typeMask = ~0u;
    uzip = take<ncclUzipDevComm>(1);
    CHECK(cudaMemcpy(uzip, &comm, sizeof comm, cudaMemcpyHostToDevice));
  }
  template <typename V>
  V* take(size_t n) {
    V* p = deviceAlloc<V>(n);
    owned.push_back(p);
    return p;
  }
  // Host memory as slots without GPUDirect have it.
  template <typename V>
  V* pinned(size_t n) {
    void* p;
    CHECK(cudaHostAlloc(&p, n * sizeof(V), cudaHostAllocMapped));
    memset(p, 0, n * sizeof(V));
    ownedHost.push_back(p);
    return (V*)p;
  }
  ~Pipeline() {
    for (void* p : owned) cudaFree(p);
    for (void* p : ownedHost) cudaFreeHost(p);
  }
  double ratio() const {
    uint64_t raw = 0, wire = 0;
    for (int i = 0; i < MAXCHANNELS * NCCL_MAX_GROUPS; i++)
      raw += statsHost[i].sendRawBytes, wire += statsHost[i].sendWireBytes;
    return raw ? double(wire) / double(raw) : 1.0;
  }
};

typedef void (*Kernel)(FusedArgs, int);

// Median seconds of `iters` runs after one warm-up.
static double runPipeline(Kernel kernel, Pipeline& pipe, FusedArgs args, int mode, int threads, int iters) {
  CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, ncclShmemDynamicSize(900)));
  cudaEvent_t a, b;
  CHECK(cudaEventCreate(&a));
  CHECK(cudaEventCreate(&b));
  std::vector<double> times;
  for (int i = 0; i <= iters; i++) {
    CHECK(cudaEventRecord(a));
    void* params[] = {&args, &mode};
    CHECK(cudaLaunchKernel((void*)kernel, dim3(pipe.channels * pipe.ranks), dim3(threads), params,
                           ncclShmemDynamicSize(900), 0));
    CHECK(cudaEventRecord(b));
    CHECK(cudaEventSynchronize(b));
    float ms;
    CHECK(cudaEventElapsedTime(&ms, a, b));
    if (i > 0) times.push_back(ms * 1e-3);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

static void fill(std::vector<uint16_t>& v, std::string const& dist) {
  std::mt19937_64 rng(7);
  std::normal_distribution<float> normal(0.f, 0.02f);
  for (auto& x : v) x = dist == "zeros" ? 0 : dist == "random" ? uint16_t(rng()) : bf16Of(normal(rng));
}

int main(int argc, char** argv) {
  std::vector<int> channelCounts = {1, 4, 16, 32};
  std::vector<std::string> dists = {"normal", "random", "zeros"};
  int threads = 544, mib = 32, iters = 5;
  bool hostSlots = false;
  char const* json = nullptr;
  for (int i = 1; i < argc; i++) {
    std::string a = argv[i];
    if (i + 1 >= argc) {
      fprintf(stderr,
              "fused_perf: %s needs a value; options are --channels --threads --mib --iters --dist --slots --json\n",
              argv[i]);
      return 2;
    }
    char* value = argv[++i];
    if (a == "--channels" || a == "--dist") {
      if (a == "--channels")
        channelCounts.clear();
      else
        dists.clear();
      for (char* tok = strtok(value, ","); tok; tok = strtok(nullptr, ",")) {
        if (a == "--channels")
          channelCounts.push_back(atoi(tok));
        else
          dists.push_back(tok);
      }
    } else if (a == "--threads")
      threads = atoi(value);
    else if (a == "--mib")
      mib = atoi(value);
    else if (a == "--iters")
      iters = atoi(value);
    else if (a == "--json")
      json = value;
    else if (a == "--slots" && (!strcmp(value, "host") || !strcmp(value, "device")))
      hostSlots = !strcmp(value, "host");
    else {
      fprintf(stderr,
              "fused_perf: unknown option %s, or a value it does not take; options are --channels --threads --mib "
              "--iters --dist --slots --json\n",
              a.c_str());
      return 2;
    }
  }
  for (int c : channelCounts) {
    if (c < 1 || c > 43) {  // three blocks a channel, all resident at once
      fprintf(stderr, "fused_perf: --channels takes 1 to 43, not %d\n", c);
      return 2;
    }
  }
  using T = __nv_bfloat16;
  Kernel const simple = fusedSimple, uzip = fusedUzip;
  int const buffSize = 4 << 20;
  size_t const bytes = size_t(mib) << 20;
  uint32_t* abortFlag = deviceAlloc<uint32_t>(1);
  FILE* out = json ? fopen(json, "w") : nullptr;
  if (json && !out) {
    fprintf(stderr, "fused_perf: cannot write %s\n", json);
    return 2;
  }
  if (out) fprintf(out, "[");
  bool first = true;
  int wrong = 0;
  printf("# bf16, %d MiB a channel, %d threads, slots in %s memory; GB/s of raw payload per channel\n", mib, threads,
         hostSlots ? "host" : "device");
  printf("%8s %8s %8s %10s %10s %8s %8s %6s\n", "payload", "mode", "channels", "simple", "uzip", "uzip/s", "ratio",
         "wrong");
  for (auto const& dist : dists) {
    std::vector<uint16_t> block(1 << 22);
    fill(block, dist);
    for (int channels : channelCounts) {
      char* input = deviceAlloc<char>(bytes * channels);
      for (size_t at = 0; at < bytes * channels; at += block.size() * 2) {
        size_t n = std::min(block.size() * 2, bytes * channels - at);
        CHECK(cudaMemcpy(input + at, block.data(), n, cudaMemcpyHostToDevice));
      }
      for (int mode = 0; mode < kModes; mode++) {
        int const ranks = mode == kPair || mode == kSink ? 2 : 3;
        char* output[2];
        double seconds[2], ratio = 1;
        for (int u = 0; u < 2; u++) {
          output[u] = deviceAlloc<char>(bytes * channels * ranks);
          CHECK(cudaMemset(output[u], 0xa5, bytes * channels * ranks));
          Pipeline pipe(channels, ranks, buffSize, u == 1, hostSlots, input, output[u], bytes);
          FusedArgs args = {pipe.setups, u ? pipe.uzip : nullptr,   abortFlag, ranks,
                            buffSize,    ssize_t(bytes / sizeof(T))};
          seconds[u] = runPipeline(u ? uzip : simple, pipe, args, mode, threads, iters);
          if (u) {
            ratio = pipe.ratio();
            if (pipe.error->code) {
              fprintf(stderr, "fused_perf: slot refused: code %u peer %d channel %u detail %u\n", pipe.error->code,
                      pipe.error->peer, pipe.error->channel, pipe.error->detail);
              wrong += 1;
            }
          }
        }
        // The last rank's output, and the middle one's where it copies.
        std::vector<char> a(bytes * channels), b(bytes * channels);
        int bad = 0;
        for (int r = mode == kSink ? ranks : mode == kForward ? 1 : ranks - 1; r < ranks; r++) {
          CHECK(cudaMemcpy(a.data(), output[0] + size_t(r) * channels * bytes, a.size(), cudaMemcpyDeviceToHost));
          CHECK(cudaMemcpy(b.data(), output[1] + size_t(r) * channels * bytes, b.size(), cudaMemcpyDeviceToHost));
          bad += memcmp(a.data(), b.data(), a.size()) != 0;
          if (mode != kReduce) {
            CHECK(cudaMemcpy(a.data(), input, a.size(), cudaMemcpyDeviceToHost));
            bad += memcmp(a.data(), b.data(), a.size()) != 0;
          }
        }
        wrong += bad;
        double const perChannel[2] = {bytes / seconds[0] * 1e-9, bytes / seconds[1] * 1e-9};
        printf("%8s %8s %8d %10.2f %10.2f %8.3f %8.4f %6d\n", dist.c_str(), kModeNames[mode], channels, perChannel[0],
               perChannel[1], perChannel[1] / perChannel[0], ratio, bad);
        fflush(stdout);
        if (out) {
          fprintf(out,
                  "%s\n{\"payload\":\"%s\",\"mode\":\"%s\",\"channels\":%d,\"threads\":%d,\"slots\":\"%s\",\"bytes\":%"
                  "zu,\"simple_GBps\":%.4f,"
                  "\"uzip_GBps\":%.4f,\"ratio\":%.6f,\"wrong\":%d}",
                  first ? "" : ",", dist.c_str(), kModeNames[mode], channels, threads, hostSlots ? "host" : "device",
                  bytes, perChannel[0], perChannel[1], ratio, bad);
          first = false;
        }
        CHECK(cudaFree(output[0]));
        CHECK(cudaFree(output[1]));
      }
      CHECK(cudaFree(input));
    }
  }
  if (out) {
    fprintf(out, "\n]\n");
    fclose(out);
  }
  return wrong ? 1 : 0;
}
