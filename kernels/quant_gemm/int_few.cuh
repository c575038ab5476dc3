#pragma once
// int_few    the sums of at most 16 rows and 8 columns of integers of 8 bits by a block of eight warps: what takes time is
//            reading b, of which every warp has several KB in flight.
//
// A warp has 256 of k at a time; sums of warps meet in shared memory. Rows and columns have k along memory, in rows that
// start 16-byte aligned. A lane reads 16 bytes of a column and of two rows; as sums of integers have no order, these are
// its words of two fragments of mma_int8.cuh, whatever their k.
#include "quant_gemm/epilogue.cuh"
#include <baracuda/mma_int8.cuh>
#include <baracuda/reduce.cuh>

namespace baracuda {

// Lines along k, `step` bytes apart, of which `count` exist, one at least.
struct ByteRows {
  const u8* from;
  i64 step, count;
  // Those that do not exist are the last one again, whose sums go nowhere.
  BARACUDA_D const u8* line(i64 i) const { return from + min(i, count - 1) * step; }
};

// 16 bytes, those from `left` on zeros. Not inlined: whole pieces do without it.
static __device__ __noinline__ uint4 last_bytes(const u8* from, i64 left) {
  u32 words[4] = {};
#pragma unroll
  for (int k = 0; k < 16; ++k) {
    if (k < left) words[k / 4] |= static_cast<u32>(from[k]) << (8 * (k % 4));
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

// The products of 64 of k of a lane's two rows and its column.
template <class TA, class TB>
BARACUDA_D void multiply_64(int (&sum)[4], const uint4& low, const uint4& high, const uint4& b) {
  mma_int8<TA, TB>(sum, {low.x, high.x, low.y, high.y}, {b.x, b.y});
  mma_int8<TA, TB>(sum, {low.z, high.z, low.w, high.w}, {b.z, b.w});
}

// Calls sink(row, sums of 8 columns) for the rows that exist. All threads of the block call; before they do so again they
// meet.
template <class TA, class TB, class Sink>
BARACUDA_D void int_few_tile(const ByteRows& a, const ByteRows& b, i64 length, const Sink& sink) {
  constexpr int rows = int_few_rows, columns = int_few_columns, warps = int_few_threads / warp_size, ahead = 4;
  constexpr int depth = 64 * ahead;
  __shared__ int partials[warps][rows][columns];
  const int warp = static_cast<int>(threadIdx.x) / warp_size, g = lane_id() / 4, t = lane_id() % 4;
  const u8* const low = a.line(g) + 16 * t;
  const u8* const high = a.line(g + 8) + 16 * t;
  const u8* const column = b.line(g) + 16 * t;
  const auto whole = [](const u8* from) { return __ldg(reinterpret_cast<const uint4*>(from)); };
  int sum[4] = {};
#pragma unroll 1
  for (i64 k0 = warp * depth; k0 < length; k0 += warps * depth) {
    if (k0 + depth <= length) {
      uint4 x[ahead][2], y[ahead];
#pragma unroll
      for (int u = 0; u < ahead; ++u) {
        const i64 k = k0 + 64 * u;
        y[u] = whole(column + k), x[u][0] = whole(low + k), x[u][1] = whole(high + k);
      }
#pragma unroll
      for (int u = 0; u < ahead; ++u) multiply_64<TA, TB>(sum, x[u][0], x[u][1], y[u]);
    } else {
#pragma unroll 1
      for (i64 k = k0; k < length; k += 64) {
        const i64 left = length - k - 16 * t;
        multiply_64<TA, TB>(sum, last_bytes(low + k, left), last_bytes(high + k, left), last_bytes(column + k, left));
      }
    }
  }
#pragma unroll
  for (int e = 0; e < 4; ++e) partials[warp][g + e / 2 * 8][2 * t + e % 2] = sum[e];
  __syncthreads();
  const int row = static_cast<int>(threadIdx.x);
  if (row >= rows || row >= a.count) return;
  Vec<int, columns> all{};
#pragma unroll
  for (int w = 0; w < warps; ++w)
#pragma unroll
    for (int c = 0; c < columns; ++c) all[c] += partials[w][row][c];
  sink(row, all);
}

}  // namespace baracuda
