// int_gemm_few   products of at most 16 rows of integers of 8 bits: what takes time is reading b, of which every warp has
//                several KB in flight. The epilogue is quant_gemm/epilogue.cuh's.
//
// A block of eight warps takes 8 columns of b, whose k a warp has 256 of at a time; sums of warps meet in shared memory.
// Rows and columns have k along memory, in rows that start 16-byte aligned. A lane reads 16 bytes of a column and of two
// rows; as sums of integers have no order, these are its words of two fragments of mma_int8.cuh, whatever their k.
#include "quant_gemm/epilogue.cuh"
#include <baracuda/mma_int8.cuh>
#include <baracuda/reduce.cuh>

namespace baracuda {

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

template <class TA, class TB, IntGemm KIND> BARACUDA_D void int_gemm_few(const IntGemmParams& p) {
  constexpr int rows = 16, columns = 8, warps = 8, ahead = 4, depth = 64 * ahead;
  __shared__ int parts[warps][rows][columns];
  const i64 blocks = div_up(p.n, columns), n0 = blockIdx.x % blocks * columns;
  const IntEpilogue<KIND, IntGemmParams> epilogue(p, blockIdx.x / blocks);
  const int warp = static_cast<int>(threadIdx.x) / warp_size, g = lane_id() / 4, t = lane_id() % 4;
  const auto line = [&](const void* matrix, int which, i64 index, i64 step) {
    return static_cast<const u8*>(matrix) + epilogue.begin.at[which] + index * step + 16 * t;
  };
  // Rows and columns that do not exist are the last ones again, whose sums go nowhere.
  const i64 step = p.strides[int_matrix::a][0], last = p.m - 1;
  const u8* const low = line(p.a, int_matrix::a, min<i64>(g, last), step);
  const u8* const high = line(p.a, int_matrix::a, min<i64>(g + 8, last), step);
  const u8* const column = line(p.b, int_matrix::b, min(n0 + g, p.n - 1), p.strides[int_matrix::b][1]);
  const auto whole = [](const u8* from) { return __ldg(reinterpret_cast<const uint4*>(from)); };
  int sum[4] = {};
#pragma unroll 1
  for (i64 k0 = warp * depth; k0 < p.k; k0 += warps * depth) {
    if (k0 + depth <= p.k) {
      uint4 a[ahead][2], b[ahead];
#pragma unroll
      for (int u = 0; u < ahead; ++u) {
        const i64 k = k0 + 64 * u;
        b[u] = whole(column + k), a[u][0] = whole(low + k), a[u][1] = whole(high + k);
      }
#pragma unroll
      for (int u = 0; u < ahead; ++u) multiply_64<TA, TB>(sum, a[u][0], a[u][1], b[u]);
    } else {
#pragma unroll 1
      for (i64 k = k0; k < p.k; k += 64) {
        const i64 left = p.k - k - 16 * t;
        multiply_64<TA, TB>(sum, last_bytes(low + k, left), last_bytes(high + k, left), last_bytes(column + k, left));
      }
    }
  }
#pragma unroll
  for (int e = 0; e < 4; ++e) parts[warp][g + e / 2 * 8][2 * t + e % 2] = sum[e];
  __syncthreads();
  const int row = static_cast<int>(threadIdx.x);
  if (row >= rows || row >= p.m) return;
  Vec<int, columns> all{};
#pragma unroll
  for (int w = 0; w < warps; ++w)
#pragma unroll
    for (int c = 0; c < columns; ++c) all[c] += parts[w][row][c];
  epilogue.row(row, n0, p.n - n0, all);
}

}  // namespace baracuda
