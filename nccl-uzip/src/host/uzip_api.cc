// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// nccl_uzip.h: checks of arguments, and reading of what the device wrote.

#include <string.h>
#include <algorithm>

#include "argcheck.h"
#include "comm.h"

#include "uzip_comm.h"

#define UZIP_API extern "C" __attribute__((visibility("default"))) ncclResult_t

static_assert(NCCL_UZIP_TYPES_BF16 == 1u << UZIP_TYPE_BF16 && NCCL_UZIP_TYPES_F16 == 1u << UZIP_TYPE_F16 &&
                  NCCL_UZIP_TYPES_F32 == 1u << UZIP_TYPE_F32,
              "bits of ncclUzipPolicy_t::types");

// Sizes of the structures in the first version of nccl_uzip.h.
static constexpr size_t kFirstStats = 88, kFirstPolicy = 296;
static_assert(sizeof(ncclUzipStats_t) >= kFirstStats && sizeof(ncclUzipPolicy_t) >= kFirstPolicy, "they only grow");

static constexpr uint64_t ncclUzipGroupStats::* kCounters[] = {
    &ncclUzipGroupStats::sendRawBytes,  &ncclUzipGroupStats::sendWireBytes, &ncclUzipGroupStats::recvRawBytes,
    &ncclUzipGroupStats::recvWireBytes, &ncclUzipGroupStats::sendSlices,    &ncclUzipGroupStats::sendSlicesRaw,
    &ncclUzipGroupStats::fwdSlices,     &ncclUzipGroupStats::recvSlices,    &ncclUzipGroupStats::ops};

ncclResult_t uzipGive(char const* function, char const* what, void* to, void const* from, size_t firstBytes,
                      size_t bytes) {
  size_t size;
  memcpy(&size, to, sizeof(size));
  if (size < firstBytes || size > bytes) {
    WARN("%s : %s->size is %zu, must be from %zu to %zu%s", function, what, size, firstBytes, bytes,
         size > bytes ? "; was the program built for a newer library?" : "");
    return ncclInvalidArgument;
  }
  memcpy((char*)to + sizeof(size), (char const*)from + sizeof(size), size - sizeof(size));
  return ncclSuccess;
}

// A counter that the device may be writing.
static uint64_t load(struct ncclUzipComm* uzip, size_t record, uint64_t ncclUzipGroupStats::* field) {
  return COMPILER_ATOMIC_LOAD(&(uzip->statsHost[record].*field), std::memory_order_relaxed);
}

// Each field of a record goes through `combine(sum, current - base)`.
template <typename Combine>
static uint64_t reduceStats(struct ncclUzipComm* uzip, uint64_t ncclUzipGroupStats::* field, Combine combine) {
  uint64_t total = 0;
  for (size_t r = 0; r < UZIP_STATS_RECORDS; r++) {
    total = combine(total, load(uzip, r, field) - (uzip->base.empty() ? 0 : uzip->base[r].*field));
  }
  return total;
}

void uzipReadStats(struct ncclUzipComm* uzip, ncclUzipStats_t* stats) {
  memset(stats, 0, sizeof(*stats));
  stats->padBytes = uzip->padBytes;
  if (uzip->statsHost == nullptr) return;
  std::lock_guard<std::mutex> lock(uzip->mutex);
  auto sum = [&](uint64_t ncclUzipGroupStats::* field) {
    return reduceStats(uzip, field, [](uint64_t a, uint64_t b) { return a + b; });
  };
  stats->sendRawBytes = sum(&ncclUzipGroupStats::sendRawBytes);
  stats->sendWireBytes = sum(&ncclUzipGroupStats::sendWireBytes);
  stats->recvRawBytes = sum(&ncclUzipGroupStats::recvRawBytes);
  stats->recvWireBytes = sum(&ncclUzipGroupStats::recvWireBytes);
  stats->sendSlices = sum(&ncclUzipGroupStats::sendSlices);
  stats->sendSlicesRaw = sum(&ncclUzipGroupStats::sendSlicesRaw);
  stats->fwdSlices = sum(&ncclUzipGroupStats::fwdSlices);
  stats->recvSlices = sum(&ncclUzipGroupStats::recvSlices);
  // An operation counts once on each of its channels.
  stats->ops = reduceStats(uzip, &ncclUzipGroupStats::ops, [](uint64_t a, uint64_t b) { return std::max(a, b); });
}

UZIP_API ncclUzipGetVersion(int* version, int* formatVersion) {
  NCCLCHECK(PtrCheck(version, "ncclUzipGetVersion", "version"));
  NCCLCHECK(PtrCheck(formatVersion, "ncclUzipGetVersion", "formatVersion"));
  *version = NCCL_UZIP_VERSION_CODE;
  *formatVersion = UZIP_FORMAT_VERSION;
  return ncclSuccess;
}

UZIP_API ncclUzipCommGetStats(ncclComm_t comm, ncclUzipStats_t* stats) {
  NCCLCHECK(CommCheck(comm, "ncclUzipCommGetStats", "comm"));
  NCCLCHECK(PtrCheck(stats, "ncclUzipCommGetStats", "stats"));
  ncclUzipStats_t now = {};
  if (comm->uzip != nullptr) uzipReadStats(comm->uzip, &now);
  return uzipGive("ncclUzipCommGetStats", "stats", stats, &now, kFirstStats, sizeof(now));
}

UZIP_API ncclUzipCommResetStats(ncclComm_t comm) {
  NCCLCHECK(CommCheck(comm, "ncclUzipCommResetStats", "comm"));
  struct ncclUzipComm* uzip = comm->uzip;
  if (uzip == nullptr || uzip->statsHost == nullptr) return ncclSuccess;
  // The device only ever adds, so the reset is a mark; nothing has to wait for kernels.
  std::lock_guard<std::mutex> lock(uzip->mutex);
  uzip->base.resize(UZIP_STATS_RECORDS);
  for (size_t r = 0; r < UZIP_STATS_RECORDS; r++) {
    for (auto field : kCounters) uzip->base[r].*field = load(uzip, r, field);
  }
  return ncclSuccess;
}

UZIP_API ncclUzipCommGetPolicy(ncclComm_t comm, ncclUzipPolicy_t* policy) {
  NCCLCHECK(CommCheck(comm, "ncclUzipCommGetPolicy", "comm"));
  NCCLCHECK(PtrCheck(policy, "ncclUzipCommGetPolicy", "policy"));
  ncclUzipPolicy_t now = {};
  struct ncclUzipComm* uzip = comm->uzip;
  if (uzip == nullptr) {
    snprintf(now.reason, sizeof(now.reason), "the communicator is not initialized yet");
  } else {
    now.enabled = uzip->enabled;
    if (!uzip->enabled) {
      snprintf(now.reason, sizeof(now.reason), "%s", uzip->reason);
    } else {
      now.links = NCCL_UZIP_LINKS_NET;
      now.types = uzip->policy.typeMask;
    }
    now.minBytes = uzip->policy.minBytes;
    now.exact = uzip->policy.exact;
    now.forced = uzip->policy.modes[ncclFuncAllReduce] == UZIP_MODE_FORCE ||
                 uzip->policy.modes[ncclFuncBroadcast] == UZIP_MODE_FORCE;
  }
  return uzipGive("ncclUzipCommGetPolicy", "policy", policy, &now, kFirstPolicy, sizeof(now));
}
