// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// C face of the policy and the model, for ctypes. Strings come back in a buffer of the caller's.

#include <stdio.h>
#include <string.h>

#include "host/uzip_model.h"
#include "host/uzip_policy.h"

static void give(std::string const& text, char* out, size_t outBytes) { snprintf(out, outBytes, "%s", text.c_str()); }

extern "C" {

int shimParseKnobs(char const* enable, char const* minBytes, char const* exact, char const* proto, uzipPolicy* policy,
                   char* upstream, char* error, size_t textBytes) {
  struct uzipUpstreamProto upstreamText;
  std::string errorText;
  bool ok = uzipParseKnobs({enable, minBytes, exact, proto}, policy, &upstreamText, &errorText);
  give(upstreamText.agreed, upstream, textBytes);
  give(errorText, error, textBytes);
  return ok;
}

void shimApartProto(char const* proto, char* out, size_t textBytes) {
  uint8_t modes[UZIP_POLICY_FUNCS];
  struct uzipUpstreamProto upstream;
  std::string error;
  uzipParseProto(proto, modes, &upstream, &error);
  give(upstream.apart, out, textBytes);
}

int shimWanted(uzipPolicy const* policy) { return uzipWanted(*policy); }
uint32_t shimWord(uzipPolicy const* policy) { return uzipPolicyWord(*policy); }
uint32_t shimThreads(int64_t nthreads) { return uzipBlockThreads(nthreads); }
uint32_t shimModelWord() { return uzipModelWord(); }

int shimAgree(uint32_t const* words, int count, char* message, size_t textBytes) {
  std::string text;
  uzipAgreement agreement = uzipAgree(std::vector<uint32_t>(words, words + count), &text);
  give(text, message, textBytes);
  return agreement;
}

void shimDifference(uzipPolicy const* mine, int myRank, uzipPolicy const* other, int otherRank, char* out,
                    size_t textBytes) {
  give(uzipPolicyDifference(*mine, myRank, *other, otherRank), out, textBytes);
}

void shimRanks(int const* ranks, int count, char* out, size_t textBytes) {
  give(uzipRankList(std::vector<int>(ranks, ranks + count)), out, textBytes);
}

char const* shimErrorText(uint32_t code) { return uzipErrorText(code); }

double shimRatio(uint32_t type) { return uzipRatio(type); }
double shimCopyRatio() { return uzipCopyRatio(); }
double shimGain(uzipRing const* ring, double ratio) { return uzipGain(*ring, ratio); }
double shimTime(double simpleUs, double transferUs, double gain, int steps, int pipeOps) {
  return uzipTimeUs(simpleUs, transferUs, gain, steps, pipeOps);
}

}  // extern "C"
