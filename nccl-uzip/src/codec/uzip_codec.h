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

// Scratch of one warp in shared memory: what a tile's variable part is staged in. A few words more than the largest part, since
// strings of bits are read and written two words at a time.
struct alignas(16) UzipWarpScratch {
  uint32_t stage[UZIP_TILE_MAX_WORDS + 4];
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
    UzipQuad low;  // bits 0..15 of the rotated values
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
//
// A lane's 32 exponents are 8 words of 4 bytes. In a bit plane they are one word; the exponent in byte b of word i has bit
//   8 * (2 * (b & 1) + (i >> 2)) + 4 * (b >> 1) + (i & 3),
// which is the order in which the transpositions below leave them without further shuffling.
UZIP_HD constexpr int uzipPlaneWord(int bit) { return ((bit >> 3) & 1) << 2 | (bit & 3); }
UZIP_HD constexpr int uzipPlaneByte(int bit) { return ((bit >> 2) & 1) << 1 | bit >> 4; }

// Swaps bits of two words: those of `a` under ~mask with those of `b` under mask, which are `shift` lower.
UZIP_DEV void uzipSwapBits(uint32_t& a, uint32_t& b, uint32_t mask, int shift) {
  uint32_t const low = (a & mask) | ((b & mask) << shift);
  b = ((a >> shift) & mask) | (b & ~mask);
  a = low;
}

// Bit k of byte b of word i becomes bit i of byte b of word k.
UZIP_DEV void uzipTransposeBytes(uint32_t (&w)[8]) {
  UZIP_UNROLL
  for (int i = 0; i < 4; i++) uzipSwapBits(w[i], w[i + 4], 0x0f0f0f0fu, 4);
  UZIP_UNROLL
  for (int i = 0; i < 8; i++) {
    if ((i & 2) == 0) uzipSwapBits(w[i], w[i + 2], 0x33333333u, 2);
  }
  UZIP_UNROLL
  for (int i = 0; i < 8; i += 2) uzipSwapBits(w[i], w[i + 1], 0x55555555u, 1);
}

// Bit r of nibble n of word q becomes bit q of nibble n of word r.
UZIP_DEV void uzipTransposeNibbles(uint32_t (&w)[4]) {
  uzipSwapBits(w[0], w[2], 0x33333333u, 2);
  uzipSwapBits(w[1], w[3], 0x33333333u, 2);
  uzipSwapBits(w[0], w[1], 0x55555555u, 1);
  uzipSwapBits(w[2], w[3], 0x55555555u, 1);
}

// Moves the bits under a mask to the low end in order (gather), or from there back to their places (scatter): the parallel
// suffix method of H. S. Warren, "Hacker's Delight", 2nd ed., sections 7-4 and 7-5. The five moves depend on the mask alone.
struct UzipBitMoves {
  uint32_t mask, moves[5];

