// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0

#include "uzip_model.h"

#include <algorithm>

#include "../codec/uzip_format.h"
#include "uzip_policy.h"

uint32_t uzipModelWord() {
  double const constants[] = {UZIP_CHANNEL_GBPS, UZIP_STEP_LATENCY_US, uzipRatio(UZIP_TYPE_BF16),
                              uzipRatio(UZIP_TYPE_F16), uzipRatio(UZIP_TYPE_F32)};
  return uzipHash(constants, sizeof(constants));
}

double uzipRatio(uint32_t type) {
  switch (type) {
    case UZIP_TYPE_BF16: return 0.68;
    case UZIP_TYPE_F16: return 0.86;
    case UZIP_TYPE_F32: return 0.84;
    default: return 1.0;
  }
}

double uzipCopyRatio() {
  return std::max({uzipRatio(UZIP_TYPE_BF16), uzipRatio(UZIP_TYPE_F16), uzipRatio(UZIP_TYPE_F32)});
}

double uzipGain(uzipRing const& ring, double ratio) {
  double const simple = ring.graphChannels * double(std::min(ring.bwIntra, ring.bwInter));
  if (simple <= 0) return 1.0;
  double uzip = ring.graphChannels * double(ring.bwInter) / ratio;
  // NCCL's search raises both bandwidths of a ring together, so equal ones say nothing of the links inside a node.
  bool const oneRankPerNode = ring.nRanks == ring.nNodes;
  if (!oneRankPerNode && ring.bwIntra != ring.bwInter) uzip = std::min(uzip, ring.graphChannels * double(ring.bwIntra));
  uzip = std::min(uzip, ring.channels * UZIP_CHANNEL_GBPS * ring.threads / 512);
  return uzip / simple;
}

double uzipTimeUs(double simpleUs, double transferUs, double gain, int ringSteps, int pipeOps) {
  return simpleUs - transferUs + transferUs / gain + double(ringSteps) * pipeOps * UZIP_STEP_LATENCY_US;
}
