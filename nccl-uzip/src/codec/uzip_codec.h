// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// The tile codec: a warp encodes or decodes the exponents of 1024 values, and splits values into exponents and the rest.
// Kernel half only: no allocation, no logging, nothing of NCCL. docs/FORMAT.md specifies the bytes; compiled by nvcc for the
// GPU and by g++ against the warp emulator.
//
// Cost model (lane-instructions a value, counted on sm_90): split 2, ranks 4, codes 3, planes 1, compaction 4, lower levels 3.
// Values are handled four to a 32-bit word wherever a byte suffices, so that one PRMT looks four of them up.

#ifndef UZIP_CODEC_H_
#define UZIP_CODEC_H_

#include "uzip_ptx.h"

// Scratch of one warp in shared memory: what a tile's variable part is staged in, and the exponents that go down a level.
struct alignas(16) UzipWarpScratch {
  uint32_t stage[UZIP_TILE_RAW_WORDS + 4];
  uint8_t down[UZIP_TILE_VALUES + 16];  // 16 more: the decoder reads one past the last exponent, and drops it
};

// --- Splitting values ----------------------------------------------------------------------------------------------------
//
// A lane holds 8 values of each of the tile's 4 chunks. `split` turns the 8 values of chunk k into two words of exponents and
// stores the rest into the tile's fixed part; `load` and `merge` are its inverse, in two parts so that loads can be issued early.
// Each value is first rotated left by one bit, so that the exponent is on top and the sign at the bottom.

template <int Type>
struct UzipFront;

template <>
struct UzipFront<UZIP_TYPE_BF16> {
  static constexpr int Words = 4;  // 32-bit words of 8 values
  struct Rest {
    UzipPair low;
  };
  struct TileState {};

  UZIP_DEV static uint32_t rotate(uint32_t w) { return ((w << 1) & 0xfffefffeu) | ((w >> 15) & 0x00010001u); }
  UZIP_DEV static uint32_t rotateBack(uint32_t r) { return ((r >> 1) & 0x7fff7fffu) | ((r << 15) & 0x80008000u); }

  UZIP_DEV static void split(TileState&, int k, uint32_t lane, uint32_t const* raw, uint32_t* exps, Rest* rest) {
    uint32_t r[4];
    UZIP_UNROLL
    for (int i = 0; i < 4; i++) r[i] = rotate(raw[i]);
    exps[0] = __byte_perm(r[0], r[1], 0x7531);
    exps[1] = __byte_perm(r[2], r[3], 0x7531);
    rest->low.w[0] = __byte_perm(r[0], r[1], 0x6420);
    rest->low.w[1] = __byte_perm(r[2], r[3], 0x6420);
  }
  UZIP_DEV static void merge(TileState const&, int k, uint32_t const* exps, Rest const& rest, uint32_t* raw) {
    raw[0] = rotateBack(__byte_perm(rest.low.w[0], exps[0], 0x5140));
    raw[1] = rotateBack(__byte_perm(rest.low.w[0], exps[0], 0x7362));
    raw[2] = rotateBack(__byte_perm(rest.low.w[1], exps[1], 0x5140));
    raw[3] = rotateBack(__byte_perm(rest.low.w[1], exps[1], 0x7362));
  }
  UZIP_DEV static void store(char* fixed, int k, uint32_t lane, Rest const& rest) {
    uzipStorePair(fixed + k * 256 + lane * 8, rest.low);
  }
  UZIP_DEV static void load(char const* fixed, int k, uint32_t lane, Rest* rest) {
    rest->low = uzipLoadPair(fixed + k * 256 + lane * 8);
  }
  UZIP_DEV static void storeState(char*, uint32_t, TileState const&) {}
  UZIP_DEV static void loadState(char const*, uint32_t, TileState*) {}
};

template <>
struct UzipFront<UZIP_TYPE_F16> {
  static constexpr int Words = 4;
  struct Rest {
    UzipPair low;
  };
  struct TileState {
    uint32_t plane[3] = {0, 0, 0};  // bits 8..10 of the rotated values
  };

