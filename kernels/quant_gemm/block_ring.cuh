#pragma once
// block_ring   what a warp that has 32 rows of W copies of a chunk of 128 of k, ahead of its decoding, of formats whose
//              blocks of 32 values have their scales beside the codes (quantize/formats/gguf_simple.cuh).
//
// The four lanes of a row copy its four blocks together, 8 bytes at a time, and read one each from shared memory as words.
// From where they are stored they would be read by accesses of 2 bytes, each of which has as many lines of the cache.
#include "quant_gemm/chunk_ring.cuh"
#include "quantize/formats/gguf_simple.cuh"

namespace baracuda {

// WORDS words of shared memory from a multiple of UNIT, 2 or 4 bytes, on; of 2, a word behind them is read as well.
template <int UNIT, int WORDS> BARACUDA_D void shared_words(const u8* from, u32 (&out)[WORDS]) {
  const u32 past = UNIT == 4 ? 0 : static_cast<u32>(reinterpret_cast<u64>(from)) & 2u;
  const u32* const words = reinterpret_cast<const u32*>(from - past);
  u32 low = words[0];
#pragma unroll
  for (int i = 0; i < WORDS; ++i) {
    if constexpr (UNIT == 4) {
      out[i] = words[i];
    } else {
      const u32 high = words[i + 1];
      out[i] = __byte_perm(low, high, past ? 0x5432u : 0x3210u);
      low = high;
    }
  }
}
BARACUDA_D float shared_half(const u8* from) { return widen(*reinterpret_cast<const f16*>(from)); }

// Codes 4 i … 4 i + 3 of 32, as the bytes of a word.
BARACUDA_D u32 half_codes_of(const Vec<u32, 4>& words, int i) { return words[i % 4] >> (i / 4 * 4) & each_byte(15); }

// A block of F in registers, and its values as F::decode makes them. No bytes: F's blocks are not copied.
template <class F> struct HeldBlock {
  static constexpr int bytes = 0;
};

template <bool MIN, bool FIFTH> struct HeldBlock<GgufHalves<MIN, FIFTH>> {
  static constexpr int own = (MIN ? 4 : 2) + (FIFTH ? 4 : 0), bytes = own + 16;
  float d, m = 0.0f;
  u32 fifths = 0;
  Vec<u32, 4> words;
  BARACUDA_D void load(const u8* block) {
    d = shared_half(block);
    if constexpr (MIN) m = shared_half(block + 2);
    u32 all[FIFTH ? 5 : 4];
    shared_words<MIN ? 4 : 2>(block + (MIN ? 4 : 2), all);
    if constexpr (FIFTH) fifths = all[0];
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = all[i + (FIFTH ? 1 : 0)];
  }
  BARACUDA_D float operator()(int j) const {
    u32 four = half_codes_of(words, j / 4);
    if constexpr (FIFTH) four |= fifth_bits(fifths >> (j / 4 * 4));
    if constexpr (MIN) return d * byte_number(four, j % 4) + m;
    else return d * byte_number(four, j % 4, FIFTH ? 16.0f : 8.0f);
  }
};

template <bool SUM> struct HeldBlock<GgufBytes<SUM>> {
  static constexpr int own = SUM ? 4 : 2, bytes = own + 32;
  float d;
  Vec<u32, 8> words;
  BARACUDA_D void load(const u8* block) {
    d = shared_half(block);
    u32 all[8];
    shared_words<own>(block + own, all);
#pragma unroll
    for (int i = 0; i < 8; ++i) words[i] = all[i];
  }
  BARACUDA_D float operator()(int j) const { return d * flipped_byte(flip_signs(words[j / 4]), j % 4); }
};

template <> struct HeldBlock<IQ4_NL> {
  static constexpr int bytes = 18;
  float d;
  Vec<u32, 4> words;
  BARACUDA_D void load(const u8* block) {
    d = shared_half(block);
    u32 all[4];
    shared_words<2>(block + 2, all);
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = all[i];
  }
  BARACUDA_D float operator()(int j) const { return d * iq4_value(half_codes_of(words, j / 4) >> (8 * (j % 4)) & 15u); }
};

// The blocks of STAGES chunks of a warp's rows, BLOCK bytes each.
template <int BLOCK, int STAGES> struct BlockRing {
  static constexpr int unit = 8, lanes = warp_size / 8, bytes = chunk_runs * BLOCK, pieces = bytes / unit;
  static constexpr int pitch = bytes + unit;  // which also has the word behind a row
  static constexpr int stage_bytes = warp_size * pitch, warp_bytes = STAGES * stage_bytes;
  static_assert(bytes % unit == 0 && STAGES >= 2, "whole copies, of which some are under way");
  u8* shared;                   // the lane's first row
  const u8* from[chunk_lines];  // the next chunk to copy
  int to = 0, at = 0;           // places of the stages that are copied to next, and read

  template <class Row>
  BARACUDA_D BlockRing(u8* shared, int chunk, const Row& row) : shared(shared + lane_id() / lanes * pitch) {
#pragma unroll
    for (int i = 0; i < chunk_lines; ++i) {
      from[i] = row(lane_id() / lanes + 8 * i).codes + static_cast<i64>(chunk) * bytes + lane_id() % lanes * unit;
    }
  }
  static BARACUDA_D bool aligned(const Stored& w) {
    return (reinterpret_cast<u64>(w.codes) | static_cast<u64>(w.code_steps[0] | w.code_steps[1])) % unit == 0;
  }
  static BARACUDA_D void advance(int& place) { place = place == warp_bytes - stage_bytes ? 0 : place + stage_bytes; }

  // Begins to copy a chunk, if there is one; so many copies as begun are waited for.
  BARACUDA_D void copy(bool there) {
    const int own = lane_id() % lanes;
    if (there) {
#pragma unroll
      for (int i = 0; i < chunk_lines; ++i) {
#pragma unroll
        for (int j = 0; j < pieces; j += lanes) {
          if (j + lanes > pieces && own >= pieces - j) continue;
          cp_async<unit>(shared + to + 8 * i * pitch + (j + own) * unit, from[i] + j * unit);
        }
        from[i] += bytes;
      }
      advance(to);
    }
    cp_async_commit();
  }
  // Waits for the next chunk, when STAGES - 2 later ones are under way at most; what was read before may be copied over.
  BARACUDA_D void wait() {
    cp_async_wait<STAGES - 2>();
    __syncwarp();
  }
  template <class Held> BARACUDA_D void take(Held (&held)[chunk_lines]) {
#pragma unroll
    for (int i = 0; i < chunk_lines; ++i) held[i].load(shared + at + 8 * i * pitch + lane_id() % lanes * BLOCK);
    advance(at);
  }
};

}  // namespace baracuda
