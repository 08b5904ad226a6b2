// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// What the fuzz targets share: the codec's C interface, buffers flush against unreadable pages, and a driver for compilers
// without libFuzzer that replays files and mutates them.

#ifndef UZIP_FUZZ_COMMON_H_
#define UZIP_FUZZ_COMMON_H_

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define UZIP_FUZZ_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define UZIP_FUZZ_ASAN 1
#endif
#endif
#if defined(UZIP_FUZZ_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#include "../../nccl-uzip/src/codec/uzip_format.h"

extern "C" {
int uzip_encode_slot(int type, const void* raw, uint32_t rawBytes, void* slot, uint64_t capacity, uint32_t* wireBytes,
                     int nwarps, uint32_t* backoff);
int uzip_decode_slot(const void* slot, uint64_t slotBytes, void* raw, uint32_t rawBytes, int nwarps);
uint64_t uzip_max_wire_bytes(uint64_t rawBytes);
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
}

static void (*fuzzOnFailure)() = nullptr;

// A property that must hold whatever the input is. Aborts, which every fuzzer takes for a find.
#define FUZZ_CHECK(cond)                                                        \
  do {                                                                          \
    if (!(cond)) {                                                              \
      fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #cond); \
      if (fuzzOnFailure != nullptr) fuzzOnFailure();                            \
      abort();                                                                  \
    }                                                                           \
  } while (0)

// `size` bytes that end at an unreadable page, or, when `align` asks for it, fewer than `align` bytes before one; those bytes are
// poisoned for AddressSanitizer. An unreadable page also lies before the buffer's first page.
class FlushBuffer {
 public:
  FlushBuffer(size_t size, size_t align) : size_(size) {
    size_t const page = size_t(sysconf(_SC_PAGESIZE));
    size_t const inner = (std::max<size_t>(size, 1) + page - 1) / page * page;
    mapped_ = inner + 2 * page;
    base_ = (uint8_t*)mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    FUZZ_CHECK(base_ != MAP_FAILED);
    FUZZ_CHECK(mprotect(base_, page, PROT_NONE) == 0 && mprotect(base_ + page + inner, page, PROT_NONE) == 0);
    begin_ = base_ + page;
    end_ = begin_ + inner;
    data_ = end_ - (size + align - 1) / align * align;
    memset(begin_, 0xa7, inner);
    poison(begin_, size_t(data_ - begin_));
    poison(data_ + size, size_t(end_ - data_ - size));
  }
  ~FlushBuffer() {
    unpoison(begin_, size_t(end_ - begin_));
    munmap(base_, mapped_);
  }
  FlushBuffer(FlushBuffer const&) = delete;
  FlushBuffer& operator=(FlushBuffer const&) = delete;

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

  // Without AddressSanitizer: nothing around the buffer was written.
  void check() const {
#if !defined(UZIP_FUZZ_ASAN)
    for (uint8_t const* p = begin_; p != data_; p++) FUZZ_CHECK(*p == 0xa7);
    for (uint8_t const* p = data_ + size_; p != end_; p++) FUZZ_CHECK(*p == 0xa7);
#endif
  }

 private:
  static void poison(uint8_t* at, size_t n) {
#if defined(UZIP_FUZZ_ASAN)
    ASAN_POISON_MEMORY_REGION(at, n);
#else
    (void)at, (void)n;
#endif
  }
  static void unpoison(uint8_t* at, size_t n) {
#if defined(UZIP_FUZZ_ASAN)
    ASAN_UNPOISON_MEMORY_REGION(at, n);
#else
    (void)at, (void)n;
#endif
  }

  size_t size_, mapped_;
  uint8_t *base_, *begin_, *end_, *data_;
};

// Numbers of warps that kernels run with: one, some, all but the posting one, all.
static inline int fuzzWarps(uint32_t pick) {
  static int const kWarps[] = {1, 2, 4, 15, 16};
  return kWarps[pick % 5];
}

// A number that depends on every byte, to draw choices from without taking bytes off the input.
static inline uint32_t fuzzHash(uint8_t const* data, size_t size) {
  uint32_t h = 2166136261u;
  for (size_t i = 0; i < size; i++) h = (h ^ data[i]) * 16777619u;
  return h ^ (h >> 15);
}

#if !defined(UZIP_LIBFUZZER)

