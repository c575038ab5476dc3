#pragma once
// flash_decoding_weights    weights[b, h, j] = 2^((s_j - max(s)) c) / sum and their mean over heads, 0 from lengths[b]
// on
//
// flash_decoding has left the scores s, and {max(s), sum} of every head in `finals`. A block takes 128 keys: warp w has
// heads w, w + 8, …, a lane four keys. A mean adds a warp's heads in order, then the warps in order: it depends on the
// number of heads alone.
#include "attention/decoding/flash_decoding.cuh"

namespace baracuda {

template <class A, class Cache, class P> BARACUDA_D void flash_decoding_weights(const P& p) {
  using namespace decoding;
  constexpr int warps = 8, EACH = 4, KEYS = EACH * warp_size, AT_ONCE = 16 / sizeof(A);
  __shared__ A sums[warps][KEYS];
  const u32 tiles = static_cast<u32>(div_up(p.max_len, i64(KEYS)));  // the grid fits 31 bits
  const i64 b = blockIdx.x / tiles;
  const int lane = lane_id(), warp = threadIdx.x / warp_size;
  const i64 first = static_cast<i64>(blockIdx.x % tiles) * KEYS + lane;
  const Cache cache(p, b);
  const i64 end = cache.first + cache.length;
  const int left = static_cast<int>(max<i64>(min<i64>(end - first, KEYS), 0));  // keys from the lane's first on
  const int room = static_cast<int>(max<i64>(min<i64>(p.max_len - first, KEYS), 0));
  const auto counts = [&](int n) {  // whether the lane's n-th key does
    return n * warp_size < left && (!Cache::masked || first + n * warp_size >= cache.first);
  };
  const A c = static_cast<A>(Cache::scale(p, 0) * 1.4426950408889634);
  A mean[EACH] = {};
#pragma unroll 1
  for (int head = warp; head < p.num_heads; head += AT_ONCE * warps) {
    A x[AT_ONCE][EACH], last[AT_ONCE][2];  // all in flight before the first is used
#pragma unroll
    for (int m = 0; m < AT_ONCE; ++m) {
      const int h = head + m * warps;
      const A* const final = static_cast<const A*>(p.finals) + 2 * (b * p.num_heads + h);
      last[m][0] = h < p.num_heads ? final[0] : A(0), last[m][1] = h < p.num_heads ? final[1] : A(0);
      const A* const at = Scores<A>(p, b, h).at + first;
#pragma unroll
      for (int n = 0; n < EACH; ++n) {
        x[m][n] = h < p.num_heads && counts(n) ? at[n * warp_size] : -numeric<A>::infinity();
      }
    }
#pragma unroll
    for (int m = 0; m < AT_ONCE; ++m) {
      const int h = head + m * warps;
      const A base = base_of(last[m][0]), factor = last[m][1] == A(0) ? A(0) : A(1) / last[m][1];
      A* const at = Scores<A>(p, b, h).at + first;
#pragma unroll
      for (int n = 0; n < EACH; ++n) {
        const A weight = counts(n) ? exp2_fast((x[m][n] - base) * c) * factor : A(0);
        mean[n] += weight;
        if (p.weights != nullptr && h < p.num_heads && n * warp_size < room) at[n * warp_size] = weight;
      }
    }
  }
  if (p.mean_weights == nullptr) return;
#pragma unroll
  for (int n = 0; n < EACH; ++n) sums[warp][lane + n * warp_size] = mean[n];
  __syncthreads();
  const i64 key = static_cast<i64>(blockIdx.x % tiles) * KEYS + threadIdx.x;
  if (threadIdx.x >= KEYS || key >= p.max_len) return;
  A all = sums[0][threadIdx.x];
#pragma unroll
  for (int w = 1; w < warps; ++w) all += sums[w][threadIdx.x];
  static_cast<A*>(p.mean_weights)[b * p.mean_stride + key] = p.num_heads > 0 ? all / static_cast<A>(p.num_heads) : A(0);
}

}  // namespace baracuda
