// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// The binding of policy and model to NCCL: everything that NCCL's hook lines call.

#include <string.h>
#include <algorithm>

#include "argcheck.h"
#include "bootstrap.h"
#include "comm.h"
#include "enqueue.h"
#include "graph.h"
#include "proxy.h"
#include "transport.h"

#include "uzip_comm.h"

// NCCL defines these parameters without declaring them in a header.
int64_t ncclParamBuffSize();
int64_t ncclParamLlBuffSize();
int64_t ncclParamLl128BuffSize();
int64_t ncclParamNthreads();

static_assert(
    offsetof(struct ncclPeerInfo, uzipPolicy) == 60 && offsetof(struct ncclPeerInfo, totalGlobalMem) == 64,
    "the policy word must fill the hole of ncclPeerInfo: a stock rank sends 0 there, in a structure of the same size");
static_assert(UZIP_POLICY_FUNCS == NCCL_NUM_FUNCTIONS, "functions with a protocol list");
static_assert(WARP_SIZE == 32 && NCCL_SIMPLE_MAX_NTHREADS == 512, "bounds of uzipBlockThreads");
static_assert(int(ncclFuncBroadcast) == 0 && int(ncclFuncAllReduce) == 4, "order of uzipFuncNames");

static constexpr uint32_t kTypeMask = 1u << UZIP_TYPE_BF16 | 1u << UZIP_TYPE_F16 | 1u << UZIP_TYPE_F32;

// A network buffer must stay a multiple of this after the pads: DMA-BUF wants whole pages, which may have 64 KiB.
static constexpr uint32_t kBuffAlign = 64 << 10;

// --- Device functions --------------------------------------------------------------------------------------

// Order of rows as in device/generate_uzip.py.
static constexpr int kRowOps[] = {ncclDevSum, ncclDevProd, ncclDevMinMax, ncclDevPreMulSum};
static constexpr int kRowTypes[] = {ncclFloat16, ncclFloat32, ncclBfloat16};
static constexpr int kRows = 4 * 3 + 1;

static int rowOf(int func, int devRedOp, int datatype, int algorithm) {
  if (algorithm != NCCL_ALGO_RING) return -1;
  if (func == ncclFuncBroadcast) return kRows - 1;
  if (func != ncclFuncAllReduce) return -1;
  auto op = std::find(std::begin(kRowOps), std::end(kRowOps), devRedOp);
  auto type = std::find(std::begin(kRowTypes), std::end(kRowTypes), datatype);
  if (op == std::end(kRowOps) || type == std::end(kRowTypes)) return -1;
  return int(op - std::begin(kRowOps)) * 3 + int(type - std::begin(kRowTypes));
}

static int funcIdOfRow(int row) {
  // Upstream's rows: SendRecv, AllGather, Broadcast, AllGatherV, then AllReduce, Reduce and ReduceScatter by
  // operation and type.
  constexpr int kUpstreamRows =
      1 + (4 + 1 + 1) * NCCL_NUM_PROTOCOLS + ncclNumDevRedOps * ncclNumTypes * (6 + 1 + 4) * NCCL_NUM_PROTOCOLS;
  return ncclDevFuncRowToId[kUpstreamRows + row];
}

int ncclUzipDevFuncId(int func, int devRedOp, int datatype, int algorithm) {
  int const row = rowOf(func, devRedOp, datatype, algorithm);
  return row < 0 ? -1 : funcIdOfRow(row);
}

// --- Life of a communicator --------------------------------------------------------------------------------

static void disable(struct ncclUzipComm* uzip, std::string const& reason) {
  uzip->enabled = false;
  snprintf(uzip->reason, sizeof(uzip->reason), "%s", reason.c_str());
}

