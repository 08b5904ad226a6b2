// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0

#include "uzip_policy.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <algorithm>
#include <sstream>

#include "../codec/uzip_format.h"

char const* const uzipFuncNames[UZIP_POLICY_FUNCS] = {"Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce"};

static char const* const protoNames[] = {"LL", "LL128", "Simple", "UZIP"};
static char const* const modeNames[] = {"off", "auto", "force"};

static bool isSet(char const* value) { return value != nullptr && value[0] != '\0'; }

// --- Knobs -------------------------------------------------------------------------------------------------

static bool parseSwitch(char const* name, char const* value, uint32_t* out, std::string* error) {
  if (!isSet(value)) return true;
  if (strcmp(value, "0") != 0 && strcmp(value, "1") != 0) {
    *error = std::string(name) + "=\"" + value + "\" is not valid; allowed are 0 and 1";
    return false;
  }
  *out = value[0] - '0';
  return true;
}

static bool parseBytes(char const* name, char const* value, uint64_t* out, std::string* error) {
  if (!isSet(value)) return true;
  // strtoull alone would take signs, spaces and what it can read of "4MB".
  char* end = nullptr;
  errno = 0;
  unsigned long long bytes = strtoull(value, &end, 10);
  if (value[0] < '0' || value[0] > '9' || *end != '\0' || errno != 0 || bytes > uint64_t(INT64_MAX)) {
    *error = std::string(name) + "=\"" + value + "\" is not valid; allowed is a number of bytes from 0 to " +
             std::to_string(INT64_MAX) + ", decimal digits only";
    return false;
  }
  *out = bytes;
  return true;
}

