// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// A codec that knows RAW slots only and has a fault, to see that the fuzz targets find it. UZIP_FUZZ_FAULT picks it; 0 is none.

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../../nccl-uzip/src/codec/uzip_format.h"

static int const fault = atoi(getenv("UZIP_FUZZ_FAULT"));

extern "C" uint64_t uzip_max_wire_bytes(uint64_t rawBytes) { return uzipMaxWireBytes(rawBytes); }

extern "C" int uzip_encode_slot(int, const void* raw, uint32_t rawBytes, void* slot, uint64_t, uint32_t* wireBytes,
                                int nwarps, uint32_t*) {
  uzipSlotHeader h = {UZIP_MAGIC, UZIP_CODEC_RAW, 0, 0, 0, rawBytes, UZIP_HEADER_BYTES + rawBytes, 0, 0, {}};
  if (fault == 1 && nwarps == 15) h.tail[7] = 1;  // depends on the number of warps
  memcpy(slot, &h, sizeof(h));
  memcpy((char*)slot + sizeof(h), raw, rawBytes);
  *wireBytes = h.wireBytes;
  return UZIP_OK;
}

extern "C" int uzip_decode_slot(const void* slot, uint64_t slotBytes, void* raw, uint32_t rawBytes, int) {
  uzipSlotHeader h;
  uint32_t error = UZIP_OK;
  if (slotBytes < sizeof(h)) {
    error = UZIP_ERR_CAPACITY;
  } else {
    memcpy(&h, slot, sizeof(h));
    if (h.magic != UZIP_MAGIC)
      error = UZIP_ERR_MAGIC;
    else if (h.flags != 0)
      error = UZIP_ERR_POISON;
    else if (h.codec != UZIP_CODEC_RAW)
      error = UZIP_ERR_HEADER;
    else if (h.rawBytes != rawBytes)
      error = UZIP_ERR_LENGTH;
    else if (h.wireBytes != sizeof(h) + rawBytes)
      error = UZIP_ERR_HEADER;
    else if (h.wireBytes > slotBytes && fault != 2)
      error = UZIP_ERR_CAPACITY;  // 2: reads past the slot
  }
  if (error == UZIP_OK) {
    memcpy(raw, (char const*)slot + sizeof(h), rawBytes);
    if (fault == 3 && rawBytes > 1000) ((char*)raw)[1000] ^= 1;  // wrong content
    if (fault == 4) ((char volatile*)raw)[rawBytes] = 0;  // writes past the slice
  } else if (fault != 5 || error != UZIP_ERR_LENGTH) {  // 5: leaves what was there after a refusal
    memset(raw, 0, rawBytes);
  }
  return fault == 6 && error == UZIP_ERR_HEADER ? 99 : int(error);  // 6: an error number that the format does not have
}