  UZIP_DEV static void split(TileState& state, int k, uint32_t lane, uint32_t const* raw, uint32_t* exps, Rest* rest) {
    UZIP_UNROLL
    for (int h = 0; h < 2; h++) {
      uint32_t a = UzipFront<UZIP_TYPE_BF16>::rotate(raw[2 * h]);
      uint32_t b = UzipFront<UZIP_TYPE_BF16>::rotate(raw[2 * h + 1]);
      uint32_t high = __byte_perm(a, b, 0x7531);
      exps[h] = (high >> 3) & 0x1f1f1f1fu;
      rest->low.w[h] = __byte_perm(a, b, 0x6420);
      UZIP_UNROLL
      for (int p = 0; p < 3; p++) state.plane[p] |= ((high >> p) & 0x01010101u) << (2 * k + h);
    }
  }
  UZIP_DEV static void merge(TileState const& state, int k, uint32_t const* exps, Rest const& rest, uint32_t* raw) {
    UZIP_UNROLL
    for (int h = 0; h < 2; h++) {
      uint32_t high = (exps[h] & 0x1f1f1f1fu) << 3;
      UZIP_UNROLL
      for (int p = 0; p < 3; p++) high |= ((state.plane[p] >> (2 * k + h)) & 0x01010101u) << p;
      raw[2 * h] = UzipFront<UZIP_TYPE_BF16>::rotateBack(__byte_perm(rest.low.w[h], high, 0x5140));
      raw[2 * h + 1] = UzipFront<UZIP_TYPE_BF16>::rotateBack(__byte_perm(rest.low.w[h], high, 0x7362));
    }
  }
  UZIP_DEV static void store(char* fixed, int k, uint32_t lane, Rest const& rest) {
    uzipStorePair(fixed + k * 256 + lane * 8, rest.low);
  }
  UZIP_DEV static void load(char const* fixed, int k, uint32_t lane, Rest* rest) {
    rest->low = uzipLoadPair(fixed + k * 256 + lane * 8);
  }
  UZIP_DEV static void storeState(char* fixed, uint32_t lane, TileState const& state) {
    UZIP_UNROLL
    for (int p = 0; p < 3; p++) uzipStoreWord(fixed + 1024 + p * 128 + lane * 4, state.plane[p]);
  }
  UZIP_DEV static void loadState(char const* fixed, uint32_t lane, TileState* state) {
    UZIP_UNROLL
    for (int p = 0; p < 3; p++) state->plane[p] = uzipLoadWord(fixed + 1024 + p * 128 + lane * 4);
  }
};

template <>
struct UzipFront<UZIP_TYPE_F32> {
  static constexpr int Words = 8;
  struct Rest {
    UzipQuad low;   // bits 0..15 of the rotated values
    UzipPair high;  // bits 16..23
  };
  struct TileState {};

