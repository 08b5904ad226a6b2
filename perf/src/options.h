// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// The command line of the perf programs. docs/PERF.md describes every flag.

#ifndef PERF_OPTIONS_H_
#define PERF_OPTIONS_H_

#include <stdint.h>

#include <string>
#include <vector>

#include "payload.h"

namespace perf {

enum class Collective { kAllReduce, kBroadcast };

const char* collectiveName(Collective c);
const char* redOpName(RedOp op);

enum Average : int { kAvgRank0 = 0, kAvgMean = 1, kAvgMin = 2, kAvgMax = 3 };
constexpr const char* kAverageNames[] = {"rank0", "avg", "min", "max"};

struct Options {
  uint64_t minBytes = 32u << 20, maxBytes = 32u << 20, stepBytes = 1u << 20;
  int64_t stepFactor = 1;
  int iters = 20, aggIters = 1, warmupIters = 1, runCycles = 1, check = 1, graphLaunches = 0, timeoutSeconds = 0;
  bool blocking = false, streamNull = false, reportCpuTime = false, hash = false;
  Average average = kAvgMax;
  std::vector<RedOp> ops = {kSum};
  std::vector<DType> types = {kFloat};
  int root = 0;  // -1: all
  Dist dist = kDistNormal;
  std::string payload = "normal";  // as given; a file's path with kDistFile
  uint64_t seed = 1, offset = 0;
  std::string json, dump;
  bool help = false, version = false;
};

// Throws UsageError that names the flag, the value and what is allowed.
Options parseOptions(int argc, const char* const* argv);

// The sizes of the ladder in bytes, smallest first.
std::vector<uint64_t> sizeLadder(const Options& o);

std::string helpText(const char* program);

}  // namespace perf

#endif  // PERF_OPTIONS_H_
