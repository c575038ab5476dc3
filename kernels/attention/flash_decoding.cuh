#pragma once
// flash_decoding    what the schedules of flash_decoding share: lengths, the base of weights, and where cells stand.
//
// A Cache is a sequence's length and `bad`, whether what was given had to be clamped. Tiles and Cells are its cells
// as flash_decoding_mma and flash_decoding walk them: dense here, by a page table in paged_decode.cuh. A cell that
// `has` denies is not read, and no query sees it.
#include <baracuda/reduce.cuh>

namespace baracuda {
namespace decoding {

constexpr int split_keys = 256;

BARACUDA_D float exp2_fast(float x) { return math::fast_exp2(x); }  // as accurate as exp2f, but subnormal weights are 0
BARACUDA_D double exp2_fast(double x) { return math::exp2(x); }

// Keys sequence b sees, clamped to the cache; `bad` says whether that changed it.
template <class P> BARACUDA_D i64 length_of(const P& p, i64 b, bool& bad) {
  const i64 at = b * p.lengths_stride;
  const i64 n = p.long_lengths ? static_cast<const i64*>(p.lengths)[at] : static_cast<const i32*>(p.lengths)[at];
  const i64 inside = min(p.max_len, max<i64>(0, n));
  bad = inside != n;
  return inside;
}

// What weights are taken under: the maximum scaled, and 0 while it is -inf.
template <class A> BARACUDA_D A base_of(A top, A c) { return top == -numeric<A>::infinity() ? A(0) : top * c; }

// Keys and values as they are: scores are |scale| times the product with sign q, outputs are not scaled.
struct Unscaled {
  template <class T> using Element = T;  // of the cache, for queries of T
  template <class P> static BARACUDA_D double scale(const P& p, i64) { return p.scale; }
  template <class P> static BARACUDA_D double sign(const P& p, i64) { return p.sign; }
  template <class P> static BARACUDA_D float value_scale(const P&, i64) { return 1.0f; }
};

// The scores of one query head, where its weights are asked for: in `weights` itself, or in the workspace.
template <class A> struct Scores {
  A* at;
  template <class P> BARACUDA_D Scores(const P& p, i64 b, i64 h)
      : at(static_cast<A*>(p.weights != nullptr ? p.weights : p.scores) + b * p.score_stride[0] + h * p.score_stride[1]) {}
  // Two neighbours, of which `left` are there.
  BARACUDA_D void put(i64 key, const A* two, int left) const {
    if (left > 0) at[key] = two[0];
    if (left > 1) at[key + 1] = two[1];
  }
};

// What a block of flash_decoding_mma takes.
struct Place {
  u32 sequence, kv_head, part;
};

// Caches [batch, head, cell, d] with any outer strides.
struct DenseCache : Unscaled {
  static constexpr bool holes = false;  // whether cells before the length may be missing
  i64 length;
  bool bad;
  static BARACUDA_D Place place(u32 block, u32 parts, u32 kv_heads) {
    return {block / parts / kv_heads, block / parts % kv_heads, block % parts};
  }
  template <class P> BARACUDA_D DenseCache(const P& p, i64 b) : length(length_of(p, b, bad)) {}

  // A lane's part of the tiles a warp copies: 16 bytes, from `column` on, of each tile's rows r + 4 n, r < 4; `first` is
  // the first tile's row r, and tiles are `step` cells apart.
  template <class C> struct Tiles {
    const C *k, *v;
    i64 k_row, v_row;
    template <class P>
    BARACUDA_D Tiles(const P& p, const DenseCache&, i64 b, i64 kv, i64 first, int column, int)
        : k(static_cast<const C*>(p.k) + b * p.k_stride[0] + kv * p.k_stride[1] + first * p.k_stride[2] + column),
          v(static_cast<const C*>(p.v) + b * p.v_stride[0] + kv * p.v_stride[1] + first * p.v_stride[2] + column),
          k_row(p.k_stride[2]), v_row(p.v_stride[2]) {}
    BARACUDA_D const C* row(bool values, int n) const { return (values ? v : k) + n * 4 * (values ? v_row : k_row); }
    BARACUDA_D bool has(int) const { return true; }
    template <class P> BARACUDA_D void next(const P&, int step) {
      k += step * k_row;
      v += step * v_row;
    }
  };

  // What `Cells` of a split needs: called by the whole block, which then synchronises.
  template <class P> BARACUDA_D void locate(const P&, i64, int) {}

  // The keys (WHICH 0) or values (1) of a split that starts at k0.
  template <class C, int WHICH> struct Cells {
    const C* start;
    template <class P>
    BARACUDA_D Cells(const P& p, const DenseCache&, i64 b, i64 kv, i64 k0)
        : start(static_cast<const C*>(WHICH == 0 ? p.k : p.v) + b * stride(p)[0] + kv * stride(p)[1] + k0 * stride(p)[2]) {}
    template <class P> static BARACUDA_D auto& stride(const P& p) {
      if constexpr (WHICH == 0) return p.k_stride;
      else return p.v_stride;
    }
    template <class P> BARACUDA_D const C* at(const P& p, int n) const { return start + n * stride(p)[2]; }
    // From cell n - 1's column to cell n's.
    template <class P> BARACUDA_D const C* next(const P& p, const C* from, int, int) const { return from + stride(p)[2]; }
    BARACUDA_D bool has(int) const { return true; }
  };
};

}  // namespace decoding

}  // namespace baracuda
