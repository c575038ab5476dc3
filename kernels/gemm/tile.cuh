#pragma once
// tile       the sums of a 64 x 64 tile of a product by a block of 256 threads, any strides, without tensor cores.
//
// A thread computes 4 x 4 sums (rows ty + 16 i, columns tx + 16 j) from 16-deep slices of a and b in shared memory. Each
// sum is one chain of fused multiply-adds in the order of k, or, with PIECE, chains of that many added in order: the
// bits depend on neither the batch, nor m, n, nor the strides. Slices are read along whichever axis has stride 1. P has
// m, n, k, strides of rows and columns (a, b and, where there is a second right matrix, up), a_cols_dense, b_cols_dense.
#include <baracuda/index.cuh>
#include <baracuda/math.cuh>

namespace baracuda {

// The tile of this block; blocks are numbered along n, then m, then the batch.
struct GemmTile {
  static constexpr int size = 64;
  i64 m0, n0, batch;
  BARACUDA_D GemmTile(i64 m0, i64 n0) : m0(m0), n0(n0), batch(0) {}
  template <class P> BARACUDA_D explicit GemmTile(const P& p) {
    const i64 tiles_n = div_up(p.n, size), tiles_m = div_up(p.m, size), block = blockIdx.x;
    n0 = block % tiles_n * size;
    m0 = block / tiles_n % tiles_m * size;
    batch = block / (tiles_n * tiles_m);
  }
};

// Calls sink(m, n, sums) for every place of the tile: the sums of its products with each of the RIGHT matrices `b`.
// multiplies false: nothing is read, the sums are 0.
template <int PIECE = 0, int RIGHT = 1, class T, class P, class Sink>
BARACUDA_D void gemm_tile(const P& p, const GemmTile& at, const T* a, const T* const (&b)[RIGHT], bool multiplies,
                          const Sink& sink) {
  using A = acc_t<T>;
  constexpr int tile = GemmTile::size, depth = 16, threads = 256;
  __shared__ A sa[depth][tile + 1], sb[RIGHT][depth][tile + 1];
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  const i64 m0 = at.m0, n0 = at.n0;

  A acc[RIGHT][4][4] = {}, total[RIGHT][4][4] = {};
  const i64 terms = multiplies ? p.k : 0;
  for (i64 k0 = 0; k0 < terms; k0 += depth) {
    // Copy a slice; what does not exist is zeros.
#pragma unroll
    for (int i = 0; i < tile * depth / threads; ++i) {
      const int e = i * threads + threadIdx.x;
      const int ka = p.a_cols_dense ? e % depth : e / tile, m = p.a_cols_dense ? e / depth : e % tile;
      const int kb = p.b_cols_dense ? e / tile : e % depth, n = p.b_cols_dense ? e % tile : e / depth;
      const bool in_a = m0 + m < p.m && k0 + ka < p.k, in_b = n0 + n < p.n && k0 + kb < p.k;
      sa[ka][m] = in_a ? to_acc(a[(m0 + m) * p.strides[0][0] + (k0 + ka) * p.strides[0][1]]) : A(0);
#pragma unroll
      for (int r = 0; r < RIGHT; ++r) {
        const i64* const step = p.strides[1 + r];
        sb[r][kb][n] = in_b ? to_acc(b[r][(k0 + kb) * step[0] + (n0 + n) * step[1]]) : A(0);
      }
    }
    __syncthreads();
    // Multiply it.
    const int left = static_cast<int>(min<i64>(depth, p.k - k0));  // without padding: adding 0 * 0 would turn -0 into 0
    for (int k = 0; k < left; ++k) {
      A ra[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) ra[i] = sa[k][ty + 16 * i];
#pragma unroll
      for (int r = 0; r < RIGHT; ++r) {
        A rb[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) rb[j] = sb[r][k][tx + 16 * j];
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int j = 0; j < 4; ++j) acc[r][i][j] = math::fma(ra[i], rb[j], acc[r][i][j]);
      }
    }
    __syncthreads();
    if (PIECE != 0 && ((k0 + depth) % PIECE == 0 || k0 + depth >= p.k)) {
#pragma unroll
      for (int r = 0; r < RIGHT; ++r)
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int j = 0; j < 4; ++j) total[r][i][j] += acc[r][i][j], acc[r][i][j] = A(0);
    }
  }
  // Epilogue.
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const i64 m = m0 + ty + 16 * i, n = n0 + tx + 16 * j;
      if (m >= p.m || n >= p.n) continue;
      A sums[RIGHT];
#pragma unroll
      for (int r = 0; r < RIGHT; ++r) sums[r] = PIECE == 0 ? acc[r][i][j] : total[r][i][j];
      sink(m, n, sums);
    }
  }
}

}  // namespace baracuda