namespace fuzz {

using Input = std::vector<uint8_t>;

static void collect(std::string const& path, std::vector<std::string>* files) {
  struct stat st;
  if (stat(path.c_str(), &st) != 0) {
    fprintf(stderr, "%s: no such file or folder\n", path.c_str());
    exit(2);
  }
  if (!S_ISDIR(st.st_mode)) {
    files->push_back(path);
    return;
  }
  DIR* dir = opendir(path.c_str());
  if (dir == nullptr) {
    fprintf(stderr, "%s: cannot be read\n", path.c_str());
    exit(2);
  }
  std::vector<std::string> names;
  while (dirent* entry = readdir(dir)) {
    if (entry->d_name[0] != '.') names.push_back(entry->d_name);
  }
  closedir(dir);
  std::sort(names.begin(), names.end());
  for (std::string const& name : names) collect(path + "/" + name, files);
}

static Input readFile(std::string const& path) {
  FILE* file = fopen(path.c_str(), "rb");
  if (file == nullptr) {
    fprintf(stderr, "%s: cannot be read\n", path.c_str());
    exit(2);
  }
  Input data;
  uint8_t buffer[65536];
  while (size_t n = fread(buffer, 1, sizeof(buffer), file)) data.insert(data.end(), buffer, buffer + n);
  fclose(file);
  return data;
}

// Changes an input in one to eight places. Half of the changes hit the first 256 bytes, where headers and tables are.
static void mutate(Input* input, std::mt19937_64* rng) {
  auto below = [&](uint64_t n) { return n == 0 ? 0 : (*rng)() % n; };
  static uint32_t const kNumbers[] = {
      0,   1,    2,    3,      4,      31,     32,     33,     63,         64,         66,         255,       256,
      257, 1023, 1024, 0x1001, 0x2001, 0x1100, 0x0fff, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff, 0xfffffffc};
  for (uint64_t changes = 1 + below(8); changes > 0; changes--) {
    if (input->empty()) input->push_back(0);
    size_t const at = below(2) == 0 ? below(std::min<size_t>(input->size(), 256)) : below(input->size());
    switch (below(8)) {
      case 0: (*input)[at] ^= uint8_t(1u << below(8)); break;
      case 1: (*input)[at] = uint8_t((*rng)()); break;
      case 2: {  // a number that is likely to be a limit
        uint32_t number = kNumbers[below(sizeof(kNumbers) / sizeof(kNumbers[0]))];
        size_t const bytes = below(2) == 0 ? 2 : 4, where = at & ~(bytes - 1);
        if (where + bytes <= input->size()) memcpy(input->data() + where, &number, bytes);
        break;
      }
      case 3: {  // a number near what is there
        size_t const bytes = below(2) == 0 ? 2 : 4, where = at & ~(bytes - 1);
        if (where + bytes > input->size()) break;
        uint32_t number = 0;
        memcpy(&number, input->data() + where, bytes);
        number += uint32_t(below(17)) - 8;
        memcpy(input->data() + where, &number, bytes);
        break;
      }
      case 4: {  // a run of one byte
        size_t const n = 1 + below(std::min<size_t>(256, input->size() - at));
        memset(input->data() + at, below(2) == 0 ? 0xff : int((*rng)() & 0xff), n);
        break;
      }
      case 5: {  // bytes from elsewhere
        size_t const n = 1 + below(std::min<size_t>(256, input->size() - at)), from = below(input->size() - n + 1);
        memmove(input->data() + at, input->data() + from, n);
        break;
      }
      case 6: input->resize(below(4) == 0 ? at : input->size() - below(std::min<size_t>(16, input->size()))); break;
      default: input->insert(input->end(), below(64), uint8_t((*rng)())); break;
    }
  }
}

static Input current;
static char const* findPath = "fuzz-find";

// Keeps the input that broke something; sanitizers call it before they end the process.
static void saveFind() {
  FILE* file = fopen(findPath, "wb");
  if (file == nullptr) return;
  fwrite(current.data(), 1, current.size(), file);
  fclose(file);
  fprintf(stderr, "the input is in %s\n", findPath);
}

static void run(Input const& input) {
  current = input;
  LLVMFuzzerTestOneInput(input.data(), input.size());
}

}  // namespace fuzz

int main(int argc, char** argv) {
  uint64_t runs = 0, seed = 1;
  std::vector<std::string> files;
  for (int i = 1; i < argc; i++) {
    std::string const arg = argv[i];
    char const* value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (arg == "--runs" || arg == "--seed" || arg == "--find") {
      char* end = nullptr;
      if (value == nullptr || (arg != "--find" && (strtoull(value, &end, 10), *value == 0 || *end != 0))) {
        fprintf(stderr, "%s needs a value\n", arg.c_str());
        return 2;
      }
      if (arg == "--runs") runs = strtoull(value, nullptr, 10);
      if (arg == "--seed") seed = strtoull(value, nullptr, 10);
      if (arg == "--find") fuzz::findPath = value;
      i++;
    } else if (arg[0] == '-') {
      fprintf(stderr, "usage: %s [--runs N] [--seed S] [--find FILE] FILE|FOLDER...\n", argv[0]);
      return 2;
    } else {
      fuzz::collect(arg, &files);
    }
  }
  if (files.empty()) {
    fprintf(stderr, "no inputs: name files or folders\n");
    return 2;
  }
  fuzzOnFailure = fuzz::saveFind;
#if defined(UZIP_FUZZ_ASAN)
  __sanitizer_set_death_callback(fuzz::saveFind);
#endif
  std::vector<fuzz::Input> corpus;
  for (std::string const& file : files) corpus.push_back(fuzz::readFile(file));
  for (fuzz::Input const& input : corpus) fuzz::run(input);
  std::mt19937_64 rng(seed);
  for (uint64_t n = 0; n < runs; n++) {
    fuzz::Input input = corpus[rng() % corpus.size()];
    fuzz::mutate(&input, &rng);
    fuzz::run(input);
  }
  printf("%zu files, %llu mutations\n", files.size(), (unsigned long long)runs);
  return 0;
}

#endif  // !UZIP_LIBFUZZER

#endif  // UZIP_FUZZ_COMMON_H_
