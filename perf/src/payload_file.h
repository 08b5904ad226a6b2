// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// Payload files: raw little-endian values whose type the name's suffix gives (.bf16 .f16 .f32), or safetensors.

#ifndef PERF_PAYLOAD_FILE_H_
#define PERF_PAYLOAD_FILE_H_

#include <stdint.h>

#include <string>
#include <vector>

#include "nccl_api.h"

namespace perf {

// The bytes of one run of equally typed values inside a file.
struct PayloadPart {
  DType type;
  uint64_t begin, end;  // bytes in the file
};

// A payload file in memory. Its elements are the parts' values, one part after the other.
class PayloadFile {
 public:
  // Reads the file. Throws Error that names it when it is missing, empty, of an unknown type, damaged or without float
  // values.
  explicit PayloadFile(const std::string& path);

  uint64_t elements() const;
  const std::vector<PayloadPart>& parts() const { return parts_; }
  uint64_t contentHash() const { return hash_; }

  // The elements as bits of `type`, a float type: copied where the file has that type, else rounded to nearest even.
  std::vector<uint8_t> convert(DType type) const;

 private:
  std::vector<uint8_t> bytes_;
  std::vector<PayloadPart> parts_;
  uint64_t hash_ = 0;
};

// The float tensors of a safetensors file of which `bytes` is the whole content, in the order of their data. `name` is for
// messages. Throws Error when the header contradicts itself or the file's size, or no tensor is BF16, F16, F32 or F64.
std::vector<PayloadPart> parseSafetensors(const std::string& name, const std::vector<uint8_t>& bytes);

}  // namespace perf

#endif  // PERF_PAYLOAD_FILE_H_