  UZIP_DEV static void split(TileState&, int k, uint32_t lane, uint32_t const* raw, uint32_t* exps, Rest* rest) {
    UZIP_UNROLL
    for (int h = 0; h < 2; h++) {
      uint32_t r[4];
      UZIP_UNROLL
      for (int i = 0; i < 4; i++) r[i] = __funnelshift_l(raw[4 * h + i], raw[4 * h + i], 1);
      rest->low.w[2 * h] = __byte_perm(r[0], r[1], 0x5410);
      rest->low.w[2 * h + 1] = __byte_perm(r[2], r[3], 0x5410);
      uint32_t a = __byte_perm(r[0], r[1], 0x7632);  // high halves
      uint32_t b = __byte_perm(r[2], r[3], 0x7632);
      rest->high.w[h] = __byte_perm(a, b, 0x6420);
      exps[h] = __byte_perm(a, b, 0x7531);
    }
  }
  UZIP_DEV static void merge(TileState const&, int k, uint32_t const* exps, Rest const& rest, uint32_t* raw) {
    UZIP_UNROLL
    for (int h = 0; h < 2; h++) {
      uint32_t a = __byte_perm(rest.high.w[h], exps[h], 0x5140);
      uint32_t b = __byte_perm(rest.high.w[h], exps[h], 0x7362);
      uint32_t r[4];
      r[0] = __byte_perm(rest.low.w[2 * h], a, 0x5410);
      r[1] = __byte_perm(rest.low.w[2 * h], a, 0x7632);
      r[2] = __byte_perm(rest.low.w[2 * h + 1], b, 0x5410);
      r[3] = __byte_perm(rest.low.w[2 * h + 1], b, 0x7632);
      UZIP_UNROLL
      for (int i = 0; i < 4; i++) raw[4 * h + i] = __funnelshift_r(r[i], r[i], 1);
    }
  }
  UZIP_DEV static void store(char* fixed, int k, uint32_t lane, Rest const& rest) {
    uzipStoreQuad(fixed + k * 512 + lane * 16, rest.low);
    uzipStorePair(fixed + 2048 + k * 256 + lane * 8, rest.high);
  }
  UZIP_DEV static void load(char const* fixed, int k, uint32_t lane, Rest* rest) {
    rest->low = uzipLoadQuad(fixed + k * 512 + lane * 16);
    rest->high = uzipLoadPair(fixed + 2048 + k * 256 + lane * 8);
  }
  UZIP_DEV static void storeState(char*, uint32_t, TileState const&) {}
  UZIP_DEV static void loadState(char const*, uint32_t, TileState*) {}
};

// --- Exponents -----------------------------------------------------------------------------------------------------------

// Four bytes 0..15 packed into the four low nibbles, which is what PRMT takes as selectors.
UZIP_DEV uint32_t uzipNibbles(uint32_t bytes) {
  uint32_t t = bytes | (bytes >> 4);
  return __byte_perm(t, 0, 0x4420);
}

// Code of a rank, all levels in one byte: bits 0..1 level 1, 2..3 level 2, 4..6 level 3. 0x7f goes all the way down.
UZIP_DEV uint32_t uzipCodeOfRank(uint32_t rank) {
  return rank < 3 ? rank : rank < 6 ? 0x03u | ((rank - 3) << 2) : rank < UZIP_RANKS ? 0x0fu | ((rank - 6) << 4) : 0x7fu;
}

// Distances from the tile's largest exponent fall into 16 bins: 0..14, and bin 15 for exponent 0. Ranks the bins by their
// counts in a sample of 256 values (words 0 and 5 of each lane); ties go to the larger exponent.
// `head` gets W and the distances in rank order, `codes` the code byte of each bin.
UZIP_DEV void uzipRankBins(uint32_t lane, uint32_t binsA, uint32_t binsB, uint32_t largest, uint32_t* head, uint32_t* codes) {
  uint64_t counts = 0;  // 16 fields of 4 bits; 8 samples a lane
  UZIP_UNROLL
  for (int b = 0; b < 4; b++) {
    counts += uint64_t(1) << (4 * ((binsA >> (8 * b)) & 15));
    counts += uint64_t(1) << (4 * ((binsB >> (8 * b)) & 15));
  }
  uint32_t sums[8];  // sums[2k + (bin >= 8)]: bins k and k + 4 (+ 8) in the halves
  UZIP_UNROLL
  for (int k = 0; k < 4; k++) {
    sums[2 * k] = uzipWarpAdd(uint32_t(counts >> (4 * k)) & 0x000f000fu);
    sums[2 * k + 1] = uzipWarpAdd(uint32_t(counts >> (32 + 4 * k)) & 0x000f000fu);
  }
  uint32_t bin = lane & 15;
  uint32_t mine = 0;
  UZIP_UNROLL
  for (int k = 0; k < 4; k++) {
    uint32_t low = sums[2 * k], high = sums[2 * k + 1];
    if (int(bin & 3) == k) mine = low ^ ((low ^ high) & (0u - (bin >> 3)));
  }
  mine = ((bin & 4) ? mine >> 16 : mine & 0xffffu) * 16 + (15 - bin);
  uint32_t rank = 0;
  UZIP_UNROLL
  for (int k = 0; k < 4; k++) {
    UZIP_UNROLL
    for (int g = 0; g < 2; g++) {
      rank += (sums[2 * k + g] & 0xffffu) * 16 + (15 - (k + 8 * g)) > mine;
      rank += (sums[2 * k + g] >> 16) * 16 + (15 - (k + 4 + 8 * g)) > mine;
    }
  }
  uint64_t nibble = lane < 16 && rank < UZIP_RANKS ? uint64_t(bin) << (8 + 4 * rank) : 0;
  head[0] = uzipWarpOr(uint32_t(nibble)) | largest;
  head[1] = uzipWarpOr(uint32_t(nibble >> 32));
  uint32_t code = uzipCodeOfRank(rank) << (8 * (lane & 3));
  UZIP_UNROLL
  for (int q = 0; q < 4; q++) codes[q] = uzipWarpOr(int(bin >> 2) == q ? code : 0);
}