static std::vector<std::string> split(std::string const& text, char separator) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  std::string part;
  while (std::getline(stream, part, separator)) {
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

static bool equals(std::string const& a, char const* b) { return strcasecmp(a.c_str(), b) == 0; }

static bool contains(std::vector<std::string> const& list, char const* name) {
  return std::any_of(list.begin(), list.end(), [=](std::string const& item) { return equals(item, name); });
}

static std::string join(std::vector<std::string> const& parts, char const* separator) {
  std::string text;
  for (std::string const& part : parts) text += (text.empty() ? "" : separator) + part;
  return text;
}

// One entry of NCCL_PROTO: [function:][^]protocol,...
struct ProtoEntry {
  std::string text, function;
  bool exclude;
  std::vector<std::string> protocols;
};

static ProtoEntry splitEntry(std::string const& text) {
  ProtoEntry entry;
  entry.text = text;
  size_t const colon = text.find(':');
  if (colon != std::string::npos) entry.function = text.substr(0, colon);
  std::string const list = colon == std::string::npos ? text : text.substr(colon + 1);
  entry.exclude = list[0] == '^';
  entry.protocols = split(entry.exclude ? list.substr(1) : list, ',');
  return entry;
}

template <size_t N>
static bool known(std::string const& name, char const* const (&names)[N]) {
  return std::any_of(names, names + N, [&](char const* other) { return equals(name, other); });
}

// What is wrong with an entry; empty when nothing is.
static std::string entryProblem(ProtoEntry const& entry, bool first) {
  if (entry.function.empty() && !first) return "all entries but the first need a function, as in AllReduce:UZIP";
  if (!entry.function.empty() && !known(entry.function, uzipFuncNames)) {
    return "unknown function \"" + entry.function +
           "\"; allowed are Broadcast, Reduce, AllGather, ReduceScatter and AllReduce";
  }
  if (entry.protocols.empty()) return "the list \"" + entry.text + "\" is empty";
  for (std::string const& protocol : entry.protocols) {
    if (!known(protocol, protoNames)) {
      return "unknown protocol \"" + protocol +
             "\"; allowed are LL, LL128, Simple and UZIP, separated by commas, with ^ in front to exclude them";
    }
  }
  return "";
}

bool uzipParseProto(char const* proto, uint8_t modes[UZIP_POLICY_FUNCS], uzipUpstreamProto* upstream,
                    std::string* error) {
  std::fill(modes, modes + UZIP_POLICY_FUNCS, uint8_t(UZIP_MODE_AUTO));
  *upstream = uzipUpstreamProto();
  if (!isSet(proto)) return true;

  std::vector<std::string> agreed, apart;
  bool first = true;
  for (std::string const& text : split(proto, ';')) {
    ProtoEntry const entry = splitEntry(text);
    std::string const problem = entryProblem(entry, first);
    if (!problem.empty()) {
      *error = std::string("NCCL_PROTO=\"") + proto + "\": " + problem;
      return false;
    }
    first = false;

    bool const uzip = contains(entry.protocols, "UZIP"), simple = contains(entry.protocols, "Simple");
    uint8_t mode;
    if (entry.exclude) {
      mode = uzip || simple ? UZIP_MODE_OFF : UZIP_MODE_AUTO;
    } else {
      mode = !uzip ? UZIP_MODE_OFF : simple ? UZIP_MODE_AUTO : UZIP_MODE_FORCE;
    }
    for (int f = 0; f < UZIP_POLICY_FUNCS; f++) {
      if (entry.function.empty() || equals(entry.function, uzipFuncNames[f])) modes[f] = mode;
    }

    std::vector<std::string> protocols;
    for (std::string const& protocol : entry.protocols) {
      if (!equals(protocol, "UZIP")) protocols.push_back(protocol);
    }
    std::string const prefix = (entry.function.empty() ? "" : entry.function + ":") + (entry.exclude ? "^" : "");
    if (!protocols.empty()) apart.push_back(prefix + join(protocols, ","));
    if (mode == UZIP_MODE_FORCE) protocols.push_back("Simple");
    if (!protocols.empty()) agreed.push_back(prefix + join(protocols, ","));
  }
  upstream->agreed = join(agreed, ";");
  upstream->apart = join(apart, ";");
  return true;
}

bool uzipParseKnobs(uzipKnobs const& knobs, uzipPolicy* policy, uzipUpstreamProto* upstream, std::string* error) {
  policy->enable = 1;
  policy->exact = 0;
  policy->minBytes = UZIP_MIN_BYTES_DEFAULT;
  memset(policy->modes, 0, sizeof(policy->modes));
  return parseSwitch("NCCL_UZIP_ENABLE", knobs.enable, &policy->enable, error) &&
         parseSwitch("NCCL_UZIP_EXACT", knobs.exact, &policy->exact, error) &&
         parseBytes("NCCL_UZIP_MIN_BYTES", knobs.minBytes, &policy->minBytes, error) &&
         uzipParseProto(knobs.proto, policy->modes, upstream, error);
}

bool uzipWanted(uzipPolicy const& policy) {
  return policy.enable != 0 &&
         std::any_of(policy.modes, policy.modes + UZIP_POLICY_FUNCS, [](uint8_t m) { return m != UZIP_MODE_OFF; });
}

uint32_t uzipBlockThreads(int64_t nthreads) {
  constexpr int kWarp = 32, kMin = 2 * kWarp, kMax = 512;
  int const set = int(nthreads);  // as NCCL narrows it
  if (set <= 0 || set % kWarp != 0) return kMax;
  return uint32_t(std::clamp(set, kMin, kMax));
}

// --- Agreement ---------------------------------------------------------------------------------------------

uint32_t uzipHash(void const* data, size_t bytes) {
  uint32_t hash = 2166136261u;
  for (size_t i = 0; i < bytes; i++) hash = (hash ^ static_cast<unsigned char const*>(data)[i]) * 16777619u;
  return hash;
}

uint32_t uzipPolicyWord(uzipPolicy const& policy) {
  uint32_t const hash = uzipHash(&policy, sizeof(policy));
  return hash != 0 ? hash : 1;
}

std::string uzipRankList(std::vector<int> const& ranks) {
  constexpr size_t kMaxRuns = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  size_t runs = 0, i = 0;
  while (i < ranks.size() && runs < kMaxRuns) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) last++;
    text += (runs ? "," : "") + std::to_string(ranks[i]);
    if (last > i) text += (last > i + 1 ? "-" : ",") + std::to_string(ranks[last]);
    runs++;
    i = last + 1;
  }
  if (i < ranks.size()) text += " and " + std::to_string(ranks.size() - i) + " more";
  return text;
}

