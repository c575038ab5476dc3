#pragma once
// terms      what attention adds to its scores q k and does to its weights: soft cap, ALiBi, mask, sinks, dropout.
//            Formulas and sources are on the page ops/attention/score_terms.py; P has the fields of
//            schedules/attention/score_terms.py: TERMS.
//
// A score x = q k still lacks its factor `scale`. A soft cap makes it tanh(x scale / softcap), which lacks the factor
// softcap. FAST adds slopes and sinks in that unit, which saves a multiplication for each score; else x is multiplied
// out first, which saves slopes and sinks a rounding. Masks multiply it out, x out + bias. c = unit log2(e) then makes
// it an exponent of 2. A finite bias keeps a score finite: a row of the lowest floats is not a row of hidden keys.
//
// A thread passes its scores of a tile as `each`: each(f) calls f(x, r, c) for the scores of query i + r and key j + c,
// where (i, j) is the thread's own position and r, c are constants once loops are unrolled.
#include "attention/attention.cuh"
#include "attention/mask_bias.cuh"
#include <baracuda/mma.cuh>
#include <baracuda/philox.cuh>

namespace baracuda::attention {

// Whether the mask is bits: only then P says how many bytes there are.
template <class P, class = void> constexpr bool has_bits = false;
template <class P> constexpr bool has_bits<P, decltype(static_cast<void>(P::mask_bytes))> = true;

// The mask of a head. Of bits it begins at byte mask_indptr[b]: bit i key_len + j, of a byte the lowest first, says
// whether query i of the sequence sees key j.
template <class P> BARACUDA_D const char* mask_of(const P& p, u32 b, u32 h) {
  const char* const all = static_cast<const char*>(p.mask);
  if constexpr (!has_bits<P>) return all + b * p.mask_pitch[0] + h * p.mask_pitch[1];
  else {
    if (all == nullptr) return all;
    const i64 at = b * p.mask_indptr_stride;
    return all + (p.wide_mask_indptr ? static_cast<const i64*>(p.mask_indptr)[at]
                                     : static_cast<const i32*>(p.mask_indptr)[at]);
  }
}
// N bits of the mask that begins at `mask`, from bit `first` on; those of bytes that there are not are 0, which hides.
template <int N, class P> BARACUDA_D u32 mask_bits(const P& p, const char* mask, i64 first) {
  const u64 byte = static_cast<u64>(mask - static_cast<const char*>(p.mask)) + static_cast<u64>(first >> 3);
  u32 found = 0;
#pragma unroll
  for (int n = 0; n < (N + 14) / 8; ++n) {
    const u64 at = byte + n;
    if (at < static_cast<u64>(p.mask_bytes)) found |= static_cast<u32>(static_cast<const u8*>(p.mask)[at]) << 8 * n;
  }
  return found >> (first & 7);
}

// The number of a head's first score in dropout's stream, which runs over [batch, heads, queries, keys]. A packed
// sequence has a stream of its own, at offset + b 2^32 and as if it were alone.
template <class P> BARACUDA_D u64 first_score(const P& p, u32 b, u32 h, int query_len, int key_len) {
  if constexpr (is_packed<P>) return static_cast<u64>(h) * query_len * key_len;
  else return (static_cast<u64>(b) * p.num_heads + h) * query_len * key_len;
}
template <class P> BARACUDA_D u64 stream_offset(const P& p, u32 b) {
  if constexpr (is_packed<P>) return p.offset() + (static_cast<u64>(b) << 32);
  else return p.offset();
}

// What kernels of packed sequences may have of LEVEL 2: masks of bits, or dropout.
template <class P> constexpr bool may_mask = !is_packed<P> || has_bits<P>;
template <class P> constexpr bool may_drop = !is_packed<P> || !has_bits<P>;

// LEVEL 1: soft cap, ALiBi and sinks; 2: also masks and dropout, whose code costs time even where it is jumped over
// (docs/design/attention-forward.md).
template <int LEVEL, class A, bool FAST, class P> struct Terms {
  const P& p;
  A natural, c, again;    // the unit of scores, the factor that makes them exponents of 2, dropout's factor 1 / (1 - p)
  A inner, slope, units;  // factor inside tanh; ALiBi's slope in that unit; 1 / unit
  A out;                  // multiplies x out
  A sink;                 // in that unit; -inf without one
  const char* mask;       // of the head
  u64 row, seed, offset;  // dropout's stream; number of the head's first score in it
  int query_len, key_len, shift;

  BARACUDA_D explicit Terms(const P& params, i64 queries, i64 keys, i64 ahead) : p(params) {
    const double unit = capped() ? p.softcap : p.scale;
    natural = FAST ? static_cast<A>(unit) : A(1);
    if constexpr (FAST) c = p.unit_log2, inner = p.inner;
    else c = log2_e<A>, inner = static_cast<A>(p.scale / unit);
    if (masked()) c = log2_e<A>;
    units = FAST ? static_cast<A>(1 / unit) : A(1);
    out = static_cast<A>(unit);
    again = static_cast<A>(p.restored);
    seed = drops() ? p.seed() : 0, offset = drops() ? p.offset() : 0;
    query_len = static_cast<int>(queries), key_len = static_cast<int>(keys), shift = static_cast<int>(ahead);
  }
  BARACUDA_D Terms(const P& params, const Work& work) : Terms(params, work.query_len, work.key_len, work.shift) {
    enter(work.b, work.h);
    sink = p.sinks != nullptr ? finite(static_cast<const A*>(p.sinks)[work.h]) : -numeric<A>::infinity();
  }
  BARACUDA_D void enter(u32 b, u32 h) {
    slope = A(0);
    if (p.slopes != nullptr) {
      slope = static_cast<const A*>(p.slopes)[b * p.slope_stride[0] + h * p.slope_stride[1]] * units;
    }
    if constexpr (LEVEL == 2) {
      mask = mask_of(p, b, h);
      row = first_score(p, b, h, query_len, key_len);
      if constexpr (is_packed<P>) offset = drops() ? stream_offset(p, b) : 0;
    }
  }

  // Goes on to the sequence of a tile of keys; then enter(), as for each of its heads.
  BARACUDA_D void settle(i64 queries, i64 keys, i64 ahead) {
    if constexpr (is_packed<P>) {
      query_len = static_cast<int>(queries), key_len = static_cast<int>(keys), shift = static_cast<int>(ahead);
    }
  }
  BARACUDA_D void settle(const Sequence& of) { settle(of.query_len, of.key_len, of.shift); }
  // The key position of the sequence's first query: where all are as long, a parameter, which takes no register.
  BARACUDA_D int place() const {
    if constexpr (is_packed<P>) return shift;
    else return static_cast<int>(p.shift);
  }

  BARACUDA_D bool capped() const { return p.softcap > 0; }
  BARACUDA_D bool sloped() const { return p.slopes != nullptr; }
  BARACUDA_D bool masked() const { return LEVEL == 2 && may_mask<P> && p.mask != nullptr; }
  BARACUDA_D bool drops() const { return LEVEL == 2 && may_drop<P> && p.threshold != 0; }
  BARACUDA_D A unit() const { return masked() ? A(1) : natural; }  // what c applies to once masks are added
  BARACUDA_D A sink_weight() const { return sink == -numeric<A>::infinity() ? A(0) : exp2_fast((sink - sink) * c); }

  // Applies all terms before the window. whole: the tile of all threads lies within queries and keys.
  template <class Each> BARACUDA_D void add_to(const Each& each, int i, int j, bool whole = false) const {
    cap(each);
    add_biases(each, i, j, whole);
  }
  template <class Each> BARACUDA_D void cap(const Each& each) const {
    if (capped()) each([&](A& x, int, int) { x = squash(x); });
  }
  template <class Each> BARACUDA_D void add_biases(const Each& each, int i, int j, bool whole = false) const {
    if constexpr (!FAST) each([&](A& x, int, int) { x *= out; });
    if (sloped()) {
      const A ahead = static_cast<A>(i + shift - j);
      each([&](A& x, int r, int c_) { x = math::fma(-slope, math::abs(ahead + static_cast<A>(r - c_)), x); });
    }
    if constexpr (LEVEL == 2 && has_bits<P>) {
      if (masked()) each([&](A& x, int r, int c_) { x = bit(i + r, j + c_) ? x : -numeric<A>::infinity(); });
    } else if constexpr (LEVEL == 2) {
      if (masked())
        with_kind<A>(p.mask_kind, [&](auto kind) {
          using M = decltype(kind);
          if (whole && p.mask_pitch[3] == sizeof(M)) {  // a row's elements are constant offsets apart
            const char* const at = mask + i * p.mask_pitch[2] + j * static_cast<i64>(sizeof(M));
            each([&](A& x, int r, int c_) {
              const char* const from = at + r * p.mask_pitch[2] + c_ * static_cast<int>(sizeof(M));
              x = with_bias(x, as_bias<A>(*reinterpret_cast<const M*>(from)));
            });
            return;
          }
          each([&](A& x, int r, int c_) { x = with_bias(x, bias_as<M>(i + r, j + c_)); });
        });
    }
  }
  BARACUDA_D A squash(A x) const {
    if constexpr (FAST) return math::fast_tanh(x * inner);
    else return math::tanh(x * inner);
  }
  // The soft cap's derivative at x = squash(...).
  BARACUDA_D A through(A x) const { return capped() ? math::fma(-x, x, A(1)) : A(1); }

  // How far the score of x with its biases lies above `base`; -inf where the mask hides it. The large terms that cancel
  // are added first: in a row whose scores are all far from 0, as with ALiBi, rounding them first would leave few
  // digits of their differences. x is multiplied out first, as it was for the lse.
  BARACUDA_D A above(A base, A x, int i, int j) const {
    static_assert(!FAST, "x is multiplied out here");
    A rest = sloped() ? math::fma(-slope, math::abs(static_cast<A>(i + shift - j)), -base) : -base;
    if (masked()) {
      const A bias = mask_at(i, j);
      if (bias == -numeric<A>::infinity()) return bias;
      rest += bias;
    }
    return x * out + rest;
  }
  BARACUDA_D bool hides(int i, int j) const { return masked() && mask_at(i, j) == -numeric<A>::infinity(); }

  // Whether dropout keeps a weight.
  BARACUDA_D bool kept(int i, int j) const { return stays(philox_bits(seed, offset, element(i, j))); }

  // The same for a warp's fragments, bit e for element e of an accumulator. Four neighbouring keys are one block of the
  // Philox stream where rows are whole blocks: then lanes share the work. (i, j): the lane's first score.
  //
  //   by_rows      scores as Rows has them: keys along t, rows g and g + 8
  //   by_columns   transposed: keys g and g + 8, rows along t
  BARACUDA_D u32 kept_by_rows(int i, int j) const {
    if (key_len % 4 != 0) {
      return kept(i, j) | kept(i, j + 1) << 1 | kept(i + 8, j) << 2 | kept(i + 8, j + 1) << 3;
    }
    const bool right = lane_id() & 1;  // the left lane generates row g's block, the right one row g + 8's
    const Philox4 made = philox_block(seed, offset, element(i + (right ? 8 : 0), j - (right ? 2 : 0)) >> 2);
    const u32 a = __shfl_xor_sync(all_lanes, right ? made.x : made.z, 1);
    const u32 b = __shfl_xor_sync(all_lanes, right ? made.y : made.w, 1);
    const u32 mine = right ? stays(made.z) | stays(made.w) << 1 : stays(made.x) | stays(made.y) << 1;
    const u32 theirs = stays(a) | stays(b) << 1;
    return right ? theirs | mine << 2 : mine | theirs << 2;
  }
  // by_columns for 8 N rows, bits 4 n + e of one word, in two steps: this lane generates whole blocks of the stream,
  // then trades bits with the three lanes that share its four keys, which takes 2 shuffles for all rows.
  template <int N> BARACUDA_D u32 made_by_columns(int i, int j) const {
    u32 bits = 0;
    if (key_len % 4 != 0) {
#pragma unroll 1
      for (int n = 0; n < 4 * N; ++n) bits |= static_cast<u32>(kept(i + n / 4 * 8 + n % 2, j + n / 2 % 2 * 8)) << n;
      return bits;
    }
    const int r = lane_id() / 4 % 4;  // the element whose block of four keys this lane generates
    const u64 first = element(i + r % 2, j - r + r / 2 * 8) >> 2;
    const u32 most = (p.threshold << 8) - 1;  // the largest word that is dropped
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const Philox4 made = philox_block(seed, offset, first + 2 * n * static_cast<u64>(key_len));
      if (made.x > most) bits |= 1u << 4 * n;
      if (made.y > most) bits |= 2u << 4 * n;
      if (made.z > most) bits |= 4u << 4 * n;
      if (made.w > most) bits |= 8u << 4 * n;
    }
    return bits;
  }
  BARACUDA_D u32 traded_by_columns(u32 bits) const {  // transposes four bits of each of four lanes
    if (key_len % 4 != 0) return bits;
#pragma unroll
    for (int k = 1; k <= 2; k *= 2) {
      const bool upper = lane_id() / 4 & k;
      const u32 low = k == 1 ? 0x55555555u : 0x33333333u, got = __shfl_xor_sync(all_lanes, bits, 4 * k);
      bits = upper ? (bits & ~low) | (got >> k & low) : (bits & low) | (got & low) << k;
    }
    return bits;
  }

