#pragma once
// quantized  what the kernels of quantized_sdpa share: codes of queries and keys in shared memory, what scores are
//            multiplied by, and how outputs are stored.
//
// A code is a byte, i8 or e4m3. A tile of codes is one of pairs, as the fragments of bytes (mma_deep.cuh) are those of
// 16-bit pairs. A score in powers of 2 is the product of codes times the scale of its query's block times that of its
// keys' block times unit_log2 = scale log2(e); blocks of keys are whole tiles, so that a row has one factor a tile.
#include "attention/flash.cuh"
#include <baracuda/fp8_cast.cuh>

namespace baracuda {
namespace attention {

// What values of V are multiplied as.
template <class V> using value_t = conditional<is_fp8<V>, f16, V>;

// tile[r][c] = the codes of row r for r < rows and c < cols bytes, zeros elsewhere, in ROWS x PAIRS pairs. As tile::copy.
template <int ROWS, int PAIRS, int THREADS>
BARACUDA_D void copy_codes(u16* tile, const u8* from, i64 stride, int rows, int cols, bool wide) {
  if (wide) {
    const Strided<u16> source{reinterpret_cast<const u16*>(from), stride / 2};
    tile::copy<ROWS, PAIRS, THREADS>(tile, source, rows, cols / 2, true);
    return;
  }
  u8* const bytes = reinterpret_cast<u8*>(tile);
#pragma unroll 1
  for (int n = threadIdx.x; n < ROWS * PAIRS * 2; n += THREADS) {
    const int r = n / (2 * PAIRS), c = n % (2 * PAIRS);
    bytes[2 * tile::at<PAIRS>(r, c / 16) + c % 16] = r < rows && c < cols ? from[r * stride + c] : u8(0);
  }
}

// The scale of query `row` of a head, and of the block of keys that key `key` is in.
template <class P> BARACUDA_D float query_scale(const P& p, u32 b, u32 h, i64 row) {
  const i64 at = b * p.q_scale_stride[0] + h / p.q_scale_group * p.q_scale_stride[1];
  return static_cast<const float*>(p.q_scale)[at + row / p.q_block * p.q_scale_stride[2]];
}
template <class P> BARACUDA_D float key_scale(const P& p, u32 b, u32 kv, i64 key) {
  const i64 at = b * p.k_scale_stride[0] + kv * p.k_scale_stride[1];
  return static_cast<const float*>(p.k_scale)[at + key / p.k_block * p.k_scale_stride[2]];
}
// What outputs are multiplied by.
template <class P> BARACUDA_D float output_scale(const P& p, u32 b, u32 kv) {
  const float by = static_cast<float>(p.out_scale());
  if (p.v_scale == nullptr) return by;
  return by * static_cast<const float*>(p.v_scale)[b * p.v_scale_stride[0] + kv * p.v_scale_stride[1]];
}

// The scales of a lane's rows, times unit_log2.
template <int MT, class P> BARACUDA_D void scale_rows(float (&scales)[MT][2], const P& p, const Work& work, int row0) {
#pragma unroll
  for (int m = 0; m < MT; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const i64 row = min(work.first + row0 + 16 * m + 8 * half + lane_id() / 4, work.query_len - 1);
      scales[m][half] = query_scale(p, work.b, work.h, row) * p.unit_log2;
    }
  }
}

// Makes scores in powers of 2 of the products of codes.
template <class Rows, class S, int MT, int N>
BARACUDA_D void scale_scores(Rows& rows, const S (&products)[MT][N][4], const float (&scales)[MT][2], float keys) {
#pragma unroll
  for (int m = 0; m < MT; ++m) {
    const float by[2] = {scales[m][0] * keys, scales[m][1] * keys};
#pragma unroll
    for (int n = 0; n < N; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) rows.scores[m][n][e] = static_cast<float>(products[m][n][e]) * by[e / 2];
    }
  }
}

// Writes a warp's rows to `out`, elements of 16 bits by way of `own`, 16 MT rows of D that are the warp's; all may write
// to shared memory. Also the lse.
template <int D, int MT, class Y, class P, class Rows>
BARACUDA_D void store_rows(const P& p, Rows& rows, const Work& work, int row0, int row_count, Y* own) {
  float* const lse = p.lse == nullptr ? nullptr : static_cast<float*>(p.lse) + work.stat + row0;
  float factors[MT][2];
  rows.close(factors, output_scale(p, work.b, work.kv));
  rows.put_lse(lse, row_count - row0);
  Y* const y = work.template outputs<Y>(p.y, p.stride[3], row0);
  const i64 stride = p.stride[3][2];
  if constexpr (sizeof(Y) == 2) {
#pragma unroll
    for (int m = 0; m < MT; ++m) {
#pragma unroll
      for (int n = 0; n < D / 8; ++n) tile::put<D>(own, 16 * m, 8 * n, rows.acc[m][n], factors[m][0], factors[m][1]);
    }
    __syncwarp();
    tile::copy_out<16 * MT, D, warp_size>(y, stride, own, lane_id(), row_count - row0, p.d_v, p.wide & 8);
  } else {
#pragma unroll
    for (int m = 0; m < MT; ++m) {
#pragma unroll
      for (int n = 0; n < D / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int r = 16 * m + e / 2 * 8 + lane_id() / 4, c = 8 * n + lane_id() % 4 * 2 + e % 2;
          if (row0 + r < row_count && c < p.d_v) y[r * stride + c] = from_acc<Y>(rows.acc[m][n][e] * factors[m][e / 2]);
        }
      }
    }
  }
}

}  // namespace attention
}  // namespace baracuda