ncclResult_t ncclUzipInit(struct ncclComm* comm, struct ncclComm* parent) {
  struct ncclUzipComm* uzip = new ncclUzipComm();
  comm->uzip = uzip;
  struct uzipPolicy& policy = uzip->policy;
  memset(&policy, 0, sizeof(policy));
  policy.version = UZIP_POLICY_VERSION;
  policy.format = UZIP_FORMAT_VERSION;
  policy.buffBytes = ncclParamBuffSize();
  policy.typeMask = kTypeMask;
  // ncclComm::netDeviceType would say it, but NCCL never sets it.
  ncclNetProperties_t netProps;
  NCCLCHECK(comm->ncclNet->getProperties(0, &netProps));
  policy.netDevice = netProps.netDeviceType != NCCL_NET_DEVICE_HOST;
  // A child that shares its parent's proxies can do without their pads, but it cannot add them. Part of the policy
  // because after ncclCommGrow some ranks have a parent and others do not.
  policy.unpadded = parent != nullptr && parent->shareResources && parent->proxyState->uzipPadBytes == 0;
  // Slots are accessed 16 bytes at a time. The Simple buffer lies behind those of LL and LL128, or of LL128 alone where
  // LL has a memory of its own. The defaults are multiples.
  for (int64_t bytes : {ncclParamLlBuffSize(), ncclParamLl128BuffSize()}) {
    policy.unaligned |= bytes != -2 && bytes % 16 != 0;
  }
  policy.threads = uzipBlockThreads(ncclParamNthreads());
  policy.model = uzipModelWord();
  for (int row = 0; row < kRows; row++) policy.functions |= uint64_t(funcIdOfRow(row) >= 0) << row;

  auto knob = [](char const* name) {
    char const* value = ncclGetEnv(name);
    if (value != nullptr) INFO(NCCL_ENV, "%s set by environment to %s", name, value);
    return value;
  };
  struct uzipKnobs knobs;
  knobs.enable = knob("NCCL_UZIP_ENABLE");
  knobs.minBytes = knob("NCCL_UZIP_MIN_BYTES");
  knobs.exact = knob("NCCL_UZIP_EXACT");
  knobs.proto = knob("NCCL_PROTO");
  std::string error;
  if (!uzipParseKnobs(knobs, &policy, &uzip->upstreamProto, &error)) {
    WARN("UZIP: %s", error.c_str());
    return ncclInvalidArgument;
  }
  comm->peerInfo[comm->rank].uzipPolicy = uzipPolicyWord(policy);
  return ncclSuccess;
}

ncclResult_t ncclUzipAgree(struct ncclComm* comm) {
  struct ncclUzipComm* uzip = comm->uzip;
  std::vector<uint32_t> words(comm->nRanks);
  for (int r = 0; r < comm->nRanks; r++) words[r] = comm->peerInfo[r].uzipPolicy;
  std::string message;
  uzipAgreement const agreement = uzipAgree(words, &message);
  if (agreement == UZIP_DIFFER) {
    std::vector<char> blobs(size_t(comm->nRanks) * UZIP_POLICY_BLOB_BYTES);
    auto blob = [&](int r) { return blobs.data() + size_t(r) * UZIP_POLICY_BLOB_BYTES; };
    memcpy(blob(comm->rank), &uzip->policy, sizeof(struct uzipPolicy));
    NCCLCHECK(bootstrapAllGather(comm->bootstrap, blobs.data(), UZIP_POLICY_BLOB_BYTES));
    struct uzipPolicy first, other;
    memcpy(&first, blob(0), sizeof(first));
    for (int r = 1; r < comm->nRanks; r++) {
      memcpy(&other, blob(r), sizeof(other));
      std::string const difference = uzipPolicyDifference(first, 0, other, r);
      if (!difference.empty()) {
        message += ": " + difference;
        break;
      }
    }
  }
  uzip->agreed = agreement == UZIP_AGREED;
  if (!uzip->agreed) {
    disable(uzip, message);
    // The lowest rank that runs nccl-uzip speaks for all: rank 0 may be the stock one. Our own word is never 0.
    int speaker = 0;
    while (words[speaker] == 0) speaker++;
    if (comm->rank == speaker) WARN("UZIP is off for this communicator: %s", uzip->reason);
  } else if (!uzip->policy.enable) {
    disable(uzip, "NCCL_UZIP_ENABLE=0");
  } else if (!uzipWanted(uzip->policy)) {
    disable(uzip, "NCCL_PROTO excludes UZIP");
  } else if (uzip->policy.functions == 0) {
    disable(uzip, "this build of the library has no UZIP device functions");
  } else if (uzip->policy.netDevice) {
    disable(uzip, "the network plugin unpacks data on the device");
  } else if (uzip->policy.unpadded) {
    disable(uzip, "it shares the buffers of a communicator without UZIP");
  } else if (uzip->policy.unaligned) {
    disable(uzip, "NCCL_LL_BUFFSIZE or NCCL_LL128_BUFFSIZE is not a multiple of 16 bytes");
  } else {
    uzip->enabled = true;
  }
  return ncclSuccess;
}

