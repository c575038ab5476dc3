#pragma once
// block_gemm_rows   the tile of a product by stored weights that tensor cores make: up to 32 rows of x, of f16 or bf16
//                   with sums in float, by weights that are decoded in registers.
//
// W is the left operand of mma.sync: 16 of its rows by 16 of k, times 16 of k of 8 rows of x. Which k stands in which
// place of a fragment is free as long as both agree: of a chunk of 128, lane (g, q) has the run 32 q … 32 q + 31 of the
// rows g and g + 8 of W, and product j of 8 takes 4 j … 4 j + 3 of each run. Chunk c is warp c % 8's; a warp adds its
// chunks in order, each 8 of them a chain of their own, then the chains, and the warps are added as a tree. So the order
// depends on k alone: neither on the number of rows of x nor on how many of them, 8 NT, a block has.
#include "quant_gemm/block_gemm.cuh"
#include <baracuda/mma.cuh>
#include <baracuda/reduce.cuh>

namespace baracuda {

constexpr int block_gemm_threads = 256, block_gemm_warps = 8, block_gemm_chunk = 128;

// How many values are taken at once.
template <int N> struct Values {
  static constexpr int count = N;
};

// N neighbours of a row of W as words of fragments: value j is in word (j / 4, j % 4 / 2), `half` says which row it is.
template <class T, int N> BARACUDA_D void to_fragments(const float (&x)[N], int half, u32 (&words)[N / 4][4]) {
#pragma unroll
  for (int j = 0; j < N; j += 2) words[j / 4][j % 4 + half] = pack_pair<T>(x[j], x[j + 1]);
}

// How many columns of y a block has, beside 8 NT rows.
constexpr int block_gemm_columns(int nt) { return nt == 1 ? 16 : 32; }
template <int NT> using BlockGemmRowsTile = BlockGemmTile<8 * NT, block_gemm_columns(NT)>;

template <class F, class T, int NT, class P>
BARACUDA_D void block_gemm_rows_tile(const P& p, const Stored& stored, const BlockGemmRowsTile<NT>& tile) {
  constexpr int columns = block_gemm_columns(NT), MT = columns / 16, rows = 8 * NT, parts = MT * NT * 4, chain = 8,
                ahead = 3;
  BARACUDA_DYNAMIC_SMEM(float, totals);  // [warp][part of a lane's sums][lane]
  const int warp = static_cast<int>(threadIdx.x) / warp_size, lane = lane_id(), g = lane / 4, q = lane % 4;
  const int left_m = static_cast<int>(min<i64>(rows, p.m - tile.m0));
  const int left_n = static_cast<int>(min<i64>(columns, p.n - tile.n0));
  // Of rows that are not there others are read: nobody takes their sums.
  const auto stored_row = [&](int r) { return StoredRow(stored, tile.batch, tile.n0 + min(r, left_n - 1)); };
  const T* const x = static_cast<const T*>(p.x) + tile.batch * p.x_steps[0] + tile.m0 * p.x_steps[1];
  u32 x_row[NT];
#pragma unroll
  for (int t = 0; t < NT; ++t) x_row[t] = min(8 * t + g, left_m - 1) * static_cast<u32>(p.x_steps[1]);
  float sums[MT][NT][4] = {};
  float* const own = totals + warp * parts * warp_size + lane;
#pragma unroll
  for (int e = 0; e < parts; ++e) own[e * warp_size] = 0.0f;
  const auto fold = [&] {
#pragma unroll
    for (int e = 0; e < parts; ++e) {
      float& sum = sums[e / 4 / NT][e / 4 % NT][e % 4];
      own[e * warp_size] += sum;
      sum = 0.0f;
    }
  };
  // Of N of k from `at` on the lane's values of W and the products by x; `there`: they exist, else they are 0.
  const auto multiply = [&](const auto size, const Stored& w, i64 at, bool there) {
    constexpr int N = size.count;
#pragma unroll
    for (int i = 0; i < MT; ++i) {
      u32 words[N / 4][4] = {};
      if (there) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float values[N];
          F::decode(w, stored_row(16 * i + 8 * half + g), at, values);
          to_fragments<T>(values, half, words);
        }
      }
#pragma unroll
      for (int part = 0; part < N; part += format_part) {
#pragma unroll
        for (int t = 0; t < NT; ++t) {
          Vec<T, format_part> values = {};
          if (there) values = load_readonly<format_part>(x + at + part + x_row[t]);
          const u32* const of_rows = reinterpret_cast<const u32*>(&values);
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            const u32 of_x[2] = {of_rows[2 * j], of_rows[2 * j + 1]};
            mma_m16n8k16<T>(sums[i][t], words[part / 4 + j], of_x);
          }
        }
      }
    }
  };
  const auto by_parts = [&](i64 chunk) {
    const i64 k = chunk * block_gemm_chunk + format_run * q;
#pragma unroll 1
    for (int part = 0; part < format_run; part += format_part) {
      multiply(Values<format_part>(), stored, k + part, k + part < p.k);
    }
  };
  const i64 whole = p.k / block_gemm_chunk;
  // Codes of a later chunk of the warp go to the L2 cache: two lanes for each row of W, in sectors of 32 bytes.
  const i64 chunk_bytes = p.chunk_bytes;
  const auto prefetch = [&](i64 chunk) {
    if (chunk >= whole) return;
#pragma unroll
    for (int i = 0; i < MT; ++i) {
      const u8* const from = stored_row(16 * i + lane / 2).codes + chunk * chunk_bytes;
      for (int at = lane % 2 * 32; at < chunk_bytes; at += 64) prefetch_l2(from + at);
    }
  };
#pragma unroll
  for (int i = 1; i < ahead; ++i) prefetch(warp + i * block_gemm_warps);
  Stored simple = stored;  // which it is where runs are whole: the compiler is to know
  simple.whole = true;
  simple.index = nullptr;
  simple.group = stored.group / format_run * format_run;
  const bool runs = stored.whole && stored.index == nullptr && stored.group % format_run == 0;
  int taken = 0;  // chunks
#pragma unroll 1
  for (i64 chunk = warp; chunk * block_gemm_chunk < p.k; chunk += block_gemm_warps) {
    prefetch(chunk + ahead * block_gemm_warps);
    if (runs && chunk < whole) {
      multiply(Values<format_run>(), simple, chunk * block_gemm_chunk + format_run * q, true);
    } else {
      by_parts(chunk);
    }
    if (++taken % chain == 0) fold();
  }
  fold();
  __syncthreads();
  for (int e = threadIdx.x; e < rows * columns; e += block_gemm_threads) {
    const int column = e % columns, row = e / columns;
    if (row >= left_m || column >= left_n) continue;
    const int quad = column / 16 * NT + row / 8, place = quad * 4 + column % 16 / 8 * 2 + row % 2;
    const int from = column % 8 * 4 + row % 8 / 2;
    Vec<float, block_gemm_warps> all;
#pragma unroll
    for (int i = 0; i < block_gemm_warps; ++i) all[i] = totals[(i * parts + place) * warp_size + from];
    put_sum<T>(p, tile.batch, tile.m0 + row, tile.n0 + column, tree_reduce<Sum>(all));
  }
}

}  // namespace baracuda
