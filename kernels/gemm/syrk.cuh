#pragma once
// syrk       a aᵀ: the tiles on and below the diagonal, and the way of their results to both triangles.
//
// P has n, k, alpha, beta, strides (of a, aᵀ, c and y), batch_shape, batch_rank, batch (of a, c and y), band, and `wide`: a
// bit for each of a, c and y whose rows can be accessed 16 bytes at a time. A result is computed once and stored twice, so
// y[i, j] and y[j, i] are the same bits. Of c the lower triangle counts; where c is y, no other block writes what a
// block reads, as above the diagonal nothing is read.
#include <baracuda/index.cuh>
#include <baracuda/math.cuh>
#include <baracuda/scalar.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {

namespace syrk_matrix {
enum { a, a_transposed, c, y };
}

// Where the matrices of a batch index begin: a, c and y.
struct SyrkOffsets {
  i64 at[3];
  template <class P> BARACUDA_D SyrkOffsets(const P& p, i64 batch) {
    offsets<i64, 3>(batch, p.batch_rank, p.batch_shape, p.batch, at);
  }
};

// A tile of ROWS x COLS with a place on or below the diagonal, by its number. Tiles come in raster groups of
// p.band rows of tiles, for the L2 cache: first those that all rows of the group have, column by column, then the rest
// row by row.
template <int ROWS, int COLS> struct LowerTile {
  int m, n;  // the row and the column of tiles

  static BARACUDA_D u32 columns(u32 row) { return ((row + 1) * ROWS - 1) / COLS + 1; }  // of tiles that a row has
  template <class P> BARACUDA_D LowerTile(const P& p, u32 number) {
    const u32 rows = static_cast<u32>(div_up(p.n, i64(ROWS))), most = static_cast<u32>(div_up(p.n, i64(COLS)));
    u32 first = 0, height = 0;
#pragma unroll 1
    for (;; first += p.band) {
      height = min(rows - first, static_cast<u32>(p.band));
      u32 count = 0;
#pragma unroll 1
      for (u32 r = 0; r < height; ++r) count += min(columns(first + r), most);
      if (number < count || first + height >= rows) break;
      number -= count;
    }
    const u32 shared = min(columns(first), most);
    if (number < shared * height) {
      m = static_cast<int>(first + number % height), n = static_cast<int>(number / height);
      return;
    }
    number -= shared * height;
    u32 r = 0;
#pragma unroll 1
    for (; number >= min(columns(first + r), most) - shared; ++r) number -= min(columns(first + r), most) - shared;
    m = static_cast<int>(first + r), n = static_cast<int>(shared + number);
  }
};

// alpha · sum + beta · c, and its places in y.
template <class U, class A, class P> struct SyrkResult {
  const P& p;
  const A alpha, beta;
  const U* const c;
  U* const y;

  BARACUDA_D SyrkResult(const P& p, const SyrkOffsets& begin)
      : p(p), alpha(static_cast<A>(p.alpha())), beta(p.c == nullptr ? A(0) : static_cast<A>(p.beta())),
        c(static_cast<const U*>(p.c) + begin.at[1]), y(static_cast<U*>(p.y) + begin.at[2]) {}

  // Of columns n … n + N - 1 of row m, of which those before `left` exist; what is above the diagonal counts for nothing.
  template <int N> BARACUDA_D Vec<A, N> of(i64 m, i64 n, i64 left, const Vec<A, N>& sum) const {
    Vec<A, N> x;
#pragma unroll
    for (int e = 0; e < N; ++e) x[e] = alpha * sum[e];
    if (beta == A(0)) return x;
    const i64* const step = p.strides[syrk_matrix::c];
    const U* const from = c + m * step[0] + n * step[1];
    const i64 there = min<i64>(left, m - n + 1);
    const bool whole = (p.wide >> 1 & 1) && there >= N;
    const auto more = to_acc(whole ? load<N>(from) : load_strided<U, N>(from, step[1], there));
#pragma unroll
    for (int e = 0; e < N; ++e) x[e] = math::fma(beta, more[e], x[e]);
    return x;
  }
  // Stores those of row m that are on or below the diagonal.
  template <int N> BARACUDA_D void below(i64 m, i64 n, i64 left, const Vec<A, N>& x) const {
    put(m, n, 0, min<i64>(left, m - n + 1), from_acc<U>(x));
  }
  // Rows m … of column n, of which those before `left` exist: stores those below the diagonal in row n.
  template <int N> BARACUDA_D void above(i64 m, i64 n, i64 left, const Vec<A, N>& x) const {
    put(n, m, n - m + 1, left, from_acc<U>(x));
  }

 private:
  // Elements `from` … `to` - 1 of N neighbours in a row.
  template <int N> BARACUDA_D void put(i64 row, i64 col, i64 from, i64 to, const Vec<U, N>& x) const {
    const i64* const step = p.strides[syrk_matrix::y];
    U* const at = y + row * step[0] + col * step[1];
    if ((p.wide >> 2 & 1) && from <= 0 && to >= N) return store(at, x);
#pragma unroll
    for (int e = 0; e < N; ++e) {
      if (e >= from && e < to) at[e * step[1]] = x[e];
    }
  }
};

}  // namespace baracuda