// What only topology and sizes can decide. They are known when proxies and device side are made, in this order.
static void decide(struct ncclComm* comm) {
  struct ncclUzipComm* uzip = comm->uzip;
  if (!uzip->enabled) return;
  int const stepBytes = comm->buffSizes[NCCL_PROTO_SIMPLE] / NCCL_STEPS;
  if (comm->nNodes == 1) {
    disable(uzip, "all ranks are on one node, and no network link is used");
  } else if (stepBytes % 128 != 0) {
    disable(uzip, "NCCL_BUFFSIZE is not a multiple of 1024 bytes");
  }
}

int ncclUzipPadBytes(struct ncclComm* comm) {
  decide(comm);
  if (!comm->uzip->enabled) return 0;
  uint32_t const stepBytes = comm->buffSizes[NCCL_PROTO_SIMPLE] / NCCL_STEPS;
  uint32_t const pad = uzipStepPad(stepBytes);
  return NCCL_STEPS * int(DIVUP(stepBytes + pad, kBuffAlign / NCCL_STEPS) * (kBuffAlign / NCCL_STEPS) - stepBytes);
}

static std::string describe(struct ncclUzipComm const* uzip) {
  static char const* const modeText[] = {"never", "where it pays", "always"};
  struct uzipPolicy const& policy = uzip->policy;
  std::string text = "types bf16, f16, f32 on network links; AllReduce ";
  text += modeText[policy.modes[ncclFuncAllReduce]];
  text += ", Broadcast ";
  text += modeText[policy.modes[ncclFuncBroadcast]];
  text += "; at least " + std::to_string(policy.minBytes) + " bytes unless always";
  if (policy.exact) text += "; stock's plan is kept";
  return text;
}

ncclResult_t ncclUzipDevCommInit(struct ncclComm* comm, struct ncclKernelComm* devComm, cudaStream_t stream) {
  struct ncclUzipComm* uzip = comm->uzip;
  decide(comm);
  devComm->uzip = nullptr;
  if (!uzip->enabled) {
    INFO(NCCL_INIT, "UZIP disabled for comm %p rank %d nRanks %d: %s", comm, comm->rank, comm->nRanks, uzip->reason);
    return ncclSuccess;
  }

  // One allocation each, as small ones cost as much as large ones.
  struct DeviceSide {
    struct ncclUzipGroupStats stats[UZIP_STATS_RECORDS];
    struct ncclUzipDevComm comm;
  }* device;
  struct MappedSide {
    struct ncclUzipGroupStats stats[UZIP_STATS_RECORDS];
    struct ncclUzipErrorRecord error;
  }* mapped;
  NCCLCHECK(ncclCudaCallocAsync(&device, 1, stream, comm->memManager));
  ncclCommPushCudaFree(comm, device);
  NCCLCHECK(ncclCudaHostCalloc(&mapped, 1));
  ncclCommPushCudaHostFree(comm, mapped);
  struct ncclUzipDevComm tmp;
  memset(&tmp, 0, sizeof(tmp));
  tmp.stats = device->stats;
  tmp.statsHost = mapped->stats;
  tmp.error = &mapped->error;
  tmp.typeMask = uzip->policy.typeMask;
  NCCLCHECK(ncclCudaMemcpyAsync(&device->comm, &tmp, 1, stream));
  devComm->uzip = &device->comm;
  uzip->statsHost = mapped->stats;
  uzip->error = &mapped->error;
  INFO(NCCL_INIT, "UZIP enabled for comm %p rank %d nRanks %d: %s; each network buffer grows by %d bytes", comm,
       comm->rank, comm->nRanks, describe(uzip).c_str(), comm->proxyState->uzipPadBytes);
  return ncclSuccess;
}

