// packed_gemv    packed_gemm where a has few rows: a warp has two columns of y, of four rows, and its lanes take pieces
//                of 16 bytes of b in turn.
//
// Sums are integers of 32 bits, the same in every order.
#include <baracuda/reduce.cuh>
#include "quant_gemm/packed.cuh"
#include "quant_gemm/packed_out.cuh"

namespace baracuda {
namespace quant {

// N words of a line's bytes, of which `left` exist; the others are 0.
template <bool WIDE, int N> BARACUDA_D void line_words(u32 (&words)[N], const u8* at, i64 step, i64 left) {
#pragma unroll
  for (int n = 0; n < N; n += 4) {
    if (WIDE && left >= 4 * n + 16) {
      const auto four = load<4>(reinterpret_cast<const u32*>(at + 4 * n));
#pragma unroll
      for (int k = 0; k < 4; ++k) words[n + k] = four[k];
    } else {
#pragma unroll 1
      for (int k = 0; k < 4; ++k) {
        u32 word = 0;
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int byte = 4 * (n + k) + e;
          if (byte < left) word |= static_cast<u32>(at[byte * step]) << 8 * e;
        }
        if (k == 0) words[n] = word;
        else if (k == 1) words[n + 1] = word;
        else if (k == 2) words[n + 2] = word;
        else words[n + 3] = word;
      }
    }
  }
}

template <class K, bool WIDE, int ROWS, int COLS, class P>
BARACUDA_D void line_sums(int (&acc)[ROWS][COLS], const P& p, i64 m0, i64 n0) {
  const i64 bytes_a = K::bytes_a(p.k), bytes_b = K::bytes_b(p.k), pieces = div_up(bytes_b, 16);
#pragma unroll 1
  for (i64 piece = lane_id(); piece < pieces; piece += warp_size) {
    const i64 left = bytes_b - 16 * piece;
    Vec<u32, 4> b[COLS];
#pragma unroll
    for (int c = 0; c < COLS; ++c) {
      const i64 n = min<i64>(n0 + c, p.n - 1);  // a column past the end is not written
      const u8* const line = static_cast<const u8*>(p.b) + n * p.b_strides[0] + 16 * piece * p.b_strides[1];
      line_words<WIDE>(b[c].v, line, p.b_strides[1], left);
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      if (m0 + r >= p.m) continue;
      u32 a[K::A_BYTES / 4];
      const u8* const line = static_cast<const u8*>(p.a) + (m0 + r) * p.a_strides[0];
      line_words<WIDE>(a, line + K::A_BYTES * piece * p.a_strides[1], p.a_strides[1], bytes_a - K::A_BYTES * piece);
#pragma unroll
      for (int c = 0; c < COLS; ++c) acc[r][c] = K::dot(acc[r][c], a, b[c]);
    }
  }
}

}  // namespace quant

template <class K, class U> BARACUDA_D void packed_gemv(const PackedGemmParams& p) {
  constexpr int ROWS = packed_gemv_rows, COLS = packed_gemv_cols;  // of schedules/packed_gemm.py
  const i64 warp = static_cast<i64>(blockIdx.x) * (blockDim.x / warp_size) + threadIdx.x / warp_size;
  const i64 n0 = warp * COLS, m0 = static_cast<i64>(blockIdx.y) * ROWS;
  if (n0 >= p.n) return;
  int acc[ROWS][COLS] = {};
  if ((p.wide & 3) == 3) quant::line_sums<K, true>(acc, p, m0, n0);
  else quant::line_sums<K, false>(acc, p, m0, n0);
#pragma unroll
  for (int r = 0; r < ROWS; ++r)
#pragma unroll
    for (int c = 0; c < COLS; ++c) {
      const int sum = warp_reduce<Sum>(acc[r][c]);
      const i64 m = m0 + r, n = n0 + c;
      if (lane_id() != r * COLS + c || m >= p.m || n >= p.n) continue;
      static_cast<U*>(p.y)[m * p.y_strides[0] + n * p.y_strides[1]] =
          quant::packed_result<U>(p, m, n, K::finish(sum, p.k));
    }
}

}  // namespace baracuda
