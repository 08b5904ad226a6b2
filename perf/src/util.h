// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// Errors, formatting and number parsing shared by the perf programs.

#ifndef PERF_UTIL_H_
#define PERF_UTIL_H_

#include <stdint.h>

#include <stdexcept>
#include <string>

namespace perf {

// A run that failed: exit status 1.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Arguments or an environment that cannot be used: exit status 2.
struct UsageError : Error {
  using Error::Error;
};

// printf into a string.
std::string format(const char* fmt, ...) __attribute__((format(printf, 1, 2)));

// A whole decimal number in [min, max]. Throws UsageError that names `what`, the text and the range.
int64_t parseInt(const std::string& what, const std::string& text, int64_t min, int64_t max);

// A number of bytes: decimal digits, a fraction allowed, then nothing or one of K M G T (powers of 1024, either case),
// then nothing or B. Throws UsageError that names `what`.
uint64_t parseBytes(const std::string& what, const std::string& text);

// The variable's value, or an empty string where it is unset.
std::string envString(const char* name);

// 64-bit FNV-1a.
uint64_t fnv1a(const void* data, size_t bytes, uint64_t hash = 0xcbf29ce484222325ull);

// Seconds on the monotonic clock.
double nowSeconds();

}  // namespace perf

#endif  // PERF_UTIL_H_
