// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// The wire format of a UZIP slot, as docs/FORMAT.md describes it: constants and size arithmetic only.
// Host and device code, the warp emulator and the tests all include this file; it depends on nothing but <stdint.h>.

#ifndef UZIP_FORMAT_H_
#define UZIP_FORMAT_H_

#include <stdint.h>

#if defined(__CUDACC__)
#define UZIP_HD __host__ __device__ __forceinline__
#else
#define UZIP_HD inline
#endif

// Little endian bytes 'U' 'Z' and the format version. A change that an older decoder would misread raises the version.
#define UZIP_FORMAT_VERSION 1u
#define UZIP_MAGIC (0x00005a55u | (UZIP_FORMAT_VERSION << 16))

// uzipSlotHeader::codec
enum : uint8_t {
  UZIP_CODEC_RAW = 0,    // payload is the bytes themselves
  UZIP_CODEC_LEVELS = 1  // exponents in levels of 2, 2 and 3 bits, everything else as it is
};

// uzipSlotHeader::flags
enum : uint8_t {
  UZIP_SLOT_POISON = 0x01  // the sender met an error; rawBytes of zeros stand for the payload, and nothing follows
};

// Float types a codec knows. The numbers are part of the format.
enum uzipType : uint8_t {
  UZIP_TYPE_NONE = 0,
  UZIP_TYPE_BF16 = 1,
  UZIP_TYPE_F16 = 2,
  UZIP_TYPE_F32 = 3,
  UZIP_TYPE_COUNT
};

// A slot begins with this header at offset 0. Payload slots are 16-byte aligned in memory.
struct uzipSlotHeader {
  uint32_t magic;      // UZIP_MAGIC
  uint8_t codec;       // UZIP_CODEC_*
  uint8_t type;        // uzipType; UZIP_TYPE_NONE with UZIP_CODEC_RAW
  uint8_t flags;       // UZIP_SLOT_*
  uint8_t tailBytes;   // rawBytes % element size; these bytes sit in `tail`. 0 with UZIP_CODEC_RAW
  uint32_t rawBytes;   // bytes the slot stands for
  uint32_t wireBytes;  // bytes of the slot, this header included; what the transport carries
  uint32_t varBytes;   // bytes of the variable section, a multiple of 4; 0 with UZIP_CODEC_RAW
  uint32_t reserved;   // 0
  uint8_t tail[8];     // bytes behind the last whole element, zero padded
};
#define UZIP_HEADER_BYTES 32u

// Values in a tile. A tile is what one warp encodes at a time: 32 values a lane.
#define UZIP_TILE_VALUES 1024u
#define UZIP_TILES_PER_GROUP 32u

// A tile table entry (uint16_t): bits 0..11 size of the tile's variable part in 4-byte words, bits 12..15 its kind.
enum : uint16_t {
  UZIP_TILE_LEVELS =
      0,  // head (2 words), planes of level 1 (2 x 32 words), 2 (2 x ceil(n2/32)), 3 (3 x ceil(n3/32)), bytes of n4
  UZIP_TILE_RAW = 1,     // uzipRawWords(type) words: the exponents as they are, bytes or (f16) 5 bit planes
  UZIP_TILE_CONST = 2    // 1 word: every exponent is its low byte
};
#define UZIP_TILE_WORDS_MASK 0x0fffu
#define UZIP_TILE_KIND_SHIFT 12
#define UZIP_TILE_MAX_WORDS 256u
#define UZIP_TILE_HEAD_WORDS 2u
// Ranked exponents of a LEVELS tile: 3 in level 1, 3 in level 2, 7 in level 3; the rest are bytes.
#define UZIP_RANKS 13u

// Bytes of one element.
UZIP_HD constexpr uint32_t uzipElementBytes(uint32_t type) {
  return type == UZIP_TYPE_F32 ? 4u : type == UZIP_TYPE_NONE ? 1u : 2u;
}

// Bytes of a tile's fixed part: everything of its values but the exponents.
//   bf16: 1024 bytes (mantissa << 1 | sign)
//   f16:  1024 low bytes (mantissa bits 6..0 and sign), then 3 bit planes of 32 words (mantissa bits 7..9)
//   f32:  1024 low halves (mantissa bits 14..0 and sign), then 1024 bytes (mantissa bits 15..22)
UZIP_HD constexpr uint32_t uzipFixedBytes(uint32_t type) {
  return type == UZIP_TYPE_BF16 ? 1024u : type == UZIP_TYPE_F16 ? 1408u : type == UZIP_TYPE_F32 ? 3072u : 0u;
}

// Words of a RAW tile's exponents: with the fixed part no more than the values themselves.
UZIP_HD constexpr uint32_t uzipRawWords(uint32_t type) { return type == UZIP_TYPE_F16 ? 160u : 256u; }

// Section offsets of a slot of UZIP_CODEC_LEVELS that holds `tiles` tiles.
UZIP_HD uint32_t uzipOffGroups() {
  return UZIP_HEADER_BYTES;
}  // uint32_t per 32 tiles: where the group's variable parts begin
UZIP_HD uint32_t uzipOffTable(uint32_t tiles) {
  return UZIP_HEADER_BYTES + 4u * ((tiles + 31u) / 32u);
}  // uint16_t per tile
UZIP_HD uint32_t uzipOffFixed(uint32_t tiles) { return (uzipOffTable(tiles) + 2u * tiles + 15u) & ~15u; }
UZIP_HD uint32_t uzipOffVar(uint32_t tiles, uint32_t type) {
  return uzipOffFixed(tiles) + tiles * uzipFixedBytes(type);
}

UZIP_HD uint32_t uzipTiles(uint32_t elems) { return (elems + UZIP_TILE_VALUES - 1u) / UZIP_TILE_VALUES; }

// The most bytes that a slot for `rawBytes` of any type can take: every tile raw, and the last one padded to a whole tile.
UZIP_HD uint64_t uzipMaxWireBytes(uint64_t rawBytes) {
  uint64_t tiles = rawBytes / 2048u + 1u;  // two-byte elements make the most tiles
  uint64_t v = UZIP_HEADER_BYTES + 4u * ((tiles + 31u) / 32u) + 2u * tiles + 15u + rawBytes + 4096u;
  return (v + 15u) & ~uint64_t(15);
}

// What a step's stride exceeds its payload by, so that a slice of one step or more always fits (docs/DESIGN.md, "Slot geometry").
UZIP_HD uint32_t uzipStepPad(uint32_t stepBytes) {
  return uint32_t((uzipMaxWireBytes(stepBytes) - stepBytes + 127u) & ~uint64_t(127));
}

// Why a slot was refused. Part of the error record, stable.
enum uzipError : uint32_t {
  UZIP_OK = 0,
  UZIP_ERR_MAGIC = 1,     // not a slot, or another format version
  UZIP_ERR_HEADER = 2,    // codec, type, flags or counts that contradict each other
  UZIP_ERR_LENGTH = 3,    // rawBytes is not what this slice must hold
  UZIP_ERR_CAPACITY = 4,  // wireBytes exceeds the slot, or the slot it is to be forwarded to
  UZIP_ERR_TILE = 5,      // a tile's kind, size or place is impossible
  UZIP_ERR_POISON = 6     // an upstream rank reported an error
};

#endif  // UZIP_FORMAT_H_
