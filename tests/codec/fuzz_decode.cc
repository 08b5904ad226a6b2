// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a slot. The decoder reads nothing outside the slot and writes nothing outside the slice; a refusal has a number
// that the format knows; a slice refused by its header is zeros; the number of warps changes nothing.
//
// The input is the slot, as it lies in memory: the golden slots are the corpus.

#include "fuzz_common.h"

static constexpr uint32_t kMaxRawBytes = 1 << 17;

static int decode(FlushBuffer const& slot, FlushBuffer* raw, int nwarps) {
  memset(raw->data(), 0xcc, raw->size());
  int const error = uzip_decode_slot(slot.data(), slot.size(), raw->data(), uint32_t(raw->size()), nwarps);
  slot.check();
  raw->check();
  FUZZ_CHECK(uint32_t(error) <= UZIP_ERR_POISON);
  if (error != UZIP_OK && error != UZIP_ERR_TILE) {
    for (size_t i = 0; i < raw->size(); i++) FUZZ_CHECK(raw->data()[i] == 0);
  }
  return error;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uint32_t const pick = fuzzHash(data, size);
  FlushBuffer slot(size, 16);
  memcpy(slot.data(), data, size);

  // What the receiver expects: mostly what the header says, so that the slot's inside is reached.
  uint32_t rawBytes = 1;
  if (size >= 12) memcpy(&rawBytes, data + 8, 4);
  rawBytes = std::min(std::max(rawBytes, 1u), kMaxRawBytes);
  {
    FlushBuffer raw(rawBytes, 1), again(rawBytes, 16);
    int const error = decode(slot, &raw, fuzzWarps(pick));
    int const errorAgain = decode(slot, &again, fuzzWarps(pick / 5));
    FUZZ_CHECK(error == errorAgain);
    FUZZ_CHECK(memcmp(raw.data(), again.data(), rawBytes) == 0);
  }
  if (pick % 8 == 0) {
    FlushBuffer raw(rawBytes + 1, 1);
    FUZZ_CHECK(decode(slot, &raw, 1) != UZIP_OK);
  }
  FUZZ_CHECK(memcmp(slot.data(), data, size) == 0);
  return 0;
}
