#pragma once
// terms      what attention adds to its scores besides q k: soft cap, ALiBi, mask, sinks, dropout; formulas and sources on
//            the page, ops/attention/score_terms.py. P has the fields of `schedules/score_terms.py: TERMS`.
//
// A score x = q k becomes tanh(x scale / softcap) under a soft cap; with a bias then x to_2 + bias, a power of 2. What is
// left to be multiplied by is c.
//
// A thread's scores of a tile are `each`: each(f) calls f(x, r, c) for those at query i + r and key j + c, where (i, j) is
// the thread's own and r, c are constants once loops are unrolled.
#include <baracuda/attention.cuh>
#include <baracuda/philox.cuh>

namespace baracuda::attention {

// LEVEL 1: soft cap, ALiBi and sinks; 2: also masks and dropout, whose code in a kernel costs time even when it is jumped
// over (H200, wgmma, head_dim 128: a third of the throughput).
template <int LEVEL, class A, bool FAST, class P> struct Terms {
  const P& p;
  bool plain;             // scores stay as they are but for tanh
  A c, natural, again;    // what a score is multiplied by on its way into 2^x, what it is a multiple of, dropout's factor
  A inner, to_2, slope;   // into tanh, out of it, and ALiBi's: the latter two in powers of 2
  A sink;                 // in powers of 2; -inf without
  const char* mask;       // of the head
  u64 row, seed, offset;  // dropout's; the number of the head's first score in its stream
  int query_len, key_len, shift;

  BARACUDA_D explicit Terms(const P& params, i64 queries, i64 keys, i64 ahead, bool sinks) : p(params) {
    plain = p.slopes == nullptr && !masked() && !(sinks && p.sinks != nullptr);
    const double unit = p.softcap > 0 ? p.softcap : p.scale;
    inner = static_cast<A>(p.scale / unit);
    to_2 = static_cast<A>(unit * 1.4426950408889634);
    c = plain ? to_2 : A(1);
    natural = plain ? static_cast<A>(unit) : ln_2<A>;
    again = static_cast<A>(p.restored);
    seed = drops() ? p.seed() : 0, offset = drops() ? p.offset() : 0;
    query_len = static_cast<int>(queries), key_len = static_cast<int>(keys), shift = static_cast<int>(ahead);
  }
  BARACUDA_D Terms(const P& params, const Work& work)
      : Terms(params, work.query_len, work.key_len, work.shift, true) {
    enter(work.b, work.h);
    sink = p.sinks != nullptr ? static_cast<const A*>(p.sinks)[work.h] * log2_e<A> : -numeric<A>::infinity();
  }
  BARACUDA_D void enter(u32 b, u32 h) {
    slope = A(0);
    if (p.slopes != nullptr) {
      slope = static_cast<const A*>(p.slopes)[b * p.slope_stride[0] + h * p.slope_stride[1]] * log2_e<A>;
    }
    if constexpr (LEVEL == 2) {
      mask = static_cast<const char*>(p.mask) + b * p.mask_pitch[0] + h * p.mask_pitch[1];
      row = (static_cast<u64>(b) * p.num_heads + h) * query_len * key_len;
    }
  }

  BARACUDA_D bool masked() const { return LEVEL == 2 && p.mask != nullptr; }
  BARACUDA_D bool drops() const { return LEVEL == 2 && p.threshold != 0; }
  BARACUDA_D bool capped() const { return p.softcap > 0; }
  BARACUDA_D A sink_weight() const { return sink == -numeric<A>::infinity() ? A(0) : exp2_fast(sink - sink); }

  // Everything between q k and the window.
  template <class Each> BARACUDA_D void add_to(const Each& each, int i, int j) const {
    if (capped()) each([&](A& x, int, int) { x = squash(x); });
    if (plain) return;
    const A ahead = static_cast<A>(i + shift - j);
    each([&](A& x, int r, int c_) { x = math::fma(-slope, math::abs(ahead + static_cast<A>(r - c_)), x * to_2); });
    if constexpr (LEVEL == 2) {
      if (masked()) with_kind([&](auto kind) {
        each([&](A& x, int r, int c_) {
          const A m = mask_as<decltype(kind)>(i + r, j + c_);
          x = m == -numeric<A>::infinity() ? m : x + m;
        });
      });
    }
  }
  BARACUDA_D A squash(A x) const {
    if constexpr (FAST) return math::fast_tanh(x * inner);
    else return math::tanh(x * inner);
  }

  // For the backward: x, after tanh, to the exponent of its weight under the row's lse (a power of 2), -inf where the mask
  // hides it; and what tanh multiplies a gradient by.
  BARACUDA_D A exponent(A x, int i, int j, A lse) const {
    if (plain) return math::fma(x, to_2, -lse);
    const A ahead = static_cast<A>(i + shift - j);
    return biased_exponent(x, ahead, i, j, lse);
  }
  BARACUDA_D A biased_exponent(A x, A ahead, int i, int j, A lse) const {
    const A bias = math::fma(-slope, math::abs(ahead), -lse);
    if (!masked()) return math::fma(x, to_2, bias);
    const A m = mask_at(i, j);
    return m == -numeric<A>::infinity() ? m : math::fma(x, to_2, bias + m);
  }
  BARACUDA_D A through(A x) const { return capped() ? math::fma(-x, x, A(1)) : A(1); }
  BARACUDA_D bool hides(int i, int j) const { return masked() && mask_at(i, j) == -numeric<A>::infinity(); }

  // In powers of 2; finite values stay finite, so that a row of lowest numbers is not one of hidden keys.
  BARACUDA_D A mask_at(int i, int j) const {
    A found = 0;
    with_kind([&](auto kind) { found = mask_as<decltype(kind)>(i, j); });
    return found;
  }

  // Whether dropout leaves the weight, and with it the next key's.
  BARACUDA_D bool kept(int i, int j) const {
    const u64 element = row + static_cast<u64>(i) * key_len + j;
    return philox_bits(seed, offset, element) >> 8 >= p.threshold;
  }
  BARACUDA_D void kept_pair(bool (&kept)[2], int i, int j) const {
    const u64 element = row + static_cast<u64>(i) * key_len + j;
    const u32 lane = static_cast<u32>(element & 3);
    const Philox4 words = philox_block(seed, offset, element >> 2);
    kept[0] = philox_word(words, lane) >> 8 >= p.threshold;
    if (lane == 3) kept[1] = philox_bits(seed, offset, element + 1) >> 8 >= p.threshold;
    else kept[1] = philox_word(words, lane + 1) >> 8 >= p.threshold;
  }

 private:
  template <class F> BARACUDA_D void with_kind(const F& f) const {
    switch (p.mask_kind) {
      case 0: f(u8{}); break;
      case 1: f(f16{}); break;
      case 2: f(bf16{}); break;
      case 3: f(float{}); break;
      default:
        if constexpr (is_same<A, double>) f(double{});
    }
  }
  template <class M> BARACUDA_D A mask_as(int i, int j) const {
    // What lies beyond is hidden or not written: any element will do, and loads without branches overlap.
    i = min(i, query_len - 1), j = min(j, key_len - 1);
    const M found = *reinterpret_cast<const M*>(mask + i * p.mask_pitch[2] + j * p.mask_pitch[3]);
    if constexpr (is_same<M, u8>) {
      return found ? A(0) : -numeric<A>::infinity();
    } else {
      const A x = static_cast<A>(to_acc(found)), lowest = A(0.99) * numeric<A>::lowest();
      const A in_2 = x * log2_e<A>;
      return in_2 < lowest && x != -numeric<A>::infinity() ? lowest : in_2;
    }
  }
};

template <class A> struct NoTerms {
  A c, natural;
  static constexpr A again = A(1);
  template <class P>
  BARACUDA_D NoTerms(const P& p, const Work&)
      : c(static_cast<A>(p.scale * 1.4426950408889634)), natural(static_cast<A>(p.scale)) {}
  template <class P> BARACUDA_D NoTerms(const P& p, i64, i64, i64, bool) : NoTerms(p, Work{}) {}
};
template <int LEVEL, class A, bool FAST, class P>
using TermsOf = conditional<LEVEL != 0, Terms<LEVEL, A, FAST, P>, NoTerms<A>>;

}  // namespace baracuda::attention
