#pragma once
// terms      what attention adds to its scores or hides of them: window, soft cap, ALiBi, mask, sinks, dropout; formulas and
//            sources on the page, ops/attention/score_terms.py. P has the fields of `schedules/score_terms.py: TERMS`.
//
// A score x = q k goes through squash(), tanh(x scale / softcap) under a soft cap; then score() = x c + bias is in powers
// of 2, c being log2(e) times the scale or the cap. Without biases a kernel may keep x and multiply by c later.
//
// A thread's scores of a tile are `each`: each(f) calls f(x, r, c) for those at query i + r and key j + c, where (i, j) is
// the thread's own and r, c are constants once loops are unrolled.
#include <baracuda/attention.cuh>
#include <baracuda/philox.cuh>

namespace baracuda::attention {

BARACUDA_D float squash_of(float x, bool fast) { return fast ? math::fast_tanh(x) : math::tanh(x); }
BARACUDA_D double squash_of(double x, bool) { return math::tanh(x); }

template <class A, bool FAST, class P> struct Terms {
  const P& p;
  A c, natural, again;   // what a score is multiplied by on its way into 2^x, what it is a multiple of, dropout's factor
  A inner, to_2, slope;  // into tanh, out of it, and ALiBi's: the latter two in powers of 2
  A sink;                // in powers of 2; -inf without
  const char* mask;      // of the head
  u64 row, seed, offset;  // dropout's; the number of the head's first score in its stream
  int query_len, key_len, shift, low, high;  // query i sees the keys i + low <= j < i + high

  BARACUDA_D Terms(const P& params, const Work& work) : p(params) {
    const double unit = p.softcap > 0 ? p.softcap : p.scale;
    inner = static_cast<A>(p.scale / unit);
    to_2 = static_cast<A>(unit * 1.4426950408889634);
    c = plain() ? to_2 : A(1);
    natural = plain() ? static_cast<A>(unit) : ln_2<A>;
    again = static_cast<A>(p.restored);
    slope = A(0), sink = -numeric<A>::infinity();
    if (p.slopes != nullptr) {
      slope = static_cast<const A*>(p.slopes)[work.b * p.slope_stride[0] + work.h * p.slope_stride[1]] * log2_e<A>;
    }
    if (p.sinks != nullptr) sink = static_cast<const A*>(p.sinks)[work.h] * log2_e<A>;
    mask = static_cast<const char*>(p.mask) + work.b * p.mask_pitch[0] + work.h * p.mask_pitch[1];
    query_len = static_cast<int>(work.query_len), key_len = static_cast<int>(work.key_len);
    row = (static_cast<u64>(work.b) * p.num_heads + work.h) * query_len * key_len;
    seed = p.threshold ? p.seed() : 0, offset = p.threshold ? p.offset() : 0;
    const i64 far = 1 << 30;
    shift = static_cast<int>(work.shift);
    low = static_cast<int>(max(-far, work.shift - p.left)), high = static_cast<int>(min(far, work.shift + p.right + 1));
  }

  // Without biases scores leave squash() to be multiplied by c later; with biases they become powers of 2.
  BARACUDA_D bool plain() const { return p.slopes == nullptr && p.mask == nullptr && p.sinks == nullptr; }
  BARACUDA_D bool masked() const { return p.mask != nullptr; }
  BARACUDA_D A sink_weight() const { return sink == -numeric<A>::infinity() ? A(0) : exp2_fast(sink - sink); }

  template <class Each> BARACUDA_D void squash(const Each& each) const {
    if (p.softcap > 0) each([&](A& x, int, int) { x = squash_of(x * inner, FAST); });
  }
  template <class Each> BARACUDA_D void add_biases(const Each& each, int i, int j) const {
    if (plain()) return;
    const A ahead = static_cast<A>(i + shift - j);
    each([&](A& x, int r, int c_) { x = math::fma(-slope, math::abs(ahead + static_cast<A>(r - c_)), x * to_2); });
    if (masked()) {
      with_kind([&](auto kind) {
        each([&](A& x, int r, int c_) {
          const A m = mask_as<decltype(kind)>(i + r, j + c_);
          x = m == -numeric<A>::infinity() ? m : x + m;
        });
      });
    }
  }
  template <class Each> BARACUDA_D void hide(const Each& each, int i, int j) const {
    const int end = key_len - j, from = i - j + low, to = i - j + high;
    each([&](A& x, int r, int c_) {
      if (c_ >= min(end, to + r) || c_ < from + r) x = -numeric<A>::infinity();
    });
  }

  // One score's bias, in powers of 2; -inf hides it.
  BARACUDA_D A bias(int i, int j) const {
    const A sum = -slope * math::abs(static_cast<A>(i + shift - j));
    return masked() ? sum + mask_at(i, j) : sum;
  }
  BARACUDA_D bool seen(int i, int j) const {
    return j < key_len && j >= i + low && j < i + high && (!masked() || mask_at(i, j) != -numeric<A>::infinity());
  }

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
    if (i >= query_len || j >= key_len) return A(0);
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

// Which keys the rows of a tile of queries see: row r those from low + r up to high + r (exclusive), if they exist.
template <bool TERMS, int ROWS> struct Span {
  int key_len, low, high;
  bool bounded;  // some row may see less than all keys
  template <class P>
  BARACUDA_D Span(const P& p, const Work& work) : key_len(static_cast<int>(work.key_len)), low(-ROWS), bounded(true) {
    const auto clamped = [&](i64 key) { return static_cast<int>(max<i64>(-ROWS, min(key, work.key_len))); };
    const i64 at = work.first + work.shift;
    if constexpr (TERMS) {
      low = clamped(at - p.left);
      high = clamped(at + p.right + 1);
    } else {
      bounded = p.causal;
      high = p.causal ? clamped(at + 1) : key_len;
    }
  }
  // Keys before `first` no row sees, nor those from end(rows) on the first `rows` rows; end may be <= 0.
  template <int KEYS> BARACUDA_D int first() const { return TERMS ? max(0, low) / KEYS * KEYS : 0; }
  BARACUDA_D int end(int rows) const { return min(key_len, high + rows - 1); }
  // Whether some row sees less than all of a tile of keys.
  template <int KEYS> BARACUDA_D bool cuts(int k0) const {
    return k0 + KEYS > min(key_len, high) || (TERMS && k0 < low + ROWS - 1);
  }
};

// Everything before the exponentials, on the scores that a warp keeps; its first row and the tile's first key are i, j.
template <class Terms, class R> BARACUDA_D void add_terms(const Terms& terms, R& r, int i, int j, bool cut) {
  const auto each = [&](const auto& f) { r.each(f); };
  const int row = i + R::lane_row(), key = j + R::lane_key();
  terms.squash(each);
  terms.add_biases(each, row, key);
  if (cut) terms.hide(each, row, key);
}

template <class A> struct NoTerms {
  A c, natural;
  static constexpr A again = A(1), sink = -A(1) / A(0);
  template <class P>
  BARACUDA_D NoTerms(const P& p, const Work&)
      : c(static_cast<A>(p.scale * 1.4426950408889634)), natural(static_cast<A>(p.scale)) {}
  BARACUDA_D A sink_weight() const { return A(0); }
};
template <bool TERMS, class A, bool FAST, class P> using TermsOf = conditional<TERMS, Terms<A, FAST, P>, NoTerms<A>>;

}  // namespace baracuda::attention
