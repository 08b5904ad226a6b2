// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0

#include "util.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

namespace perf {

std::string format(const char* fmt, ...) {
  va_list args, again;
  va_start(args, fmt);
  va_copy(again, args);
  int n = vsnprintf(nullptr, 0, fmt, args);
  va_end(args);
  std::string out(n > 0 ? size_t(n) : 0, '\0');
  if (n > 0) vsnprintf(&out[0], size_t(n) + 1, fmt, again);
  va_end(again);
  return out;
}

int64_t parseInt(const std::string& what, const std::string& text, int64_t min, int64_t max) {
  char* end = nullptr;
  errno = 0;
  long long v = strtoll(text.c_str(), &end, 10);
  if (text.empty() || isspace((unsigned char)text[0]) || *end != '\0' || errno != 0 || v < min || v > max) {
    throw UsageError(format("%s: '%s' is not a whole number from %lld to %lld", what.c_str(), text.c_str(),
                            (long long)min, (long long)max));
  }
  return v;
}

uint64_t parseBytes(const std::string& what, const std::string& text) {
  const char* p = text.c_str();
  char* end = nullptr;
  bool digits =
      *p >= '0' && *p <= '9' && strspn(p, "0123456789.") > 0 && !(p[0] == '0' && (p[1] == 'x' || p[1] == 'X'));
  double v = digits ? strtod(p, &end) : 0;
  uint64_t unit = 1;
  if (digits) {
    switch (*end) {
      case 'k':
      case 'K':
        unit = 1ull << 10;
        end++;
        break;
      case 'm':
      case 'M':
        unit = 1ull << 20;
        end++;
        break;
      case 'g':
      case 'G':
        unit = 1ull << 30;
        end++;
        break;
      case 't':
      case 'T':
        unit = 1ull << 40;
        end++;
        break;
      default: break;
    }
    if (*end == 'B') end++;
  }
  double bytes = v * double(unit);
  if (!digits || *end != '\0' || bytes > double(1ull << 50) || bytes != floor(bytes)) {
    throw UsageError(format("%s: '%s' is not a number of bytes; write for example 8, 64K, 1M or 2G (powers of 1024)",
                            what.c_str(), text.c_str()));
  }
  return uint64_t(bytes);
}

std::string envString(const char* name) {
  const char* v = getenv(name);
  return v ? v : "";
}

uint64_t fnv1a(const void* data, size_t bytes, uint64_t hash) {
  const unsigned char* p = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < bytes; i++) hash = (hash ^ p[i]) * 0x100000001b3ull;
  return hash;
}

double nowSeconds() {
  timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return double(ts.tv_sec) + 1e-9 * double(ts.tv_nsec);
}

}  // namespace perf