void ncclUzipFree(struct ncclComm* comm) {
  struct ncclUzipComm* uzip = comm != nullptr ? comm->uzip : nullptr;
  if (uzip == nullptr) return;
  if (uzip->statsHost != nullptr) {
    ncclUzipStats_t s;
    uzipReadStats(uzip, &s);
    (void)ncclUzipAsyncError(comm);
    INFO(NCCL_INIT,
         "UZIP comm %p rank %d: sent %lu bytes raw, %lu on the wire (ratio %.4f); received %lu raw, %lu on the wire; "
         "%lu slices sent (%lu raw, %lu forwarded) in %lu operations; pads %lu bytes on %u connections",
         comm, comm->rank, s.sendRawBytes, s.sendWireBytes,
         s.sendRawBytes ? double(s.sendWireBytes) / s.sendRawBytes : 1.0, s.recvRawBytes, s.recvWireBytes, s.sendSlices,
         s.sendSlicesRaw, s.fwdSlices, s.ops, s.padBytes, uzip->connections.load());
  }
  comm->uzip = nullptr;
  delete uzip;
}

// --- Network connections -----------------------------------------------------------------------------------

void ncclUzipNetGrow(struct ncclProxyState* proxyState, int* memBytes, int* buffBytes) {
  *memBytes += proxyState->uzipPadBytes;
  *buffBytes += proxyState->uzipPadBytes;
}

void ncclUzipNetConnect(struct ncclComm* comm, struct ncclConnInfo* conn) {
  // A sharing child may be off while its parent's buffers have pads, so the proxies' layout decides. A framed link
  // means something to UZIP device functions only. Shared buffers are those of send/recv, which have their own
  // geometry.
  int const padBytes = comm->proxyState->uzipPadBytes;
  if (padBytes == 0 || conn->shared) return;
  conn->stepSize += padBytes / NCCL_STEPS;
  conn->flags |= NCCL_UZIP_LINK;
  comm->uzip->padBytes += padBytes;
  comm->uzip->connections += 1;
}

// --- Choice of UZIP ----------------------------------------------------------------------------------------

char const* ncclUzipUpstreamProto(struct ncclComm* comm, char const* proto) {
  struct ncclUzipComm const* uzip = comm->uzip;
  std::string const& upstream = uzip->agreed ? uzip->upstreamProto.agreed : uzip->upstreamProto.apart;
  return proto == nullptr || upstream.empty() ? nullptr : upstream.c_str();
}

uint8_t ncclUzipTypeOf(ncclDataType_t datatype) {
  switch (datatype) {
    case ncclBfloat16: return UZIP_TYPE_BF16;
    case ncclFloat16: return UZIP_TYPE_F16;
    case ncclFloat32: return UZIP_TYPE_F32;
    default: return UZIP_TYPE_NONE;
  }
}

char const* ncclUzipProtoName(struct ncclTaskColl const* task) {
  return task->uzip ? "UZIP" : ncclProtoToString(task->protocol);
}

// The mode of a task's function; off unless ring UZIP can run it.
static uint8_t modeOf(struct ncclComm* comm, struct ncclTaskColl const* task) {
  struct ncclUzipComm const* uzip = comm->uzip;
  if (!uzip->enabled || ncclUzipDevFuncId(task->func, task->opDev.op, task->datatype, NCCL_ALGO_RING) < 0)
    return UZIP_MODE_OFF;
  return uzip->policy.modes[task->func];
}

// Threads of a UZIP task's block, without the warp that synchronises. NCCL gives slow links small blocks, since
// copying needs no more; encoding does. NCCL_NTHREADS is obeyed. The model depends on it, so it is part of the policy.
static int uzipThreads(struct ncclComm* comm) { return int(comm->uzip->policy.threads); }

