// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0

#include "payload_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "json.h"
#include "numeric.h"
#include "util.h"

namespace perf {

namespace {

bool endsWith(const std::string& s, const char* suffix) {
  size_t n = strlen(suffix);
  return s.size() >= n && s.compare(s.size() - n, n, suffix) == 0;
}

std::vector<uint8_t> readFile(const std::string& path) {
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw Error(format("payload %s: %s", path.c_str(), strerror(errno)));
  struct stat st;
  bool isFile = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
  std::vector<uint8_t> bytes(isFile ? size_t(st.st_size) : 0);
  size_t done = 0;
  int err = 0;
  while (done < bytes.size()) {
    ssize_t n = read(fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      err = n < 0 ? errno : EIO;
      break;
    }
    done += size_t(n);
  }
  close(fd);
  if (!isFile) throw Error(format("payload %s: not a regular file", path.c_str()));
  if (err != 0) throw Error(format("payload %s: %s", path.c_str(), strerror(err)));
  return bytes;
}

// Bytes of a safetensors type, 0 if unknown.
uint64_t safetensorsBytes(const std::string& t) {
  if (t == "F64" || t == "I64" || t == "U64" || t == "C64") return 8;
  if (t == "F32" || t == "I32" || t == "U32") return 4;
  if (t == "F16" || t == "BF16" || t == "I16" || t == "U16") return 2;
  if (t == "I8" || t == "U8" || t == "BOOL" || t == "F8_E4M3" || t == "F8_E5M2" || t == "F8_E8M0") return 1;
  return 0;
}

bool floatType(const std::string& t, DType* type) {
  if (t == "BF16")
    *type = kBfloat16;
  else if (t == "F16")
    *type = kHalf;
  else if (t == "F32")
    *type = kFloat;
  else if (t == "F64")
    *type = kDouble;
  else
    return false;
  return true;
}

template <int From, int To>
void convertPart(const uint8_t* src, uint64_t count, uint8_t* dst) {
  using In = Elem<From>;
  using Out = Elem<To>;
  for (uint64_t i = 0; i < count; i++) {
    typename In::Bits in;
    memcpy(&in, src + i * sizeof in, sizeof in);
    typename Out::Bits out = Out::encode(In::decode(in));
    memcpy(dst + i * sizeof out, &out, sizeof out);
  }
}

template <int To>
void convertTo(DType from, const uint8_t* src, uint64_t count, uint8_t* dst) {
  if (from == To)
    memcpy(dst, src, count * sizeof(typename Elem<To>::Bits));
  else if (from == kBfloat16)
    convertPart<kBfloat16, To>(src, count, dst);
  else if (from == kHalf)
    convertPart<kHalf, To>(src, count, dst);
  else if (from == kFloat)
    convertPart<kFloat, To>(src, count, dst);
  else
    convertPart<kDouble, To>(src, count, dst);
}

}  // namespace

std::vector<PayloadPart> parseSafetensors(const std::string& name, const std::vector<uint8_t>& bytes) {
  auto fail = [&](const std::string& why) { return Error(format("payload %s: %s", name.c_str(), why.c_str())); };
  uint64_t headerBytes = 0;
  if (bytes.size() < 8) throw fail("shorter than a safetensors header");
  memcpy(&headerBytes, bytes.data(), 8);
  if (headerBytes > bytes.size() - 8 || headerBytes > (100u << 20)) {
    throw fail(format("its header claims %llu bytes, the file has %zu", (unsigned long long)headerBytes, bytes.size()));
  }
  uint64_t dataBegin = 8 + headerBytes, dataBytes = bytes.size() - dataBegin;
  JsonValue header;
  try {
    header = parseJson(std::string(bytes.begin() + 8, bytes.begin() + std::ptrdiff_t(dataBegin)));
  } catch (const Error& e) {
    throw fail(format("its safetensors header is %s", e.what()));
  }
  if (header.kind != JsonValue::kObject) throw fail("its safetensors header is not an object");
  std::vector<PayloadPart> all, floats;
  for (auto& member : header.members) {
    if (member.first == "__metadata__") continue;
    const JsonValue& t = member.second;
    const JsonValue *dtype = t.find("dtype"), *shape = t.find("shape"), *offsets = t.find("data_offsets");
    std::string tensor = "tensor '" + member.first + "' ";
    if (!dtype || dtype->kind != JsonValue::kString || !shape || shape->kind != JsonValue::kArray || !offsets ||
        offsets->kind != JsonValue::kArray || offsets->items.size() != 2 ||
        offsets->items[0].kind != JsonValue::kInteger || offsets->items[1].kind != JsonValue::kInteger) {
      throw fail(tensor + "lacks a dtype, a shape or two data_offsets");
    }
    uint64_t width = safetensorsBytes(dtype->string);
    if (width == 0) throw fail(tensor + "has the unknown dtype " + dtype->string);
    uint64_t begin = offsets->items[0].integer, end = offsets->items[1].integer;
    if (begin > end || end > dataBytes) throw fail(tensor + "has data_offsets outside the file");
    uint64_t want = width;
    for (auto& d : shape->items) {
      if (d.kind != JsonValue::kInteger || __builtin_mul_overflow(want, d.integer, &want))
        throw fail(tensor + "has an impossible shape");
    }
    if (want != end - begin) throw fail(tensor + "has data_offsets that contradict its shape");
    PayloadPart part{kFloat, dataBegin + begin, dataBegin + end};
    all.push_back(part);
    if (floatType(dtype->string, &part.type) && end > begin) floats.push_back(part);
  }
  auto byBegin = [](const PayloadPart& a, const PayloadPart& b) {
    return a.begin < b.begin || (a.begin == b.begin && a.end < b.end);
  };
  std::sort(all.begin(), all.end(), byBegin);
  for (size_t i = 1; i < all.size(); i++) {
    if (all[i].begin < all[i - 1].end) throw fail("two of its tensors overlap");
  }
  if (floats.empty()) throw fail("it has no BF16, F16, F32 or F64 tensor");
  std::sort(floats.begin(), floats.end(), byBegin);
  return floats;
}

PayloadFile::PayloadFile(const std::string& path) : bytes_(readFile(path)) {
  if (bytes_.empty()) throw Error(format("payload %s: empty", path.c_str()));
  DType raw = kDTypes;
  if (endsWith(path, ".bf16")) raw = kBfloat16;
  if (endsWith(path, ".f16")) raw = kHalf;
  if (endsWith(path, ".f32")) raw = kFloat;
  if (endsWith(path, ".safetensors")) {
    parts_ = parseSafetensors(path, bytes_);
  } else if (raw == kDTypes) {
    throw Error(
        format("payload %s: the name must end in .bf16, .f16, .f32 or .safetensors, or be one of normal uniform "
               "random zeros grad const ramp",
               path.c_str()));
  } else if (bytes_.size() % size_t(kDTypeInfo[raw].bytes) != 0) {
    throw Error(format("payload %s: %zu bytes are no whole number of %s values of %d bytes", path.c_str(),
                       bytes_.size(), kDTypeInfo[raw].name, kDTypeInfo[raw].bytes));
  } else {
    parts_.push_back({raw, 0, bytes_.size()});
  }
  hash_ = fnv1a(bytes_.data(), bytes_.size());
}

uint64_t PayloadFile::elements() const {
  uint64_t n = 0;
  for (auto& p : parts_) n += (p.end - p.begin) / uint64_t(kDTypeInfo[p.type].bytes);
  return n;
}

std::vector<uint8_t> PayloadFile::convert(DType type) const {
  if (!kDTypeInfo[type].isFloat) {
    throw UsageError(
        format("a payload file has float values, which -d %s cannot carry; choose a float type or a named "
               "payload",
               kDTypeInfo[type].name));
  }
  std::vector<uint8_t> out(elements() * uint64_t(kDTypeInfo[type].bytes));
  uint8_t* dst = out.data();
  for (auto& p : parts_) {
    uint64_t count = (p.end - p.begin) / uint64_t(kDTypeInfo[p.type].bytes);
    const uint8_t* src = bytes_.data() + p.begin;
    switch (type) {
      case kHalf: convertTo<kHalf>(p.type, src, count, dst); break;
      case kBfloat16: convertTo<kBfloat16>(p.type, src, count, dst); break;
      case kFloat: convertTo<kFloat>(p.type, src, count, dst); break;
      case kDouble: convertTo<kDouble>(p.type, src, count, dst); break;
      case kFloat8e4m3: convertTo<kFloat8e4m3>(p.type, src, count, dst); break;
      default: convertTo<kFloat8e5m2>(p.type, src, count, dst); break;
    }
    dst += count * uint64_t(kDTypeInfo[type].bytes);
  }
  return out;
}

}  // namespace perf
