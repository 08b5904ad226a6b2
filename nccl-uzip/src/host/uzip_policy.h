// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// What a rank wants (knobs) and what a communicator agrees on. Plain C++, nothing of NCCL: the tests compile it alone.
// docs/DESIGN.md, "Policy", has the reasons; docs/HOOKS.md says where NCCL calls it.

#ifndef UZIP_POLICY_H_
#define UZIP_POLICY_H_

#include <stddef.h>
#include <stdint.h>
#include <string>
#include <vector>

// Raised whenever a rank with this policy and one with an older policy could frame or choose differently.
#define UZIP_POLICY_VERSION 2u

#define UZIP_MIN_BYTES_DEFAULT (256u << 10)

// How a function may use UZIP.
enum uzipMode : uint8_t {
  UZIP_MODE_OFF = 0,   // never
  UZIP_MODE_AUTO = 1,  // where the model says that it pays
  UZIP_MODE_FORCE = 2  // wherever Simple would run
};

// Functions with a protocol list of their own, in the order of upstream's ncclFunc_t.
#define UZIP_POLICY_FUNCS 5
extern char const* const uzipFuncNames[UZIP_POLICY_FUNCS];

// All that ranks of a communicator must have in common. Exchanged as it is, so fixed types and no holes. A later version
// keeps the order and appends.
struct uzipPolicy {
  uint32_t version;    // UZIP_POLICY_VERSION
  uint32_t format;     // UZIP_FORMAT_VERSION
  uint32_t enable;     // NCCL_UZIP_ENABLE
  uint32_t exact;      // NCCL_UZIP_EXACT
  uint64_t minBytes;   // NCCL_UZIP_MIN_BYTES
  uint64_t functions;  // device functions in this build, a bit each
  int64_t buffBytes;   // NCCL_BUFFSIZE
  uint32_t typeMask;   // bit t: payloads of uzipType t are encoded
  uint32_t netDevice;  // 1: the network plugin moves data in its own device code
  uint32_t unpadded;   // 1: it has to use the network buffers of a parent that runs without UZIP
  uint32_t unaligned;  // 1: the Simple buffer does not start at a multiple of 16 bytes
  uint32_t threads;    // uzipBlockThreads of NCCL_NTHREADS
  uint32_t model;      // uzipModelWord
  uint8_t modes[8];    // uzipMode by function; the last three are 0
};
static_assert(sizeof(struct uzipPolicy) == 72, "uzipPolicy must have no holes");

// What a rank sends of its policy when words differ: the policy, then zeros. Fixed, so that versions with policies of
// different sizes can still name what differs.
#define UZIP_POLICY_BLOB_BYTES 128
static_assert(sizeof(struct uzipPolicy) <= UZIP_POLICY_BLOB_BYTES, "policies must fit into what is exchanged");

// Values of environment variables; null is unset. Empty counts as unset, as for NCCL's own.
struct uzipKnobs {
  char const* enable;    // NCCL_UZIP_ENABLE
  char const* minBytes;  // NCCL_UZIP_MIN_BYTES
  char const* exact;     // NCCL_UZIP_EXACT
  char const* proto;     // NCCL_PROTO
};

// NCCL_PROTO for NCCL's own parser; empty means that NCCL is to see no list.
struct uzipUpstreamProto {
  std::string agreed;  // with Simple where UZIP is forced, since UZIP rides on it
  std::string apart;   // what the user wrote without UZIP, for ranks that could not agree: their peers see no more
};

// Fills enable, exact, minBytes and modes, and `upstream` from NCCL_PROTO. False with an `error` that names variable,
// value and what is allowed.
bool uzipParseKnobs(uzipKnobs const& knobs, uzipPolicy* policy, uzipUpstreamProto* upstream, std::string* error);

// The NCCL_PROTO part of it alone:
//   UZIP            UZIP wherever Simple would run; NCCL sees Simple
//   LL,UZIP         the same beside LL; NCCL sees LL,Simple
//   Simple,UZIP     Simple, and UZIP where it pays
//   ^UZIP, ^LL,UZIP no UZIP; NCCL sees the rest of the exclusions, or no list
//   Simple, LL      no UZIP
//   ^LL             UZIP where it pays; with Simple excluded, no UZIP
// Each `function:list` entry behind a semicolon follows the same rules for that function.
bool uzipParseProto(char const* proto, uint8_t modes[UZIP_POLICY_FUNCS], uzipUpstreamProto* upstream,
                    std::string* error);

// Does any function use UZIP under this policy?
bool uzipWanted(uzipPolicy const& policy);

// Threads of a UZIP block without the warp that synchronises, for a value of NCCL_NTHREADS (0 or less is unset). Clamped
// as NCCL clamps the threads of ring Simple, but the default does not depend on bandwidths.
uint32_t uzipBlockThreads(int64_t nthreads);

// FNV-1a.
uint32_t uzipHash(void const* data, size_t bytes);

// A fingerprint of the policy, never 0: a stock NCCL of the same version sends 0.
uint32_t uzipPolicyWord(uzipPolicy const& policy);

enum uzipAgreement {
  UZIP_AGREED,
  UZIP_ABSENT,  // some rank runs without nccl-uzip
  UZIP_DIFFER   // all run nccl-uzip, with different policies; the policies themselves tell why
};
// Same result on every rank. `message` says which ranks stand apart, empty when agreed.
uzipAgreement uzipAgree(std::vector<uint32_t> const& words, std::string* message);

// The first setting in which `other` differs from `mine`, with both values; empty when they are equal.
std::string uzipPolicyDifference(uzipPolicy const& mine, int myRank, uzipPolicy const& other, int otherRank);

// "rank 3", "ranks 1-3,7 and 12 more".
std::string uzipRankList(std::vector<int> const& ranks);

// Short text for a uzipError code.
char const* uzipErrorText(uint32_t code);

#endif  // UZIP_POLICY_H_