// Times in microseconds of ring Simple, as NCCL's model has it, and of ring UZIP. False when ring Simple is not to be
// used.
static bool ringTimes(struct ncclComm* comm, struct ncclTaskColl const* task, size_t nBytes, int pipeOps,
                      float* simpleUs, float* uzipUs) {
  float const bandwidth = comm->bandwidths[task->func][NCCL_ALGO_RING][NCCL_PROTO_SIMPLE];
  if (bandwidth <= 0 || ncclTopoGetAlgoTime(comm, task->func, NCCL_ALGO_RING, NCCL_PROTO_SIMPLE, nBytes, pipeOps,
                                            simpleUs) != ncclSuccess) {
    return false;
  }
  struct ncclTopoGraph const& graph = comm->graphs[NCCL_ALGO_RING];
  struct uzipRing ring;
  ring.nRanks = comm->nRanks;
  ring.nNodes = comm->nNodes;
  ring.graphChannels = graph.nChannels;
  ring.channels = comm->nChannels;
  ring.threads = uzipThreads(comm);
  ring.bwIntra = graph.bwIntra;
  ring.bwInter = graph.bwInter;
  bool const reduces = task->func == ncclFuncAllReduce;
  double const ratio = reduces ? uzipRatio(ncclUzipTypeOf(task->datatype)) : uzipCopyRatio();
  int const ringSteps = (reduces ? 2 : 1) * (comm->nRanks - 1);
  *uzipUs = float(uzipTimeUs(*simpleUs, nBytes / (1000.0 * bandwidth), uzipGain(ring, ratio), ringSteps, pipeOps));
  return true;
}

void ncclUzipUpdateCost(struct ncclComm* comm, struct ncclTaskColl* task, size_t nBytes, int pipeOps,
                        float** costTable) {
  float (*table)[NCCL_NUM_PROTOCOLS] = (float (*)[NCCL_NUM_PROTOCOLS])costTable;
  float& entry = table[NCCL_ALGO_RING][NCCL_PROTO_SIMPLE];
  uint8_t const mode = modeOf(comm, task);
  float simpleUs, uzipUs;
  if (mode == UZIP_MODE_OFF || comm->uzip->policy.exact || entry < 0) return;
  if (!ringTimes(comm, task, nBytes, pipeOps, &simpleUs, &uzipUs)) return;
  if (mode == UZIP_MODE_FORCE) {
    // Simple means ring UZIP now, so the other algorithms' Simple is not to be had.
    for (int a = 0; a < NCCL_NUM_ALGORITHMS; a++) {
      if (a != NCCL_ALGO_RING) table[a][NCCL_PROTO_SIMPLE] = NCCL_ALGO_PROTO_IGNORE;
    }
    entry = uzipUs;
  } else if (nBytes >= comm->uzip->policy.minBytes) {
    entry = std::min(entry, uzipUs);
  }
}

void ncclUzipChoose(struct ncclComm* comm, struct ncclTaskColl* task, int pipeOps) {
  task->uzip = false;
  if (task->algorithm != NCCL_ALGO_RING || task->protocol != NCCL_PROTO_SIMPLE || comm->nRanks == 1) return;
  uint8_t const mode = modeOf(comm, task);
  if (mode == UZIP_MODE_OFF) return;
  if (mode == UZIP_MODE_AUTO) {
    size_t const nBytes =
        ncclTypeSize(task->datatype) * ncclFuncMaxSendRecvCount(task->func, comm->nRanks, task->count);
    float simpleUs, uzipUs;
    if (nBytes < comm->uzip->policy.minBytes) return;
    if (!ringTimes(comm, task, nBytes, pipeOps, &simpleUs, &uzipUs) || uzipUs >= simpleUs) return;
  }
  task->uzip = true;
  task->nWarps = std::max(task->nWarps, uzipThreads(comm) / WARP_SIZE + 1);
  task->devFuncId = ncclUzipDevFuncId(task->func, task->opDev.op, task->datatype, NCCL_ALGO_RING);
}

// --- Errors ------------------------------------------------------------------------------------------------

ncclResult_t ncclUzipAsyncError(struct ncclComm* comm) {
  struct ncclUzipComm* uzip = comm->uzip;
  if (uzip == nullptr || uzip->error == nullptr) return ncclSuccess;
  uint32_t const code = COMPILER_ATOMIC_LOAD(&uzip->error->code, std::memory_order_acquire);
  if (code == UZIP_OK) return ncclSuccess;
  if (!uzip->errorReported.exchange(true)) {
    struct ncclUzipErrorRecord const* error = uzip->error;
    WARN(
        "UZIP: rank %d refused a slot from rank %d, channel %u, step %lu: %s (error %u, value 0x%x). Results of the "
        "operation are wrong.",
        comm->rank, error->peer, error->channel, (unsigned long)error->step, uzipErrorText(code), code, error->detail);
  }
  // ncclCommDestroy asks too, and stops half-way when there is an error.
  return comm->destroyFlag ? ncclSuccess : ncclRemoteError;
}