  UZIP_DEV explicit UzipBitMoves(uint32_t mask_) : mask(mask_) {
    uint32_t m = mask_, zeros = ~mask_ << 1;
    UZIP_UNROLL
    for (int s = 0; s < 5; s++) {
      uint32_t parity = zeros ^ (zeros << 1);
      parity ^= parity << 2;
      parity ^= parity << 4;
      parity ^= parity << 8;
      parity ^= parity << 16;
      moves[s] = parity & m;
      m = (m ^ moves[s]) | (moves[s] >> (1 << s));
      zeros &= ~parity;
    }
  }
  UZIP_DEV uint32_t gather(uint32_t x) const {
    x &= mask;
    UZIP_UNROLL
    for (int s = 0; s < 5; s++) x = (x & ~moves[s]) | ((x & moves[s]) >> (1 << s));
    return x;
  }
  UZIP_DEV uint32_t scatter(uint32_t x) const {
    UZIP_UNROLL
    for (int s = 4; s >= 0; s--) x = (x & ~moves[s]) | ((x << (1 << s)) & moves[s]);
    return x & mask;
  }
};

// Strings of up to 32 bits, one a lane, end to end in an array of words. Unused bits of `bits` are zero, as is the array.
UZIP_DEV void uzipPutBits(uint32_t* words, uint32_t at, uint32_t bits) {
  uint32_t const shift = at & 31, high = __funnelshift_l(bits, 0, shift);
  if (bits != 0) atomicOr(words + (at >> 5), bits << shift);
  if (high != 0) atomicOr(words + (at >> 5) + 1, high);
}
UZIP_DEV uint32_t uzipGetBits(uint32_t const* words, uint32_t at) {
  return __funnelshift_r(words[at >> 5], words[(at >> 5) + 1], at & 31);
}

// Code of a rank, all levels in one byte: bits 0..1 level 1, 2..3 level 2, 4..6 level 3. 0x7f goes all the way down.
UZIP_DEV uint32_t uzipCodeOfRank(uint32_t rank) {
  return rank < 3 ? rank : rank < 6 ? 0x03u | ((rank - 3) << 2) : rank < UZIP_RANKS ? 0x0fu | ((rank - 6) << 4) : 0x7fu;
}

// Distances from the tile's largest exponent fall into 16 bins: 0..14, and bin 15 for exponent 0. Ranks the bins by their
// counts in a sample of 256 values (words 0 and 5 of each lane); ties go to the larger exponent.
// `head` gets W and the distances in rank order, `codes` the code byte of each bin.
UZIP_DEV void uzipRankBins(uint32_t lane, uint32_t binsA, uint32_t binsB, uint32_t largest, uint32_t* head,
                           uint32_t* codes) {
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

// Encodes the exponents of a tile of `Type`, eight words a lane, into scratch->stage. Returns the tile's table entry.
// Warp-collective; the stage may be read by all lanes on return.
template <int Type>
UZIP_DEV uint32_t uzipEncodeTile(uint32_t lane, uint32_t const (&exps)[8], UzipWarpScratch* scratch) {
  uint32_t* const stage = scratch->stage;
  uint32_t most = 0, least = 0xffffffffu;  // two 16-bit halves
  UZIP_UNROLL
  for (int i = 0; i < 8; i++) {
    uint32_t const even = exps[i] & 0x00ff00ffu, odd = (exps[i] >> 8) & 0x00ff00ffu;
    most = __vmaxu2(most, __vmaxu2(even, odd));
    least = __vminu2(least, __vminu2(even, odd));
  }
  most = most >> 16 > (most & 0xffffu) ? most >> 16 : most & 0xffffu;
  least = least >> 16 < (least & 0xffffu) ? least >> 16 : least & 0xffffu;
  uint32_t const largest = uzipWarpMax(most);
  uint32_t const range = largest - (255u - uzipWarpMax(255u - least));
  __syncwarp();  // earlier readers of the stage are done
  if (range == 0) {
    if (lane == 0) stage[0] = largest;
    __syncwarp();
    return (UZIP_TILE_CONST << UZIP_TILE_KIND_SHIFT) | 1u;
  }

  // Distances from the largest. No byte borrows from its neighbour, since none exceeds the largest. Those of 15 and more share
  // bin 15, which stands for exponent 0; any other exponent there goes all the way down.
  uint32_t dist[8];
  UZIP_UNROLL
  for (int i = 0; i < 8; i++) dist[i] = largest * 0x01010101u - exps[i];
  if (range >= 15) {
    UZIP_UNROLL
    for (int i = 0; i < 8; i++) {
      uint32_t far = (dist[i] | ((dist[i] & 0x0f0f0f0fu) + 0x01010101u)) & 0xf0f0f0f0u;  // nonzero from 15 on
      far |= far >> 2;
      far |= far >> 1;
      dist[i] = (dist[i] | ((far >> 4) & 0x01010101u) * 15u) & 0x0f0f0f0fu;
    }
  }
  uint32_t head[2], codes[4];
  uzipRankBins(lane, dist[0], dist[5], largest, head, codes);

  // Two words of distances make eight selectors. A selector of 8 and more yields 0 from one half of the table, since codes have
  // no top bit, and one below 8 from the other half.
  uint32_t planes[8];  // codes first; transposed into the planes of their bits
  UZIP_UNROLL
  for (int i = 0; i < 4; i++) {
    uint32_t const sel = dist[i] + (dist[i + 4] << 4);
    planes[i] = uzipPerm(codes[0], codes[1], sel) | uzipPerm(codes[2], codes[3], sel ^ 0x8888u);
    planes[i + 4] = uzipPerm(codes[0], codes[1], sel >> 16) | uzipPerm(codes[2], codes[3], (sel >> 16) ^ 0x8888u);
  }
  if (range >= 15) {
    uint32_t outside[8];
    UZIP_UNROLL
    for (int i = 0; i < 8; i++) {
      uint32_t const is15 = (dist[i] + 0x01010101u) & 0x10101010u;
      uint32_t const nonzero = (((exps[i] & 0x7f7f7f7fu) + 0x7f7f7f7fu) | exps[i]) & 0x80808080u;
      outside[i] = ((is15 >> 4) & (nonzero >> 7)) * 0x7fu;
    }
    UZIP_UNROLL
    for (int i = 0; i < 4; i++) {
      planes[i] |= __byte_perm(outside[i], outside[i + 4], 0x5140);
      planes[i + 4] |= __byte_perm(outside[i], outside[i + 4], 0x7362);
    }
  }
  uzipTransposeBytes(planes);

  // Who goes down to levels 2, 3 and 4. One scan for all three counts; beyond 7/8 in level 2 there is nothing to win.
  uint32_t const in2 = planes[0] & planes[1], in3 = in2 & planes[2] & planes[3];
  uint32_t const in4 = in3 & planes[4] & planes[5] & planes[6];
  uint32_t totals;
  uint32_t const before = uzipWarpScan(__popc(in2) | __popc(in3) << 11 | __popc(in4) << 22, lane, &totals);
  uint32_t const n2 = totals & 0x7ffu;
  if (n2 < UZIP_TILE_VALUES * 7 / 8) {
    uint32_t const n3 = (totals >> 11) & 0x7ffu, n4 = totals >> 22;
    uint32_t const words2 = (n2 + 31) / 32, words3 = (n3 + 31) / 32;
    uint32_t const at2 = UZIP_TILE_HEAD_WORDS + 64, at3 = at2 + 2 * words2, at4 = at3 + 3 * words3;
    uint32_t const words = at4 + (n4 + 3) / 4;
    if (words < uzipRawWords(Type)) {
      UZIP_NO_UNROLL
      for (uint32_t w = at2 + lane; w < words; w += 32) stage[w] = 0;
      if (lane < 2) stage[lane] = lane == 0 ? head[0] : head[1];
      stage[UZIP_TILE_HEAD_WORDS + lane] = planes[0];
      stage[UZIP_TILE_HEAD_WORDS + 32 + lane] = planes[1];
      __syncwarp();
      {
        UzipBitMoves const moves(in2);
        uint32_t const at = before & 0x7ffu;
        uzipPutBits(stage + at2, at, moves.gather(planes[2]));
        uzipPutBits(stage + at2 + words2, at, moves.gather(planes[3]));
      }
      if (n3 > 0) {
        UzipBitMoves const moves(in3);
        uint32_t const at = (before >> 11) & 0x7ffu;
        uzipPutBits(stage + at3, at, moves.gather(planes[4]));
        uzipPutBits(stage + at3 + words3, at, moves.gather(planes[5]));
        uzipPutBits(stage + at3 + 2 * words3, at, moves.gather(planes[6]));
      }
      if (n4 > 0) {  // the exponents themselves
        uint8_t* const bytes = (uint8_t*)(stage + at4);
        uint32_t at = before >> 22;
        UZIP_UNROLL
        for (int bit = 0; bit < 32; bit++) {
          if (in4 >> bit & 1) bytes[at++] = uint8_t(exps[uzipPlaneWord(bit)] >> (8 * uzipPlaneByte(bit)));
        }
      }
      __syncwarp();
      return (UZIP_TILE_LEVELS << UZIP_TILE_KIND_SHIFT) | words;
    }
  }
  uint32_t raw[8];
  UZIP_UNROLL
  for (int i = 0; i < 8; i++) raw[i] = exps[i];
  if (uzipRawWords(Type) < 256) uzipTransposeBytes(raw);  // the planes above the symbol's bits are zero
  UZIP_UNROLL
  for (uint32_t i = 0; i < uzipRawWords(Type) / 32; i++) stage[i * 32 + lane] = raw[i];
  __syncwarp();
  return (UZIP_TILE_RAW << UZIP_TILE_KIND_SHIFT) | uzipRawWords(Type);
}

// Decodes a tile's exponents from scratch->stage, where its `words` words lie. Warp-collective. Returns false, on all lanes,
// for a table entry or counts that the format does not allow; exps is then unspecified. Reads nothing outside *scratch, whatever
// the bytes are: the three levels of bits end at word 2 + 64 + 64 + 96 at most, and level 4 is read only once the sum of all
// levels is known to be the tile's size.
template <int Type>
UZIP_DEV bool uzipDecodeTile(uint32_t lane, uint32_t entry, UzipWarpScratch* scratch, uint32_t (&exps)[8]) {
  uint32_t const* const stage = scratch->stage;
  uint32_t const kind = entry >> UZIP_TILE_KIND_SHIFT;
  uint32_t const words = entry & UZIP_TILE_WORDS_MASK;
  if (kind != UZIP_TILE_LEVELS) {
    if (kind == UZIP_TILE_RAW) {
      UZIP_UNROLL
      for (uint32_t i = 0; i < 8; i++) exps[i] = i < uzipRawWords(Type) / 32 ? stage[i * 32 + lane] : 0;
      if (uzipRawWords(Type) < 256) uzipTransposeBytes(exps);
      return words == uzipRawWords(Type);
    }
    UZIP_UNROLL
    for (int i = 0; i < 8; i++) exps[i] = (stage[0] & 0xffu) * 0x01010101u;
    return kind == UZIP_TILE_CONST && words == 1;
  }
  if (words < UZIP_TILE_HEAD_WORDS + 64 || words >= uzipRawWords(Type)) return false;

  // Planes of the rank's place in a table of 16: ranks of level 1 at 0, of level 2 at 4, of level 3 at 8. 15 goes to level 4.
  uint32_t place[4];
  place[0] = stage[UZIP_TILE_HEAD_WORDS + lane];
  place[1] = stage[UZIP_TILE_HEAD_WORDS + 32 + lane];
  uint32_t const at2 = UZIP_TILE_HEAD_WORDS + 64;
  uint32_t n2, n3, n4;
  uint32_t const in2 = place[0] & place[1];
  uint32_t at = uzipWarpScan(__popc(in2), lane, &n2);
  uint32_t const words2 = (n2 + 31) / 32, at3 = at2 + 2 * words2;
  {
    UzipBitMoves const moves(in2);
    uint32_t const b0 = moves.scatter(uzipGetBits(stage + at2, at));
    uint32_t const b1 = moves.scatter(uzipGetBits(stage + at2 + words2, at));
    place[0] = (place[0] & ~in2) | b0;
    place[1] = (place[1] & ~in2) | b1;
  }
  uint32_t const in3 = in2 & place[0] & place[1];
  place[2] = in2 & ~in3;
  place[3] = in3;
  at = uzipWarpScan(__popc(in3), lane, &n3);
  uint32_t const words3 = (n3 + 31) / 32, at4 = at3 + 3 * words3;
  if (n3 > 0) {
    UzipBitMoves const moves(in3);
    uint32_t const b0 = moves.scatter(uzipGetBits(stage + at3, at));
    uint32_t const b1 = moves.scatter(uzipGetBits(stage + at3 + words3, at));
    uint32_t const b2 = moves.scatter(uzipGetBits(stage + at3 + 2 * words3, at));
    place[0] = (place[0] & ~in3) | b0;
    place[1] = (place[1] & ~in3) | b1;
    place[2] |= b2;
  }
  uint32_t const in4 = in3 & place[0] & place[1] & place[2];
  at = uzipWarpScan(__popc(in4), lane, &n4);
  if (at4 + (n4 + 3) / 4 != words) return false;

  // The table: distances from W by place.
  uint32_t table[4];
  uint32_t const largest = (stage[0] & 0xffu) * 0x01010101u;
  uint32_t const rank = lane < 3   ? lane
                        : lane < 7 ? lane - 1
                                   : lane - 2;  // of place `lane`, for the 13 places that have one
  bool const ranked = lane < 15 && lane != 3 && lane != 7;
  uint64_t const head = uint64_t(stage[1]) << 32 | stage[0];
  uint32_t const mine = ranked ? uint32_t(head >> (8 + 4 * rank)) & 15 : 0;
  UZIP_UNROLL
  for (int q = 0; q < 4; q++) table[q] = uzipWarpOr(int(lane >> 2) == q ? mine << (8 * (lane & 3)) : 0);
  bool const zero = __any_sync(kUzipFullWarp, mine == 15);  // a rank that stands for exponent 0

  uzipTransposeNibbles(place);
  UZIP_UNROLL
  for (int r = 0; r < 4; r++) {
    // Bytes 0 and 2 of words r and r + 4, then bytes 1 and 3.
    uint32_t const sel = place[r];
    uint32_t const even = uzipPerm(table[0], table[1], sel) | uzipPerm(table[2], table[3], sel ^ 0x8888u);
    uint32_t const odd = uzipPerm(table[0], table[1], sel >> 16) | uzipPerm(table[2], table[3], (sel >> 16) ^ 0x8888u);
    exps[r] = __byte_perm(even, odd, 0x5140);
    exps[r + 4] = __byte_perm(even, odd, 0x7362);
  }
  if (!zero) {
    UZIP_UNROLL
    for (int i = 0; i < 8; i++) exps[i] = largest - exps[i];
  } else {
    UZIP_UNROLL
    for (int i = 0; i < 8; i++) {
      uint32_t const is15 = (((exps[i] + 0x01010101u) >> 4) & 0x01010101u) * 0xffu;
      exps[i] = (largest - (exps[i] & ~is15)) & ~is15;
    }
  }
  if (n4 > 0) {
    uint8_t const* const bytes = (uint8_t const*)(stage + at4);
    UZIP_UNROLL
    for (int bit = 0; bit < 32; bit++) {
      if (in4 >> bit & 1) {
        int const shift = 8 * uzipPlaneByte(bit);
        uint32_t& e = exps[uzipPlaneWord(bit)];
        e = (e & ~(0xffu << shift)) | uint32_t(bytes[at++]) << shift;
      }
    }
  }
  return true;
}

#endif  // UZIP_CODEC_H_
