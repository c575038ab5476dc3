// fp8_gemm   alpha · a b of fp8 with scales, and the epilogue (gemm/epilogue.cuh), for any strides, without tensor cores.
//
// A block of 256 threads computes a tile of 64 x 64, a thread 4 x 4 sums (rows ty + 16 i, columns tx + 16 j), from
// slices of 128 of k as f16, which holds fp8 exactly. 128 terms are one chain of fused multiply-adds in the order of k;
// the chains are scaled (see gemm/wgmma_fp8.cuh) and added in order.
#include <baracuda/fp8_cast.cuh>
#include <baracuda/math.cuh>
#include "gemm/epilogue.cuh"
#include "gemm/tile.cuh"

namespace baracuda {

template <class TA, class TB, class U> BARACUDA_D void fp8_gemm(const Fp8GemmParams& p) {
  using V = conditional<is_fp8<U>, float, U>;  // of the bias
  constexpr int tile = GemmTile::size, depth = 128, threads = 256;
  __shared__ __half2 left[tile][depth / 2 + 1], right[tile][depth / 2 + 1];
  const GemmTile at(p);
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  const Epilogue<U, V, float, false, Fp8GemmParams> epilogue(p, BatchOffsets(p, 0));

  // A slice of an operand, whose lines are its rows of a or columns of b.
  const auto fill = [&](auto& to, const auto* from, const i64(&step)[2], i64 first, i64 lines, i64 k0, bool along) {
    f16* const flat = reinterpret_cast<f16*>(&to[0][0]);
    for (int e = threadIdx.x; e < tile * depth; e += threads) {
      const int k = along ? e % depth : e / tile, line = along ? e / depth : e % tile;
      const bool some = first + line < lines && k0 + k < p.k;
      const float x = some ? to_acc(from[(first + line) * step[0] + (k0 + k) * step[1]]) : 0.0f;
      flat[line * (depth + 2) + k] = __float2half_rn(x);
    }
  };
  const i64 of_b[2] = {p.strides[gemm_matrix::b][1], p.strides[gemm_matrix::b][0]};
  const float *const block_a = static_cast<const float*>(p.block_a), *const block_b =
                                                                         static_cast<const float*>(p.block_b);

  float total[4][4] = {};
  const i64 terms = epilogue.multiplies() ? p.k : 0;
  for (i64 k0 = 0; k0 < terms; k0 += depth) {
    fill(left, static_cast<const TA*>(p.a), p.strides[gemm_matrix::a], at.m0, p.m, k0, p.a_cols_dense);
    fill(right, static_cast<const TB*>(p.b), of_b, at.n0, p.n, k0, !p.b_cols_dense);
    __syncthreads();
    float sum[4][4] = {};
#pragma unroll 2
    for (int k = 0; k < depth / 2; ++k) {
      float2 a[4], b[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        a[i] = __half22float2(left[ty + 16 * i][k]), b[i] = __half22float2(right[tx + 16 * i][k]);
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[i][j] = math::fma(a[i].y, b[j].y, math::fma(a[i].x, b[j].x, sum[i][j]));
    }
    __syncthreads();
    const i64 s = k0 / depth;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const i64 m = min(at.m0 + ty + 16 * i, p.m - 1);
      const float of_row = block_a == nullptr ? 1.0f : block_a[m * p.a_blocks[0] + s * p.a_blocks[1]];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const i64 n = min(at.n0 + tx + 16 * j, p.n - 1);
        const float by = block_b == nullptr ? of_row : of_row * block_b[s * p.b_blocks[0] + n / 128 * p.b_blocks[1]];
        total[i][j] = math::fma(sum[i][j], by, total[i][j]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const i64 m = at.m0 + ty + 16 * i, n = at.n0 + tx + 16 * j;
      if (m >= p.m || n >= p.n) continue;
      Vec<float, 1> x;
      x[0] = total[i][j];
      epilogue.row(m, n, 1, x, x);
    }
  }
}

}  // namespace baracuda
