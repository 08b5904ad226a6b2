// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// The host's side of a communicator.

#ifndef UZIP_COMM_H_
#define UZIP_COMM_H_

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "device.h"
#include "nccl_uzip.h"

#include "../codec/uzip_format.h"
#include "../include/uzip_dev.h"
#include "uzip_model.h"
#include "uzip_policy.h"

#define UZIP_STATS_RECORDS (MAXCHANNELS * NCCL_MAX_GROUPS)

struct ncclUzipComm {
  struct uzipPolicy policy;   // this rank's; all ranks' when enabled
  struct uzipUpstreamProto upstreamProto;
  bool agreed = false;  // all ranks have this policy
  bool enabled = false;
  char reason[256] = "the communicator is not initialized yet";  // why not enabled

  std::atomic<uint64_t> padBytes{0};
  std::atomic<uint32_t> connections{0};  // framed ones

  // Mapped into the device, which writes; null unless enabled.
  struct ncclUzipGroupStats* statsHost = nullptr;
  struct ncclUzipErrorRecord* error = nullptr;
  std::atomic<bool> errorReported{false};

  std::mutex mutex;                            // guards the next
  std::vector<struct ncclUzipGroupStats> base;  // statsHost at the last reset; empty before
};

// Hands a structure out to a caller who may have been built against an older header: both begin with a size_t, the
// caller's says how much he has room for. `firstBytes` is the size in the first version. ncclInvalidArgument, and
// nothing written, below that and above `bytes`.
ncclResult_t uzipGive(char const* function, char const* what, void* to, void const* from, size_t firstBytes,
                      size_t bytes);

// Counts since the last reset.
void uzipReadStats(struct ncclUzipComm* uzip, ncclUzipStats_t* stats);

#endif  // UZIP_COMM_H_
