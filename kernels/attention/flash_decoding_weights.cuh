#pragma once
// flash_decoding_weights    weights[b, h, j] = 2^(s_j c - base) / sum and their mean over heads, 0 from lengths[b] on
//
// The scores s are where flash_decoding left them, {max(s), sum} of every head in `finals`; base = max(s) c rounded. A
// block takes 128 keys: warp w has heads w, w + 8, …, a lane four keys. A mean adds a warp's heads in order, then the
// warps in order: it depends on the number of heads alone.
#include "attention/flash_decoding.cuh"

namespace baracuda {

template <class A, class Cache, class P> BARACUDA_D void flash_decoding_weights(const P& p) {
  using namespace decoding;
  constexpr int warps = 8, EACH = 4, KEYS = EACH * warp_size;
  __shared__ A sums[warps][KEYS];
  const i64 tiles = div_up(p.max_len, i64(KEYS)), b = blockIdx.x / tiles;
  const int lane = lane_id(), warp = threadIdx.x / warp_size;
  const i64 first = blockIdx.x % tiles * KEYS + lane, length = Cache(p, b).length;
  const A c = static_cast<A>(p.scale * 1.4426950408889634);
  A mean[EACH] = {};
#pragma unroll 2
  for (int h = warp; h < p.num_heads; h += warps) {
    A* const at = Scores<A>(p, b, h).at;
    const A* const last = static_cast<const A*>(p.finals) + 2 * (b * p.num_heads + h);
    const A base = base_of(last[0], c), factor = last[1] == A(0) ? A(0) : A(1) / last[1];
    A x[EACH];
#pragma unroll
    for (int n = 0; n < EACH; ++n) {
      const i64 key = first + n * warp_size;
      x[n] = key < length ? at[key] : -numeric<A>::infinity();
    }
#pragma unroll
    for (int n = 0; n < EACH; ++n) {
      const i64 key = first + n * warp_size;
      x[n] = key < length ? exp2_fast(math::fma(x[n], c, -base)) * factor : A(0);
      mean[n] += x[n];
      if (p.weights != nullptr && key < p.max_len) at[key] = x[n];
    }
  }
  if (p.mean_weights == nullptr) return;
#pragma unroll
  for (int n = 0; n < EACH; ++n) sums[warp][lane + n * warp_size] = mean[n];
  __syncthreads();
  const i64 key = blockIdx.x % tiles * KEYS + threadIdx.x;
  if (threadIdx.x >= KEYS || key >= p.max_len) return;
  A all = sums[0][threadIdx.x];
#pragma unroll
  for (int w = 1; w < warps; ++w) all += sums[w][threadIdx.x];
  static_cast<A*>(p.mean_weights)[b * p.mean_stride + key] = p.num_heads > 0 ? all / static_cast<A>(p.num_heads) : A(0);
}

}  // namespace baracuda
