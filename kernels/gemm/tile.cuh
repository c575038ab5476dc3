#pragma once
// tile       a 64 x 64 tile of alpha * a b + beta * c by a block of 256 threads, any strides, without tensor cores.
//
// A thread computes 4 x 4 outputs (rows ty + 16 i, columns tx + 16 j) from 16-deep slices of a and b in shared memory.
// Each output is one chain of fused multiply-adds in the order of k, or, with PIECE, chains of that many added in
// order: the bits depend on neither the batch, nor m, n, nor the strides. Slices are read along whichever axis has
// stride 1. P has m, n, k, strides[4][2] (rows and columns of a, b, c, y), a_cols_dense, b_cols_dense.
#include <baracuda/index.cuh>
#include <baracuda/math.cuh>

namespace baracuda {

// The tile of this block; blocks are numbered along n, then m, then the batch.
struct GemmTile {
  static constexpr int size = 64;
  i64 m0, n0, batch;
  template <class P> BARACUDA_D explicit GemmTile(const P& p) {
    const i64 tiles_n = div_up(p.n, size), tiles_m = div_up(p.m, size), block = blockIdx.x;
    n0 = block % tiles_n * size;
    m0 = block / tiles_n % tiles_m * size;
    batch = block / (tiles_n * tiles_m);
  }
};

template <int PIECE = 0, class T, class U, class P, class A>
BARACUDA_D void gemm_tile(const P& p, const GemmTile& at, const T* a, const T* b, const U* c, U* y, A alpha, A beta) {
  constexpr int tile = GemmTile::size, depth = 16, threads = 256;
  __shared__ A sa[depth][tile + 1], sb[depth][tile + 1];
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  const i64 m0 = at.m0, n0 = at.n0;

  A sum[4][4] = {}, total[4][4] = {};
  const i64 terms = alpha == A(0) ? 0 : p.k;  // alpha 0: a and b are not read, so a NaN there does not reach y
  for (i64 k0 = 0; k0 < terms; k0 += depth) {
#pragma unroll
    for (int i = 0; i < tile * depth / threads; ++i) {
      const int e = i * threads + threadIdx.x;
      const int ka = p.a_cols_dense ? e % depth : e / tile, m = p.a_cols_dense ? e / depth : e % tile;
      const int kb = p.b_cols_dense ? e / tile : e % depth, n = p.b_cols_dense ? e % tile : e / depth;
      const bool in_a = m0 + m < p.m && k0 + ka < p.k, in_b = n0 + n < p.n && k0 + kb < p.k;
      sa[ka][m] = in_a ? to_acc(a[(m0 + m) * p.strides[0][0] + (k0 + ka) * p.strides[0][1]]) : A(0);
      sb[kb][n] = in_b ? to_acc(b[(k0 + kb) * p.strides[1][0] + (n0 + n) * p.strides[1][1]]) : A(0);
    }
    __syncthreads();
    const int left = static_cast<int>(min<i64>(depth, p.k - k0));  // without padding: adding 0 * 0 would turn -0 into 0
    for (int k = 0; k < left; ++k) {
      A ra[4], rb[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) ra[i] = sa[k][ty + 16 * i], rb[i] = sb[k][tx + 16 * i];
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[i][j] = math::fma(ra[i], rb[j], sum[i][j]);
    }
    __syncthreads();
    if (PIECE != 0 && ((k0 + depth) % PIECE == 0 || k0 + depth >= p.k)) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) total[i][j] += sum[i][j], sum[i][j] = A(0);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const i64 m = m0 + ty + 16 * i, n = n0 + tx + 16 * j;
      if (m >= p.m || n >= p.n) continue;
      A value = alpha * (PIECE == 0 ? sum[i][j] : total[i][j]);
      if (c != nullptr && beta != A(0))
        value = math::fma(beta, to_acc(c[m * p.strides[2][0] + n * p.strides[2][1]]), value);
      y[m * p.strides[3][0] + n * p.strides[3][1]] = from_acc<U>(value);
    }
  }
}

}  // namespace baracuda
