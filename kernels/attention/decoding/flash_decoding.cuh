#pragma once
// flash_decoding    what the kernels of flash_decoding share: lengths, the base of weights, and where cells are.
//
// A Cache has a sequence's length and `bad`, whether the given length had to be clamped. Tiles and Cells are its cells
// as flash_decoding_mma and flash_decoding walk them: dense here, by a page table in batch_paged_decode.cu. A cell that
// `has` denies is not read, and no query sees it.
#include <baracuda/reduce.cuh>

namespace baracuda {
namespace decoding {

// as accurate as exp2f, but subnormal weights become 0
BARACUDA_D float exp2_fast(float x) { return math::fast_exp2(x); }
BARACUDA_D double exp2_fast(double x) { return math::exp2(x); }

// An element of an array of i64 where it is `wide`, else of i32.
BARACUDA_D i64 integer_at(const void* from, i64 at, bool wide) {
  return wide ? static_cast<const i64*>(from)[at] : static_cast<const i32*>(from)[at];
}

// The number of keys that sequence b sees, clamped to the cache, all without lengths; `bad` says whether that changed it.
template <class P> BARACUDA_D i64 length_of(const P& p, i64 b, bool& bad) {
  const i64 n = p.lengths == nullptr ? p.max_len : integer_at(p.lengths, b * p.lengths_stride, p.long_lengths);
  const i64 inside = min(p.max_len, max<i64>(0, n));
  bad = inside != n;
  return inside;
}

// The base of weights 2^((s - base) c): the maximum, or 0 while that is -inf. Taking the difference first keeps the low
// bits of large scores, whose products with c would each be rounded.
template <class A> BARACUDA_D A base_of(A top) { return top == -numeric<A>::infinity() ? A(0) : top; }

// Unscaled keys and values: a score is |scale| times the product with sign * q, outputs are not scaled.
struct Unscaled {
  template <class T> using Element = T;  // of the cache, for queries of T
  template <class P> static BARACUDA_D double scale(const P& p, i64) { return p.scale; }
  template <class P> static BARACUDA_D double sign(const P& p, i64) { return p.sign; }
  template <class P> static BARACUDA_D float value_scale(const P&, i64) { return 1.0f; }
  // tiles of 16 keys that a warp of flash_decoding_mma takes at once; keys of a split
  static constexpr int tiles = 1, split = split_keys;
  static constexpr bool capped = false;  // whether p.softcap may bound scores: softcap tanh(score / softcap)
  static constexpr bool terms = false;   // whether scores have slopes and sums sinks (flash_decoding_terms.cuh)
  static constexpr bool masked = false;  // whether a mask may hide cells, and the first may lie off 0
};

// The soft cap in units of a score before it is multiplied by `scale`, and its inverse, each computed in the type of
// `scale` and rounded once. The limits keep a score of zero and the smallest scales from infinities.
template <class A> struct SoftCap {
  A most, inverse;
  template <class P, class S> static BARACUDA_D SoftCap of(const P& p, S scale) {
    const S cap = static_cast<S>(p.softcap);
    return {static_cast<A>(math::minimum(cap / scale, S(0x1p+120))), static_cast<A>(within(scale / cap))};
  }
  BARACUDA_D A operator()(A score) const { return most * math::tanh(score * inverse); }

 private:
  template <class S> static BARACUDA_D S within(S x) {
    return math::maximum(S(0x1p-120), math::minimum(x, S(0x1p+120)));
  }
};

// The scores of one query head, kept where its weights are wanted: in `weights` itself, or in the workspace.
template <class A> struct Scores {
  A* at;
  template <class P>
  BARACUDA_D Scores(const P& p, i64 b, i64 h)
      : at(static_cast<A*>(p.weights != nullptr ? p.weights : p.scores) + b * p.score_stride[0] +
           h * p.score_stride[1]) {}
};

// Caches [batch, head, cell, d] with any outer strides.
struct DenseCache : Unscaled {
  static constexpr bool holes = false;  // whether cells before the length may be missing
  static constexpr i64 first = 0;       // the first cell that counts
  i64 length;                           // how many cells count
  bool bad;
  template <class P> BARACUDA_D DenseCache(const P& p, i64 b) : length(length_of(p, b, bad)) {}

  // The rows of the tiles that a warp copies: a lane has 16 bytes, from `column` on, of rows lane / 8 + 4 n. Tiles
  // begin at `first` and are `step` cells apart; each warp has `bytes` of shared memory for look-ups of the next AHEAD
  // tiles. Call `ask` first, when the length may still be in flight, then `start`; then all lanes have the current tile
  // until `next`; and `end` last.
  template <class C, int SUBS, int AHEAD> struct Tiles {
    static constexpr int bytes = 0;
    const C *k, *v;
    i64 k_row, v_row;
    template <class Any> BARACUDA_D Tiles(const Any&, void*) {}
    template <class P> BARACUDA_D void ask(const P&, i64, int) {}
    BARACUDA_D void end() {}
    template <class P> BARACUDA_D void start(const P& p, i64 b, i64 kv, i64 first, int column, int) {
      first += lane_id() / 8;
      k_row = p.k_stride[2], v_row = p.v_stride[2];
      k = static_cast<const C*>(p.k) + b * p.k_stride[0] + kv * p.k_stride[1] + first * k_row + column;
      v = static_cast<const C*>(p.v) + b * p.v_stride[0] + kv * p.v_stride[1] + first * v_row + column;
    }
    // Address of row n, and whether it exists: the first `ahead` rows of a tile do.
    BARACUDA_D const C* row(bool values, int n) const { return (values ? v : k) + n * 4 * (values ? v_row : k_row); }
    BARACUDA_D bool has(int n, int ahead) const { return lane_id() / 8 + n * 4 < ahead; }
    template <class P> BARACUDA_D void next(const P&, int step, int) {
      k += step * k_row;
      v += step * v_row;
    }
  };

  // Prepares `Cells` of a split; called by the whole block, which then synchronises.
  template <class A, class P> BARACUDA_D void locate(const P&, i64, int) {}

  // The keys (WHICH 0) or values (1) of a split that starts at k0.
  template <class C, int WHICH> struct Cells {
    const C* start;
    template <class P, class Any>
    BARACUDA_D Cells(const P& p, const Any&, i64 b, i64 kv, i64 k0)
        : start(static_cast<const C*>(WHICH == 0 ? p.k : p.v) + b * stride(p)[0] + kv * stride(p)[1] +
                k0 * stride(p)[2]) {}
    template <class P> static BARACUDA_D auto& stride(const P& p) {
      if constexpr (WHICH == 0) return p.k_stride;
      else return p.v_stride;
    }
    template <class P> BARACUDA_D const C* at(const P& p, int n) const { return start + n * stride(p)[2]; }
    // From a column of cell n - 1 to the same column of cell n.
    template <class P> BARACUDA_D const C* next(const P& p, const C* from, int, int) const {
      return from + stride(p)[2];
    }
    BARACUDA_D bool has(int) const { return true; }
  };
};

}  // namespace decoding

}  // namespace baracuda
