// lora_order  tokens in the order of their adapters, stably, and that order as a list of tiles of one adapter each.
//
// One block counts and places. Its warps have a part of the tokens each; counts is [warp][bucket] in shared memory, of the
// adapters and one bucket more, the last, of tokens without any. A tile is {its first place, its tokens, its adapter, 0};
// the list is filled up with tiles of no tokens.
#include "gemm/lora.cuh"

namespace baracuda {

constexpr int lora_order_warps = lora_order_threads / warp_size;

// Calls f(token, bucket, how many lanes before this one have its bucket, how many have it at all) for all tokens of the
// warp in their order, 32 at a time. All lanes call; bucket is -1 where there is no token.
template <class P, class F> BARACUDA_D void lora_walk(const P& p, int warp, const F& f) {
  constexpr int flight = 4;
  const i64 share = round_up(div_up(p.tokens, i64(p.warps)), i64(warp_size));
  const i64 end = warp < p.warps ? min(p.tokens, (warp + 1) * share) : 0;
#pragma unroll 1
  for (i64 start = warp * share; start < end; start += flight * warp_size) {
    int buckets[flight];
#pragma unroll
    for (int n = 0; n < flight; ++n) {
      const i64 token = start + n * warp_size + lane_id();
      i64 adapter = token < end ? lora_integer(p.ids, p.wide_ids, token * p.ids_step) : -1;
      if (adapter < 0 || adapter >= p.adapters) adapter = p.adapters;
      buckets[n] = token < end ? static_cast<int>(adapter) : -1;
    }
#pragma unroll
    for (int n = 0; n < flight; ++n) {
      const u32 same = __match_any_sync(full_warp, buckets[n]);
      f(start + n * warp_size + lane_id(), buckets[n], __popc(same & ((1u << lane_id()) - 1u)), __popc(same));
    }
  }
}

template <class P> BARACUDA_D void lora_order(const P& p) {
  BARACUDA_DYNAMIC_SMEM(i32, counts);
  __shared__ u64 scratch[lora_order_warps], total;
  const int buckets = static_cast<int>(p.adapters) + 1, warp = static_cast<int>(threadIdx.x) / warp_size;
  i32* const starts = counts + p.warps * buckets;  // the first place of each bucket, and how many there are
  i32* const tiles = starts + buckets + 1;         // the first tile of each bucket, likewise
  i32* const own = counts + warp * buckets;        // of warps that have tokens
  const i32 tile = p.tile;
#pragma unroll 1
  for (int i = threadIdx.x; i < p.warps * buckets; i += lora_order_threads) counts[i] = 0;
  __syncthreads();
  lora_walk(p, warp, [&](i64, int bucket, int before, int all) {
    if (bucket >= 0 && before == 0) own[bucket] += all;
    __syncwarp();
  });
  __syncthreads();

  // A warp for each bucket: what the warps before each have of it, and how many tokens all have.
#pragma unroll 1
  for (int b = warp; b < buckets; b += lora_order_warps) {
    const i32 mine = lane_id() < p.warps ? counts[lane_id() * buckets + b] : 0;
    i32 upto = mine;
#pragma unroll
    for (int step = 1; step < warp_size; step *= 2) {
      const i32 before = shuffle(upto, lane_id() - step & (warp_size - 1));
      if (lane_id() >= step) upto += before;
    }
    if (lane_id() < p.warps) counts[lane_id() * buckets + b] = upto - mine;
    if (lane_id() == warp_size - 1) starts[b] = upto;
  }
  __syncthreads();

  // A thread for each: the buckets before it, places in the low half of a sum and tiles in the high one.
  u64 earlier = 0;
#pragma unroll 1
  for (int b0 = 0; b0 < buckets; b0 += lora_order_threads) {
    const int b = b0 + static_cast<int>(threadIdx.x);
    const i32 tokens = b < buckets ? starts[b] : 0;
    const u64 mine = static_cast<u64>(div_up(tokens, tile)) << 32 | static_cast<u64>(tokens);
    const u64 upto = earlier + block_scan<Sum, lora_order_threads>(mine, scratch);
    if (b < buckets) {
      starts[b] = static_cast<i32>(upto - mine & 0xffffffffu), tiles[b] = static_cast<i32>(upto - mine >> 32);
    }
    if (threadIdx.x == lora_order_threads - 1) total = upto;
    __syncthreads();
    earlier = total;
  }
  if (threadIdx.x == 0) {
    starts[buckets] = static_cast<i32>(earlier & 0xffffffffu), tiles[buckets] = static_cast<i32>(earlier >> 32);
  }
  __syncthreads();

  i32* const list = static_cast<i32*>(p.list);
#pragma unroll 1
  for (int b = warp; b < buckets; b += lora_order_warps) {
    const i32 from = tiles[b], count = tiles[b + 1] - from, end = starts[b + 1];
#pragma unroll 1
    for (i32 i = lane_id(); i < count; i += warp_size) {
      const i32 first = starts[b] + i * tile;
      store(list + 4 * i64(from + i), Vec<i32, 4>{{first, min(tile, end - first), b == buckets - 1 ? -1 : b, 0}});
    }
  }
#pragma unroll 1
  for (i64 i = tiles[buckets] + static_cast<i32>(threadIdx.x); i < p.entries; i += lora_order_threads) {
    store(list + 4 * i, Vec<i32, 4>{});
  }
  lora_walk(p, warp, [&](i64 token, int bucket, int before, int all) {
    const i32 first = bucket >= 0 ? own[bucket] : 0;
    __syncwarp();  // all lanes have read what the first one changes
    if (bucket >= 0) {
      if (before == 0) own[bucket] = first + all;
      static_cast<i32*>(p.order)[starts[bucket] + first + before] = static_cast<i32>(token);
    }
    __syncwarp();
  });
}

}  // namespace baracuda