// Encodes the exponents of a tile, eight words a lane, into scratch->stage. Returns the tile's table entry. Warp-collective;
// the stage may be read by all lanes on return.
UZIP_DEV uint32_t uzipEncodeTile(uint32_t lane, uint32_t const (&exps)[8], UzipWarpScratch* scratch) {
  uint32_t* stage = scratch->stage;
  uint8_t* down = scratch->down;

  uint32_t most = 0;
  UZIP_UNROLL
  for (int i = 0; i < 8; i++) {
    most = __vmaxu2(most, exps[i] & 0x00ff00ffu);
    most = __vmaxu2(most, (exps[i] >> 8) & 0x00ff00ffu);
  }
  most = most >> 16 > (most & 0xffffu) ? most >> 16 : most & 0xffffu;
  uint32_t const largest = uzipWarpMax(most);

  // Distances from the largest. No byte borrows from its neighbour, since none exceeds the largest.
  uint32_t dist[8];
  uint32_t any = 0, far = 0;
  UZIP_UNROLL
  for (int i = 0; i < 8; i++) {
    dist[i] = largest * 0x01010101u - exps[i];
    any |= dist[i];
    far |= (dist[i] | ((dist[i] & 0x0f0f0f0fu) + 0x01010101u)) & 0xf0f0f0f0u;
  }
  bool const farAny = __any_sync(kUzipFullWarp, far != 0);
  __syncwarp();  // earlier readers of the scratch are done
  if (!__any_sync(kUzipFullWarp, any != 0)) {
    if (lane == 0) stage[0] = largest;
    __syncwarp();
    return (UZIP_TILE_CONST << UZIP_TILE_KIND_SHIFT) | 1u;
  }

  // Bins. Distances of 15 and more share bin 15, which stands for exponent 0; any other exponent there goes all the way down.
  uint32_t outside[8];
  UZIP_UNROLL
  for (int i = 0; i < 8; i++) outside[i] = 0;
  if (farAny) {
    UZIP_UNROLL
    for (int i = 0; i < 8; i++) {
      uint32_t h = (dist[i] | ((dist[i] & 0x0f0f0f0fu) + 0x01010101u)) & 0xf0f0f0f0u;  // nonzero where dist >= 15
      h |= h >> 2;
      h |= h >> 1;
      uint32_t sat = ((h >> 4) & 0x01010101u) * 15u;
      uint32_t nonzero = (((exps[i] & 0x7f7f7f7fu) + 0x7f7f7f7fu) | exps[i]) & 0x80808080u;
      outside[i] = ((nonzero >> 7) & (sat & 0x01010101u)) * 0x7fu;
      dist[i] = (dist[i] | sat) & 0x0f0f0f0fu;
    }
  }

  uint32_t head[2], codes[4];
  uzipRankBins(lane, dist[0], dist[5], largest, head, codes);

  uint32_t code[8];
  uint32_t p0 = 0, p1 = 0;
  UZIP_UNROLL
  for (int i = 0; i < 8; i++) {
    uint32_t sel = uzipNibbles(dist[i]);
    uint32_t upper = ((dist[i] >> 3) & 0x01010101u) * 0xffu;
    uint32_t lo = __byte_perm(codes[0], codes[1], sel & 0x7777u);
    uint32_t hi = __byte_perm(codes[2], codes[3], sel & 0x7777u);
    code[i] = (lo & ~upper) | (hi & upper) | outside[i];
    p0 |= (code[i] & 0x01010101u) << i;
    p1 |= ((code[i] >> 1) & 0x01010101u) << i;
  }

  uint32_t n2;
  uint32_t pos = uzipWarpScan(__popc(p0 & p1), lane, &n2);
  uint32_t words = UZIP_TILE_RAW_WORDS;
  // With seven in eight values beyond level 1 there is nothing to win; leave before the costly part.
  if (n2 < UZIP_TILE_VALUES * 7 / 8) {
    UZIP_UNROLL
    for (int i = 0; i < 8; i++) {
      uint32_t goes = ((p0 & p1) >> i) & 0x01010101u;
      UZIP_UNROLL
      for (int b = 0; b < 4; b++) {
        if (goes & (1u << (8 * b))) down[pos++] = uint8_t((code[i] >> (8 * b + 2)) & 0x1fu);
      }
    }
    __syncwarp();

    // Level 2. `down` shrinks in place: a value moves to an index no larger than its own, which all lanes have read.
    uint32_t const below = (1u << lane) - 1;
    uint32_t const words2 = (n2 + 31) / 32;
    uint32_t n3 = 0, plane0 = 0, plane1 = 0, plane2 = 0;
    UZIP_NO_UNROLL
    for (uint32_t j = 0; j < words2; j++) {
      uint32_t v = j * 32 + lane < n2 ? down[j * 32 + lane] : 0;
      uint32_t b0 = __ballot_sync(kUzipFullWarp, v & 1);
      uint32_t b1 = __ballot_sync(kUzipFullWarp, v & 2);
      if (lane == j) {
        plane0 = b0;
        plane1 = b1;
      }
      if ((v & 3) == 3) down[n3 + __popc(b0 & b1 & below)] = uint8_t(v >> 2);
      n3 += __popc(b0 & b1);
    }
    uint32_t at = UZIP_TILE_HEAD_WORDS + 64;
    if (lane < words2) {
      stage[at + lane] = plane0;
      stage[at + words2 + lane] = plane1;
    }
    at += 2 * words2;
    __syncwarp();

    // Level 3.
    uint32_t const words3 = (n3 + 31) / 32;
    uint32_t n4 = 0;
    UZIP_NO_UNROLL
    for (uint32_t j = 0; j < words3; j++) {
      uint32_t v = j * 32 + lane < n3 ? down[j * 32 + lane] : 0;
      uint32_t b0 = __ballot_sync(kUzipFullWarp, v & 1);
      uint32_t b1 = __ballot_sync(kUzipFullWarp, v & 2);
      uint32_t b2 = __ballot_sync(kUzipFullWarp, v & 4);
      if (lane == j) {
        plane0 = b0;
        plane1 = b1;
        plane2 = b2;
      }
      n4 += __popc(b0 & b1 & b2);
    }
    words = at + 3 * words3 + (n4 + 3) / 4;
    if (words < UZIP_TILE_RAW_WORDS) {
      if (lane < 2) stage[lane] = lane == 0 ? head[0] : head[1];
      stage[UZIP_TILE_HEAD_WORDS + lane] = p0;
      stage[UZIP_TILE_HEAD_WORDS + 32 + lane] = p1;
      if (lane < words3) {
        stage[at + lane] = plane0;
        stage[at + words3 + lane] = plane1;
        stage[at + 2 * words3 + lane] = plane2;
      }
      if (n4 > 0) {  // the exponents themselves, in the same order
        uint32_t all = 0;
        UZIP_UNROLL
        for (int i = 0; i < 8; i++) all |= ((~((code[i] ^ 0x7f7f7f7fu) + 0x7f7f7f7fu) & 0x80808080u) >> 7) << i;
        uint32_t total;
        uint32_t q = uzipWarpScan(__popc(all), lane, &total);
        uint8_t* bytes = (uint8_t*)(stage + at + 3 * words3);
        if (lane == 0) stage[words - 1] = 0;
        __syncwarp();
        UZIP_UNROLL
        for (int i = 0; i < 8; i++) {
          uint32_t goes = (all >> i) & 0x01010101u;
          UZIP_UNROLL
          for (int b = 0; b < 4; b++) {
            if (goes & (1u << (8 * b))) bytes[q++] = uint8_t((exps[i] >> (8 * b)) & 0xffu);
          }
        }
      }
      __syncwarp();
      return (UZIP_TILE_LEVELS << UZIP_TILE_KIND_SHIFT) | words;
    }
  }
  UZIP_UNROLL
  for (int i = 0; i < 8; i++) stage[i * 32 + lane] = exps[i];
  __syncwarp();
  return (UZIP_TILE_RAW << UZIP_TILE_KIND_SHIFT) | UZIP_TILE_RAW_WORDS;
}

