#pragma once
// runs       masks and dropout of the forward's tensor-core kernels, where a lane has runs of neighbouring keys
//            (tile::Runs): it reads a row's mask in 16-byte pieces and generates whole blocks of the random stream.
//
// Biases are in natural units, s = fma(x, out, bias): one fma, and a finite bias keeps a score finite. NaN scores of
// hidden keys, and rows whose scores differ by too much, need the careful path: see Rows::suspicious.
#include <baracuda/opaque.cuh>
#include "attention/terms.cuh"

namespace baracuda::attention {

template <class P> struct RunTerms : Terms<1, float, true, P> {
  using Base = Terms<1, float, true, P>;
  using Base::c, Base::key_len, Base::natural, Base::out, Base::p, Base::query_len, Base::sink;
  static constexpr bool common = true;  // kernels have loops of their own for common kinds of masks, and for dropout
  const char* mask;                     // of the head
  bool dense;                           // its rows start 16-byte aligned, and a row's elements are neighbours
  u64 row, seed, offset;                // dropout's stream; number of the head's first score in it

  BARACUDA_D RunTerms(const P& params, const Work& work) : Base(params, work) {
    mask = mask_of(p, work.b, work.h);
    const i64 size = p.mask_kind == 0 ? 1 : p.mask_kind <= 2 ? 2 : 4;
    dense = !has_bits<P> && p.mask_pitch[3] == size && (reinterpret_cast<u64>(mask) | p.mask_pitch[2]) % 16 == 0;
    row = first_score(p, work.b, work.h, query_len, key_len);
    seed = drops() ? p.seed() : 0, offset = drops() ? stream_offset(p, work.b) : 0;
    if (!masked() || p.mask_kind == 0) return;
    c = log2_e<float>, natural = 1.0f;
    if (p.sinks != nullptr) sink = static_cast<const float*>(p.sinks)[work.h];
  }
  BARACUDA_D bool masked() const { return may_mask<P> && p.mask != nullptr; }
  BARACUDA_D bool drops() const { return may_drop<P> && p.threshold != 0; }

  // Calls f(x) with an x of the C++ type of the mask's element; bits are gathered as bytes.
  template <class F> BARACUDA_D void with_mask(const F& f) const {
    if constexpr (has_bits<P>) f(u8{});
    else with_kind<float>(p.mask_kind, f);
  }

  // Loads the N elements of row i from key j on, packed as in memory; j is a multiple of N. Rows must be `dense` and
  // have as many keys; they are read in 16-byte pieces. Prefetches those of the next tile.
  template <class M, int N, int W> BARACUDA_D void fetch(u32 (&words)[W], int i, int j) const {
    constexpr int COUNT = N * static_cast<int>(sizeof(M)) / 4, PIECE = min(COUNT, 4);
    const char* const at = row_of(i) + j * static_cast<i64>(sizeof(M));
#pragma unroll
    for (int n = 0; n < COUNT; n += PIECE) {
      const auto piece = load<PIECE>(reinterpret_cast<const u32*>(at) + n);
#pragma unroll
      for (int k = 0; k < PIECE; ++k) words[n + k] = piece[k];
    }
    if (j >= 4 * N) prefetch_l2(at - 4 * N * static_cast<i64>(sizeof(M)));
  }
  // The same for any rows. Beyond the keys any element will do, as those are hidden.
  template <class M, int N, int W> BARACUDA_D void gather(u32 (&words)[W], int i, int j) const {
    if constexpr (has_bits<P>) {
      const u32 bits = mask_bits<N>(p, mask, first_bit(i) + j);
#pragma unroll
      for (int n = 0; n < N / 4; ++n) words[n] = (bits >> 4 * n & 15) * 0x204081u & 0x01010101u;  // a byte for each bit
      return;
    }
    using Bits = conditional<sizeof(M) == 1, u8, conditional<sizeof(M) == 2, u16, u32>>;
    constexpr int EACH = 4 / static_cast<int>(sizeof(M));
    const char* const from = row_of(i);
#pragma unroll
    for (int n = 0; n < N / EACH; ++n) {
      words[n] = 0;
#pragma unroll
      for (int k = 0; k < EACH; ++k) {
        const Bits found = *reinterpret_cast<const Bits*>(from + min(j + n * EACH + k, key_len - 1) * p.mask_pitch[3]);
        words[n] |= static_cast<u32>(found) << (8 * sizeof(M) * k % 32);
      }
    }
  }

  // Adds element k of a run to score(k), of row i and key j + k. careful: a hidden key is hidden whatever its score,
  // and a finite bias keeps a finite score finite.
  template <class M, int N, int W, class Score>
  BARACUDA_D void add(const u32 (&words)[W], const Score& score, bool careful) const {
    if constexpr (!is_same<M, u8>) {
      if (careful) {
#pragma unroll
        for (int k = 0; k < N; ++k) {
          const float bias = element<M>(words, k), sum = math::fma(score(k), out, bias);
          const bool both = math::isfinite(score(k)) && math::isfinite(bias);
          score(k) = bias == -numeric<float>::infinity() ? bias : both ? bounded(sum) : sum;
        }
        return;
      }
    }
#pragma unroll
    for (int k = 0; k < N; ++k) {
      float& x = score(k);
      if constexpr (is_same<M, u8>) x = words[k / 4] & 0xffu << k % 4 * 8 ? x : -numeric<float>::infinity();
      else x = math::fma(x, out, element<M>(words, k));
    }
  }
  BARACUDA_D bool hides(int i, int j) const {
    if constexpr (has_bits<P>) return masked() && !(mask_bits<1>(p, mask, first_bit(i) + j) & 1);
    bool hidden = false;
    if (masked())
      with_mask([&](auto kind) {
        using M = decltype(kind);
        const M found = *reinterpret_cast<const M*>(row_of(i) + min(j, key_len - 1) * p.mask_pitch[3]);
        if constexpr (is_same<M, u8>) hidden = found == 0;
        else hidden = to_acc(found) == -numeric<float>::infinity();
      });
    return hidden;
  }

  // Whether every row of scores is whole blocks of the stream.
  BARACUDA_D bool whole_blocks() const { return key_len % 4 == 0; }
  // Zeroes weight(k), of row i and key j + k, where dropout drops it; for whole blocks.
  template <int N, class Weight> BARACUDA_D void drop(const Weight& weight, int i, int j) const {
    const u32 limit = (p.threshold << 8) - 1;
    Philox4 made[N / 4];
    philox_blocks(forgotten(seed), offset, (row + static_cast<u64>(i) * key_len + j) >> 2, made);
#pragma unroll
    for (int k = 0; k < N; ++k) weight(k) = philox_word(made[k / 4], k % 4) > limit ? weight(k) : 0.0f;
  }
  // Bit k: whether dropout keeps the weight of row i and key j + k.
  template <int N> BARACUDA_D u32 kept(int i, int j) const {
    const u64 first = row + static_cast<u64>(i) * key_len + j;
    const u32 limit = (p.threshold << 8) - 1, within = static_cast<u32>(first) % 4;
    const auto keeps = [&](const Philox4& made) {
      return (made.x > limit) | (made.y > limit) << 1 | (made.z > limit) << 2 | (made.w > limit) << 3;
    };
    const u64 key = forgotten(seed);  // or the keys of all rounds are kept in registers
    Philox4 made[N / 4];
    philox_blocks(key, offset, first >> 2, made);
    u32 bits = 0;
#pragma unroll
    for (int n = 0; n < N / 4; ++n) bits |= keeps(made[n]) << 4 * n;
    if (within != 0) bits |= keeps(philox_block(key, offset, (first >> 2) + N / 4)) << N;
    return bits >> within;
  }

 private:
  BARACUDA_D i64 first_bit(int i) const { return static_cast<i64>(min(i, query_len - 1)) * key_len; }
  BARACUDA_D const char* row_of(int i) const { return mask + min(i, query_len - 1) * p.mask_pitch[2]; }
  template <class M, int W> static BARACUDA_D float element(const u32 (&words)[W], int k) {
    if constexpr (is_same<M, float>) return __uint_as_float(words[k]);
    else if constexpr (is_same<M, bf16>)
      return __uint_as_float(k % 2 ? words[k / 2] & 0xffff0000u : words[k / 2] << 16);
    else return __half2float(__ushort_as_half(static_cast<u16>(words[k / 2] >> k % 2 * 16)));
  }
  static BARACUDA_D float bounded(float x) {
    return math::minimum(math::maximum(x, -numeric<float>::max()), numeric<float>::max());
  }
};

}  // namespace baracuda::attention
