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

static ncclResult_t checkSize(char const* function, char const* what, size_t size, size_t expected) {
  if (size == expected) return ncclSuccess;
  WARN("%s : %s->size is %zu, must be %zu", function, what, size, expected);
  return ncclInvalidArgument;
}

// Each field of a record goes through `combine(sum, current - base)`.
template <typename Combine>
static uint64_t reduceStats(struct ncclUzipComm* uzip, uint64_t ncclUzipGroupStats::* field, Combine combine) {
  uint64_t total = 0;
  for (size_t r = 0; r < UZIP_STATS_RECORDS; r++) {
    uint64_t const now = COMPILER_ATOMIC_LOAD(&(uzip->statsHost[r].*field), std::memory_order_relaxed);
    total = combine(total, now - (uzip->base.empty() ? 0 : uzip->base[r].*field));
  }
  return total;
}

void uzipReadStats(struct ncclUzipComm* uzip, ncclUzipStats_t* stats) {
  size_t const size = stats->size;
  memset(stats, 0, sizeof(*stats));
  stats->size = size;
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
  NCCLCHECK(checkSize("ncclUzipCommGetStats", "stats", stats->size, sizeof(*stats)));
  if (comm->uzip != nullptr) {
    uzipReadStats(comm->uzip, stats);
  } else {
    memset(stats, 0, sizeof(*stats));
    stats->size = sizeof(*stats);
  }
  return ncclSuccess;
}

UZIP_API ncclUzipCommResetStats(ncclComm_t comm) {
  NCCLCHECK(CommCheck(comm, "ncclUzipCommResetStats", "comm"));
  struct ncclUzipComm* uzip = comm->uzip;
  if (uzip == nullptr || uzip->statsHost == nullptr) return ncclSuccess;
  // The device only ever adds, so the reset is a mark; nothing has to wait for kernels.
  std::lock_guard<std::mutex> lock(uzip->mutex);
  uzip->base.assign(uzip->statsHost, uzip->statsHost + UZIP_STATS_RECORDS);
  return ncclSuccess;
}

UZIP_API ncclUzipCommGetPolicy(ncclComm_t comm, ncclUzipPolicy_t* policy) {
  NCCLCHECK(CommCheck(comm, "ncclUzipCommGetPolicy", "comm"));
  NCCLCHECK(PtrCheck(policy, "ncclUzipCommGetPolicy", "policy"));
  NCCLCHECK(checkSize("ncclUzipCommGetPolicy", "policy", policy->size, sizeof(*policy)));
  memset(policy, 0, sizeof(*policy));
  policy->size = sizeof(*policy);
  struct ncclUzipComm* uzip = comm->uzip;
  if (uzip == nullptr) {
    snprintf(policy->reason, sizeof(policy->reason), "the communicator is not initialized yet");
    return ncclSuccess;
  }
  policy->enabled = uzip->enabled;
  if (!uzip->enabled) {
    snprintf(policy->reason, sizeof(policy->reason), "%s", uzip->reason);
  } else {
    policy->links = NCCL_UZIP_LINKS_NET;
    policy->types = uzip->policy.typeMask;
  }
  policy->minBytes = uzip->policy.minBytes;
  policy->exact = uzip->policy.exact;
  policy->forced = uzip->policy.modes[ncclFuncAllReduce] == UZIP_MODE_FORCE ||
                   uzip->policy.modes[ncclFuncBroadcast] == UZIP_MODE_FORCE;
  return ncclSuccess;
}