uzipAgreement uzipAgree(std::vector<uint32_t> const& words, std::string* message) {
  std::vector<int> absent, differ;
  for (size_t r = 0; r < words.size(); r++) {
    if (words[r] == 0) absent.push_back(int(r));
    if (words[r] != words[0]) differ.push_back(int(r));
  }
  message->clear();
  if (!absent.empty()) {
    *message = uzipRankList(absent) + (absent.size() == 1 ? " runs" : " run") + " an NCCL without UZIP";
    return UZIP_ABSENT;
  }
  if (!differ.empty()) {
    *message = uzipRankList(differ) + (differ.size() == 1 ? " has" : " have") + " another UZIP policy than rank 0";
    return UZIP_DIFFER;
  }
  return UZIP_AGREED;
}

static std::string modesText(uint8_t const* modes) {
  std::vector<std::string> parts;
  for (int f = 0; f < UZIP_POLICY_FUNCS; f++) {
    parts.push_back(std::string(uzipFuncNames[f]) + ":" + (modes[f] <= UZIP_MODE_FORCE ? modeNames[modes[f]] : "?"));
  }
  return join(parts, " ");
}

std::string uzipPolicyDifference(uzipPolicy const& mine, int myRank, uzipPolicy const& other, int otherRank) {
  struct Setting {
    char const* name;
    std::string mine, other;
  };
  auto number = [](auto value) { return std::to_string(value); };
  auto buffer = [](int64_t bytes) { return bytes < 0 ? std::string("default") : std::to_string(bytes); };
  Setting const settings[] = {
      {"the policy version", number(mine.version), number(other.version)},
      {"the slot format version", number(mine.format), number(other.format)},
      {"NCCL_UZIP_ENABLE", number(mine.enable), number(other.enable)},
      {"NCCL_UZIP_EXACT", number(mine.exact), number(other.exact)},
      {"NCCL_UZIP_MIN_BYTES", number(mine.minBytes), number(other.minBytes)},
      {"NCCL_PROTO (use of UZIP)", modesText(mine.modes), modesText(other.modes)},
      {"NCCL_BUFFSIZE", buffer(mine.buffBytes), buffer(other.buffBytes)},
      {"NCCL_NTHREADS", number(mine.threads), number(other.threads)},
      {"the cost model of the library", number(mine.model), number(other.model)},
      {"the set of device functions in the library", number(mine.functions), number(other.functions)},
      {"the set of encoded types", number(mine.typeMask), number(other.typeMask)},
      {"device offload by the network plugin", number(mine.netDevice), number(other.netDevice)},
      {"sharing of buffers without room for UZIP", number(mine.unpadded), number(other.unpadded)},
      {"alignment by NCCL_LL_BUFFSIZE and NCCL_LL128_BUFFSIZE", number(mine.unaligned), number(other.unaligned)},
  };
  for (Setting const& s : settings) {
    if (s.mine != s.other) {
      return std::string(s.name) + " differs: " + s.mine + " on rank " + std::to_string(myRank) + ", " + s.other +
             " on rank " + std::to_string(otherRank);
    }
  }
  return "";
}

// --- Names -------------------------------------------------------------------------------------------------

char const* uzipErrorText(uint32_t code) {
  switch (code) {
    case UZIP_OK: return "no error";
    case UZIP_ERR_MAGIC: return "it is not a UZIP slot of this format version";
    case UZIP_ERR_HEADER: return "its header contradicts itself";
    case UZIP_ERR_LENGTH: return "it stands for another number of bytes than this slice holds";
    case UZIP_ERR_CAPACITY: return "it exceeds the slot";
    case UZIP_ERR_TILE: return "a tile's kind, size or place is impossible";
    case UZIP_ERR_POISON: return "its sender met an error before";
    default: return "unknown reason";
  }
}
