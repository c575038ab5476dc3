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
  A inner, c, natural, slope;  // natural: what x is a score's multiple of; slope in powers of 2 a key
  const char* mask;            // of the head
  u64 row;                     // number of the head's first score in dropout's stream
  u64 seed, offset;
  int low, high;               // query i sees the keys i + low <= j < i + high

  BARACUDA_D Terms(const P& params, u32 b, u32 h) : p(params) {
    const double unit = p.softcap > 0 ? p.softcap : p.scale;
    inner = static_cast<A>(p.scale / unit);
    natural = static_cast<A>(unit);
    c = static_cast<A>(unit * 1.4426950408889634);
    slope = A(0);
    if (p.slopes != nullptr) {
      slope = static_cast<const A*>(p.slopes)[b * p.slope_stride[0] + h * p.slope_stride[1]] * log2_e<A>;
    }
    mask = static_cast<const char*>(p.mask) + b * p.mask_pitch[0] + h * p.mask_pitch[1];
    row = (static_cast<u64>(b) * p.num_heads + h) * p.query_len * p.key_len;
    seed = p.threshold ? p.seed() : 0, offset = p.threshold ? p.offset() : 0;
    const i64 far = 1 << 30;
    low = static_cast<int>(max(-far, p.shift - p.left)), high = static_cast<int>(min(far, p.shift + p.right + 1));
  }

  // Whether scores leave squash() as they come, to be multiplied by c; with biases score() makes them powers of 2.
  BARACUDA_D bool plain() const { return p.slopes == nullptr && p.mask == nullptr && p.sinks == nullptr; }
  BARACUDA_D bool masked() const { return p.mask != nullptr; }

  template <class Each> BARACUDA_D void squash(const Each& each) const {
    if (p.softcap > 0) each([&](A& x, int, int) { x = squash_of(x * inner, FAST); });
  }
  template <class Each> BARACUDA_D void add_biases(const Each& each, int i, int j) const {
    if (plain()) return;
    const A ahead = static_cast<A>(i + static_cast<int>(p.shift) - j);
    each([&](A& x, int r, int c_) { x = math::fma(-slope, math::abs(ahead + static_cast<A>(r - c_)), x * c); });
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
    const int end = static_cast<int>(p.key_len) - j, from = i - j + low, to = i - j + high;
    each([&](A& x, int r, int c_) {
      if (c_ >= min(end, to + r) || c_ < from + r) x = -numeric<A>::infinity();
    });
  }

  BARACUDA_D A sink(u32 h) const { return static_cast<const A*>(p.sinks)[h] * log2_e<A>; }

  // One score's bias, in powers of 2; -inf hides it.
  BARACUDA_D A bias(int i, int j) const {
    const A sum = -slope * math::abs(static_cast<A>(i + static_cast<int>(p.shift) - j));
    return masked() ? sum + mask_at(i, j) : sum;
  }
  BARACUDA_D bool seen(int i, int j) const {
    return j < p.key_len && j >= i + low && j < i + high && (!masked() || mask_at(i, j) != -numeric<A>::infinity());
  }

  // In powers of 2; finite values stay finite, so that a row of lowest numbers is not one of hidden keys.
  BARACUDA_D A mask_at(int i, int j) const {
    A found = 0;
    with_kind([&](auto kind) { found = mask_as<decltype(kind)>(i, j); });
    return found;
  }

  // Whether dropout leaves the weight, and with it the next key's.
  BARACUDA_D bool kept(int i, int j) const {
    const u64 element = row + static_cast<u64>(i) * p.key_len + j;
    return philox_bits(seed, offset, element) >> 8 >= p.threshold;
  }
  BARACUDA_D void kept_pair(bool (&kept)[2], int i, int j) const {
    const u64 element = row + static_cast<u64>(i) * p.key_len + j;
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
    if (i >= p.query_len || j >= p.key_len) return A(0);
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
  BARACUDA_D Span(const P& p, i64 q0, i64 keys, i64 shift) : key_len(static_cast<int>(keys)), low(-ROWS), bounded(true) {
    const auto clamped = [&](i64 key) { return static_cast<int>(max<i64>(-ROWS, min<i64>(key, keys))); };
    if constexpr (TERMS) {
      low = clamped(q0 + shift - p.left);
      high = clamped(q0 + shift + p.right + 1);
    } else {
      bounded = p.causal;
      high = p.causal ? clamped(q0 + shift + 1) : key_len;
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

struct NoTerms {
  template <class P> BARACUDA_D NoTerms(const P&, u32, u32) {}
};
template <bool TERMS, class A, bool FAST, class P> using TermsOf = conditional<TERMS, Terms<A, FAST, P>, NoTerms>;

}  // namespace baracuda::attention