  // An element of the mask, clamped to the last: beyond it any will do, and loads without branches overlap.
  template <class M> BARACUDA_D M element_of(int i, int j) const {
    i = min(i, query_len - 1), j = min(j, key_len - 1);
    return *reinterpret_cast<const M*>(mask + i * p.mask_pitch[2] + j * p.mask_pitch[3]);
  }
  template <class M> BARACUDA_D A bias_as(int i, int j) const {  // -inf where it hides
    return as_bias<A>(element_of<M>(i, j));
  }

 private:
  BARACUDA_D u64 element(int i, int j) const { return row + static_cast<u64>(i) * key_len + j; }
  BARACUDA_D u32 stays(u32 bits) const { return bits >> 8 >= p.threshold; }
  BARACUDA_D bool bit(int i, int j) const {  // of a query beyond the last any will do
    return mask_bits<1>(p, mask, static_cast<i64>(min(i, query_len - 1)) * key_len + j) & 1;
  }
  BARACUDA_D A mask_at(int i, int j) const {
    if constexpr (has_bits<P>) return bit(i, j) ? A(0) : -numeric<A>::infinity();
    A found = 0;
    with_kind<A>(p.mask_kind, [&](auto kind) { found = bias_as<decltype(kind)>(i, j); });
    return found;
  }
  BARACUDA_D A finite(A bias) const {  // in that unit
    const A x = bias * units, most = numeric<A>::max();
    return math::abs(x) > most && math::abs(bias) <= numeric<A>::max() ? (x > A(0) ? most : -most) : x;
  }
};

template <class A> struct NoTerms {
  A c, natural;
  static constexpr A again = A(1);
  template <class P>
  BARACUDA_D NoTerms(const P& p, const Work&)
      : c(static_cast<A>(p.scale * 1.4426950408889634)), natural(static_cast<A>(p.scale)) {}
  template <class P> BARACUDA_D NoTerms(const P& p, i64, i64, i64) : NoTerms(p, Work{}) {}
};
template <int LEVEL, class A, bool FAST, class P>
using TermsOf = conditional<LEVEL != 0, Terms<LEVEL, A, FAST, P>, NoTerms<A>>;

}  // namespace baracuda::attention
