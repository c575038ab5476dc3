#pragma once
// flash_decoding_merge    adds the outputs of flash_decoding_mma's splits: the size of splits, how two partials
// are folded, the sum.
#include <baracuda/mma.cuh>
#include "attention/decoding/flash_decoding_terms.cuh"

namespace baracuda {
namespace decoding {

constexpr int warps = 4;  // of a block
constexpr int fold = folded_splits;

// Keys of one split of a sequence of `length`: a multiple of the block's tiles, so that every warp has as many tiles.
// Where no sequence can be long the length is not waited for.
template <class Cache, class P> BARACUDA_D i64 keys_of(const P& p, i64 length) {
  constexpr int step = warps * Cache::tiles * decoding_keys;
  if constexpr (Cache::holes) {
    if (p.max_len <= most_splits * Cache::split) return Cache::split;
    __syncwarp();  // makes this a branch; a choice between two values would wait for both
  }
  return max<i64>(Cache::split, div_up(length, i64(step * most_splits)) * step);
}

// The factors of two partials when they are added under the larger of their maxima.
struct Fold {
  float row_max, old, next;
  BARACUDA_D Fold(float old_max, float next_max, float c) : row_max(fmaxf(old_max, next_max)) {
    const float base = base_of(row_max);
    old = exp2_fast((old_max - base) * c);
    next = exp2_fast((next_max - base) * c);
  }
  BARACUDA_D float add(float x, float y) const { return math::fma(y, next, x * old); }
  BARACUDA_D float4 add(const float4& x, const float4& y) const {
    return float4{add(x.x, y.x), add(x.y, y.y), add(x.z, y.z), add(x.w, y.w)};
  }
};

}  // namespace decoding

// A block for each query head. Warp w takes groups of four splits w and w + 4, each lane four columns of them; then the
// warps are added in order. All loads are in flight before the length is known; what lies beyond its splits is then
// left out.
template <class T, class Cache, bool KEEP, class P> BARACUDA_D void flash_decoding_merge(const P& p) {
  using namespace decoding;
  constexpr int FOURS = most_splits / fold / warps;
  __shared__ float4 partial[warps][warp_size];
  __shared__ float totals[warps];
  static_assert(most_splits == warp_size && fold == warps, "a lane has a split's numbers");
  const u32 b = blockIdx.x / static_cast<u32>(p.num_heads), h = blockIdx.x - b * p.num_heads;
  const i64 head = blockIdx.x;
  const int lane = lane_id(), warp = threadIdx.x / warp_size, pitch = round_up(p.d_v, 4);
  const int runs = static_cast<int>(p.runs), run = static_cast<int>(p.run);
  const int single = run == 1 ? fold : 1;  // partials of a group of four splits
  const float* parts = static_cast<const float*>(p.parts) + head * runs * pitch + 4 * lane;
  float2 stat = {-numeric<float>::infinity(), 0.0f};
  if (lane < runs) stat = static_cast<const float2*>(p.stats)[head * runs + lane];
  float4 x[FOURS][fold];
  const auto fetch = [&](int column) {
#pragma unroll
    for (int n = 0; n < FOURS; ++n) {
#pragma unroll
      for (int j = 0; j < fold; ++j) {
        const int split = (warp + warps * n) * single + j;
        x[n][j] = float4{0.0f, 0.0f, 0.0f, 0.0f};
        if (j < single && split < runs && column + 4 * lane < pitch) {
          x[n][j] = *reinterpret_cast<const float4*>(parts + split * pitch + column);
        }
      }
    }
  };
  fetch(0);
  const Cache cache(p, b);
  const i64 length = cache.length;
  const int live =
      __popc(__ballot_sync(all_lanes, lane * run * keys_of<Cache>(p, length) < length));  // partials written
  if (lane >= live) stat = {-numeric<float>::infinity(), 0.0f};

  const i64 kv = h / static_cast<u32>(p.group);
  const double scale = cache.scale(p, kv);
  const float c = static_cast<float>(scale * 1.4426950408889634), value_scale = cache.value_scale(p, kv);
  float row_max = warp_reduce<Max>(stat.x);
  [[maybe_unused]] float sink;
  if constexpr (Cache::terms) {
    sink = sink_of<float>(p, h);
    row_max = fmaxf(row_max, sink);
  }
  const float base = base_of(row_max);
  T* const y = static_cast<T*>(p.y) + b * p.y_stride[0] + h * p.y_stride[1];
#pragma unroll 1
  for (int column = 0; column < pitch; column += 4 * warp_size) {
    if (column > 0) {
      __syncthreads();
      fetch(column);
    }
    float4 acc = {0.0f, 0.0f, 0.0f, 0.0f};
    float sum = 0.0f;
#pragma unroll
    for (int n = 0; n < FOURS; ++n) {
      const int split = (warp + warps * n) * single;
      float4 four = x[n][0];
      float2 now = {__shfl_sync(all_lanes, stat.x, split), __shfl_sync(all_lanes, stat.y, split)};
#pragma unroll
      for (int j = 1; j < fold; ++j) {
        const float2 next = {__shfl_sync(all_lanes, stat.x, split + j), __shfl_sync(all_lanes, stat.y, split + j)};
        if (j >= single || split + j >= live) continue;
        const Fold both(now.x, next.x, c);
        now = float2{both.row_max, both.add(now.y, next.y)};
        four = both.add(four, x[n][j]);
      }
      if (split >= live) continue;
      const float weight = exp2_fast((now.x - base) * c);  // 0 where its maximum is -inf
      sum = math::fma(weight, now.y, sum);
      acc.x = math::fma(weight, four.x, acc.x), acc.y = math::fma(weight, four.y, acc.y);
      acc.z = math::fma(weight, four.z, acc.z), acc.w = math::fma(weight, four.w, acc.w);
    }
    partial[warp][lane] = acc;
    if (lane == 0) totals[warp] = sum;
    __syncthreads();
    float total = totals[0] + totals[1] + totals[2] + totals[3];
    if constexpr (Cache::terms) total += exp2_fast((sink - base) * c);
    const float* of_warp = reinterpret_cast<const float*>(partial) + threadIdx.x;
    const int d = column + threadIdx.x;
    if (d < p.d_v) {
      float all = of_warp[0];
#pragma unroll
      for (int w = 1; w < warps; ++w) all += of_warp[w * 4 * warp_size];
      y[d] = from_acc<T>(total == 0.0f ? 0.0f : all * (value_scale / total));
    }
    if constexpr (KEEP) {
      if (column == 0 && threadIdx.x == 0) static_cast<float2*>(p.finals)[head] = float2{row_max, total};
    }
    if (column == 0 && p.lse != nullptr && threadIdx.x == 0) {
      const float lse = math::fma(row_max, static_cast<float>(scale), math::log(total));
      static_cast<float*>(p.lse)[head] = total == 0.0f ? -numeric<float>::infinity() : lse;
    }
  }
}

}  // namespace baracuda
