// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a slice of any type. What is encoded fits, decodes to the same bytes, and is the same slot whatever the number of
// warps and the slice's alignment.
//
// The input's first byte picks the type, the rest is the slice.

#include "fuzz_common.h"

static constexpr uint32_t kMaxRawBytes = 1 << 17;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  uint32_t const pick = fuzzHash(data, size);
  int const type = 1 + data[0] % (UZIP_TYPE_COUNT - 1);
  uint32_t const rawBytes = uint32_t(std::min<size_t>(size - 1, kMaxRawBytes));
  uint64_t const capacity = uzip_max_wire_bytes(rawBytes);

  FlushBuffer raw(rawBytes, 1), aligned(rawBytes, 16), slot(capacity, 16), again(capacity, 16);
  memcpy(raw.data(), data + 1, rawBytes);
  memcpy(aligned.data(), data + 1, rawBytes);
  memset(slot.data(), 0x00, capacity);
  memset(again.data(), 0xff, capacity);

  uint32_t wireBytes = 0, wireAgain = 0, backoff = 0, backoffAgain = 0;
  FUZZ_CHECK(uzip_encode_slot(type, raw.data(), rawBytes, slot.data(), capacity, &wireBytes, fuzzWarps(pick),
                              &backoff) == UZIP_OK);
  FUZZ_CHECK(uzip_encode_slot(type, aligned.data(), rawBytes, again.data(), capacity, &wireAgain, fuzzWarps(pick / 5),
                              &backoffAgain) == UZIP_OK);
  raw.check(), aligned.check(), slot.check(), again.check();
  FUZZ_CHECK(wireBytes >= UZIP_HEADER_BYTES && wireBytes <= capacity);
  FUZZ_CHECK(wireBytes == wireAgain && backoff == backoffAgain);
  FUZZ_CHECK(memcmp(slot.data(), again.data(), wireBytes) == 0);
  FUZZ_CHECK(memcmp(raw.data(), data + 1, rawBytes) == 0);

  // The receiver's slot ends where the wire's bytes end.
  FlushBuffer received(wireBytes, 16), out(rawBytes, 1);
  memcpy(received.data(), slot.data(), wireBytes);
  FUZZ_CHECK(uzip_decode_slot(received.data(), wireBytes, out.data(), rawBytes, fuzzWarps(pick / 25)) == UZIP_OK);
  received.check(), out.check();
  FUZZ_CHECK(memcmp(out.data(), data + 1, rawBytes) == 0);
  return 0;
}
