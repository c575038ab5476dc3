#pragma once
// lora       tokens with an adapter each: which one it is, and runs of neighbours with the same.
//
// P has tokens, ids, offsets, ranks (with steps and whether they are int64), segments, adapters, rank and tile, the tokens
// of a block. A token without an adapter has -1.
#include <baracuda/index.cuh>
#include <baracuda/math.cuh>
#include <baracuda/reduce.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {

constexpr int lora_vec = 8;

BARACUDA_D i64 lora_integer(const void* from, int wide, i64 at) {
  return wide ? static_cast<const i64*>(from)[at] : static_cast<const i32*>(from)[at];
}

// The segment of token t, by one warp: that before the first bound beyond t. -1 before the first and after the last.
template <class P> BARACUDA_D i64 lora_segment(const P& p, i64 t) {
#pragma unroll 1
  for (i64 base = 0; base <= p.segments; base += warp_size) {
    const i64 i = base + lane_id();
    const bool beyond = i <= p.segments && lora_integer(p.offsets, p.wide_offsets, i * p.offsets_step) > t;
    const u32 found = __ballot_sync(full_warp, beyond);
    if (found != 0) return base + __ffs(static_cast<int>(found)) - 2;
  }
  return -1;
}

// A tile of tokens, MOST at most: the adapter of each. Warps find them in turn.
template <int MOST> struct LoraTile {
  i64 first;
  int count;
  const int* adapters;
  template <class P> BARACUDA_D LoraTile(const P& p, i64 tile) : first(tile * p.tile) {
    __shared__ int found[MOST];
    count = static_cast<int>(min<i64>(p.tile, p.tokens - first));
    const int warps = static_cast<int>(blockDim.x) / warp_size;
#pragma unroll 1
    for (int t = static_cast<int>(threadIdx.x) / warp_size; t < count; t += warps) {
      const i64 place = p.offsets == nullptr ? first + t : lora_segment(p, first + t);
      i64 adapter = place < 0 ? -1 : lora_integer(p.ids, p.wide_ids, place * p.ids_step);
      if (adapter < 0 || adapter >= p.adapters) adapter = -1;
      if (lane_id() == 0) found[t] = static_cast<int>(adapter);
    }
    adapters = found;
    __syncthreads();
  }
  // The token after the last neighbour of token `from` with its adapter.
  BARACUDA_D int run(int from) const {
    int to = from + 1;
    while (to < count && adapters[to] == adapters[from]) ++to;
    return to;
  }
};

template <class P> BARACUDA_D int lora_rank(const P& p, i64 adapter) {
  if (adapter < 0) return 0;
  if (p.ranks == nullptr) return static_cast<int>(p.rank);
  return static_cast<int>(max<i64>(0, min(p.rank, lora_integer(p.ranks, p.wide_ranks, adapter * p.ranks_step))));
}

// Eight elements, 0 from `left` on.
template <class T> BARACUDA_D Vec<T, lora_vec> lora_load(const T* from, i64 step, i64 left, bool wide) {
  return wide && left >= lora_vec ? load<lora_vec>(from) : load_strided<T, lora_vec>(from, step, left, cast<T>(0.0f));
}

}  // namespace baracuda