// Decodes a tile's exponents from scratch->stage, where its `words` words lie. Warp-collective. Returns false, on all lanes,
// for a table entry or counts that the format does not allow; exps is then zero. Reads and writes nothing outside *scratch,
// whatever the bytes are.
UZIP_DEV bool uzipDecodeTile(uint32_t lane, uint32_t entry, UzipWarpScratch* scratch, uint32_t (&exps)[8]) {
  uint32_t const* stage = scratch->stage;
  uint8_t* down = scratch->down;
  uint32_t const kind = entry >> UZIP_TILE_KIND_SHIFT;
  uint32_t const words = entry & UZIP_TILE_WORDS_MASK;
  UZIP_UNROLL
  for (int i = 0; i < 8; i++) exps[i] = 0;

  if (kind == UZIP_TILE_CONST) {
    if (words != 1) return false;
    uint32_t e = (stage[0] & 0xffu) * 0x01010101u;
    UZIP_UNROLL
    for (int i = 0; i < 8; i++) exps[i] = e;
    return true;
  }
  if (kind == UZIP_TILE_RAW) {
    if (words != UZIP_TILE_RAW_WORDS) return false;
    UZIP_UNROLL
    for (int i = 0; i < 8; i++) exps[i] = stage[i * 32 + lane];
    return true;
  }
  if (kind != UZIP_TILE_LEVELS || words < UZIP_TILE_HEAD_WORDS + 64 || words >= UZIP_TILE_RAW_WORDS) return false;

  // Counts first, each from the level above; the sum of all levels must be the tile's size.
  uint32_t const p0 = stage[UZIP_TILE_HEAD_WORDS + lane];
  uint32_t const p1 = stage[UZIP_TILE_HEAD_WORDS + 32 + lane];
  uint32_t n2;
  uint32_t pos = uzipWarpScan(__popc(p0 & p1), lane, &n2);
  uint32_t const words2 = (n2 + 31) / 32;
  uint32_t const at2 = UZIP_TILE_HEAD_WORDS + 64;
  uint32_t const at3 = at2 + 2 * words2;
  if (at3 > words) return false;
  uint32_t a0 = 0, a1 = 0;
  if (lane < words2) {
    a0 = stage[at2 + lane];
    a1 = stage[at2 + words2 + lane];
    if (lane == words2 - 1 && (n2 & 31) != 0) {
      a0 &= (1u << (n2 & 31)) - 1;
      a1 &= (1u << (n2 & 31)) - 1;
    }
  }
  uint32_t n3;
  uint32_t const before3 = uzipWarpScan(__popc(a0 & a1), lane, &n3);
  uint32_t const words3 = (n3 + 31) / 32;
  uint32_t const at4 = at3 + 3 * words3;
  if (at4 > words) return false;
  uint32_t c0 = 0, c1 = 0, c2 = 0;
  if (lane < words3) {
    c0 = stage[at3 + lane];
    c1 = stage[at3 + words3 + lane];
    c2 = stage[at3 + 2 * words3 + lane];
    if (lane == words3 - 1 && (n3 & 31) != 0) {
      uint32_t valid = (1u << (n3 & 31)) - 1;
      c0 &= valid;
      c1 &= valid;
      c2 &= valid;
    }
  }
  uint32_t n4;
  uint32_t const before4 = uzipWarpScan(__popc(c0 & c1 & c2), lane, &n4);
  if (at4 + (n4 + 3) / 4 != words) return false;

  // Exponents by rank: lane r has that of rank r.
  uint32_t tables[4];  // ranks 0..2, 3..5, 6..9, 10..12
  {
    uint64_t head = uint64_t(stage[1]) << 32 | stage[0];
    uint32_t d = lane < UZIP_RANKS ? uint32_t(head >> (8 + 4 * lane)) & 15 : 0;
    uint32_t e = d == 15 ? 0 : (stage[0] - d) & 0xffu;
    uint32_t const table = lane < 3 ? 0 : lane < 6 ? 1 : lane < 10 ? 2 : 3;
    uint32_t const byte = lane < 3 ? lane : lane < 6 ? lane - 3 : lane < 10 ? lane - 6 : lane - 10;
    if (lane >= UZIP_RANKS) e = 0;
    UZIP_UNROLL
    for (uint32_t q = 0; q < 4; q++) tables[q] = uzipWarpOr(table == q ? e << (8 * (byte & 3)) : 0);
  }

  // From the bottom up: level 3 into down[0 .. n3), then level 2 into down[0 .. n2) over it. Level 2 goes from the last word
  // to the first, so that what it overwrites has been used.
  uint32_t const below = (1u << lane) - 1;
  uint8_t const* bytes = (uint8_t const*)(stage + at4);
  __syncwarp();
  UZIP_NO_UNROLL
  for (uint32_t j = 0; j < words3; j++) {
    uint32_t b0 = __shfl_sync(kUzipFullWarp, c0, j);
    uint32_t b1 = __shfl_sync(kUzipFullWarp, c1, j);
    uint32_t b2 = __shfl_sync(kUzipFullWarp, c2, j);
    uint32_t first = __shfl_sync(kUzipFullWarp, before4, j);
    uint32_t c = ((b0 >> lane) & 1) | ((b1 >> lane) & 1) << 1 | ((b2 >> lane) & 1) << 2;
    uint32_t e = c == 7 ? bytes[first + __popc(b0 & b1 & b2 & below)] : __byte_perm(tables[2], tables[3], c) & 0xffu;
    down[j * 32 + lane] = uint8_t(e);
  }
  UZIP_NO_UNROLL
  for (uint32_t j = words2; j-- > 0;) {
    uint32_t b0 = __shfl_sync(kUzipFullWarp, a0, j);
    uint32_t b1 = __shfl_sync(kUzipFullWarp, a1, j);
    uint32_t first = __shfl_sync(kUzipFullWarp, before3, j);
    uint32_t c = ((b0 >> lane) & 1) | ((b1 >> lane) & 1) << 1;
    __syncwarp();  // stores of the iteration before are visible
    uint32_t e = c == 3 ? down[first + __popc(b0 & b1 & below)] : __byte_perm(tables[1], 0, c) & 0xffu;
    __syncwarp();  // all lanes have read before any writes
    down[j * 32 + lane] = uint8_t(e);
  }
  __syncwarp();

  UZIP_UNROLL
  for (int i = 0; i < 8; i++) {
    uint32_t c = ((p0 >> i) & 0x01010101u) | ((p1 >> i) & 0x01010101u) << 1;
    uint32_t goes = ((p0 & p1) >> i) & 0x01010101u;
    uint32_t e = __byte_perm(tables[0], 0, uzipNibbles(c));
    UZIP_UNROLL
    for (int b = 0; b < 4; b++) {
      uint32_t bit = goes & (1u << (8 * b));
      e += uint32_t(down[pos]) * bit;  // the table has 0 where a value goes down
      pos += bit >> (8 * b);
    }
    exps[i] = e;
  }
  return true;
}

#endif  // UZIP_CODEC_H_
