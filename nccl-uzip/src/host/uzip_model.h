// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// The cost model of ring UZIP, as a correction of what NCCL's model says about ring Simple. Plain C++, nothing of
// NCCL. Its inputs are sizes, topology and policy, which are equal on all ranks; so are its results (docs/DESIGN.md,
// "Policy").

#ifndef UZIP_MODEL_H_
#define UZIP_MODEL_H_

#include <stddef.h>
#include <stdint.h>

// Raw bytes per nanosecond (GB/s) that one channel of 512 threads decodes, reduces and encodes:
// perf/codec/fused_perf, mode `reduce`, bf16 N(0, 0.02) on an H200 gives 4.1 with one channel and 3.6 with 32.
#define UZIP_CHANNEL_GBPS 3.5
// What a ring step costs beyond Simple, in microseconds: the first slice leaves only when it is encoded.
#define UZIP_STEP_LATENCY_US 4.0

// The ring of a communicator. Bandwidths in GB/s per channel, as in NCCL's topology graph.
struct uzipRing {
  int nRanks, nNodes;
  int graphChannels;  // channels that the bandwidths refer to
  int channels;  // channels that a large operation runs on
  int threads;  // per channel, without the warp that synchronises
  float bwIntra, bwInter;
};

// A fingerprint of all constants that decide, for the policy: ranks of libraries with other constants could choose
// differently.
uint32_t uzipModelWord();

// Expected size on the wire over size in memory for a uzipType, headers included; 1 for types without a codec.
double uzipRatio(uint32_t type);

// The ratio that decides for copy collectives. Their two ends may legally name different types, so it cannot depend
// on the type: it is the worst of those that are encoded.
double uzipCopyRatio();

// Bandwidth of ring UZIP over that of ring Simple; at most 1/ratio, below 1 where the codec is slower than the links.
double uzipGain(uzipRing const& ring, double ratio);

// Time in microseconds of ring UZIP, where ring Simple takes `simpleUs` of which `transferUs` are proportional to the
// size. ringSteps: hops that one byte's data makes in sequence. pipeOps: operations that NCCL's model pipelines.
double uzipTimeUs(double simpleUs, double transferUs, double gain, int ringSteps, int pipeOps);

#endif  // UZIP_MODEL_H_
