#pragma once
// lora       tokens with an adapter each: which one it is, and which tokens have the same.
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

// The segment of token t + n, for lane n < N of a warp: that before the first bound beyond it. -1 before the first and
// after the last.
template <int N, class P> BARACUDA_D i64 lora_segment(const P& p, i64 t) {
  i64 place = -1;
  bool open = lane_id() < N;
#pragma unroll 1
  for (i64 base = 0; base <= p.segments && __any_sync(full_warp, open); base += warp_size) {
    const i64 i = base + lane_id();
    const i64 bound = i <= p.segments ? lora_integer(p.offsets, p.wide_offsets, i * p.offsets_step) : -1;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const u32 beyond = __ballot_sync(full_warp, bound > t + n);
      if (beyond != 0 && open && lane_id() == n) place = base + __ffs(static_cast<int>(beyond)) - 2, open = false;
    }
  }
  return place;
}

// A tile of p.tile tokens, MOST at most: the adapter of each. All THREADS of the block call; a lane has one token.
template <int MOST, int THREADS> struct LoraTile {
  static constexpr int each = MOST * warp_size / THREADS;  // tokens of a warp
  static_assert(1 <= each && each <= warp_size && each * (THREADS / warp_size) == MOST);
  i64 first;
  int count;
  const int* adapters;
  BARACUDA_D LoraTile(i64 first, int count, const int* adapters) : first(first), count(count), adapters(adapters) {}
  template <class P> BARACUDA_D LoraTile(const P& p, i64 tile) : first(tile * p.tile) {
    __shared__ int found[MOST];
    count = static_cast<int>(min<i64>(p.tile, p.tokens - first));
    const int start = static_cast<int>(threadIdx.x) / warp_size * each, t = start + lane_id();
    i64 place = first + t;
    if (p.offsets != nullptr) place = lora_segment<each>(p, first + start);
    if (lane_id() < each && t < count) {
      i64 adapter = place < 0 ? -1 : lora_integer(p.ids, p.wide_ids, place * p.ids_step);
      if (adapter < 0 || adapter >= p.adapters) adapter = -1;
      found[t] = static_cast<int>(adapter);
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
  // A bit for each token that is the first one with its adapter.
  BARACUDA_D u64 firsts() const {
    static_assert(MOST % warp_size == 0 && MOST <= THREADS && MOST <= 64);
    __shared__ u32 bits[MOST / warp_size];
    if (const int t = static_cast<int>(threadIdx.x); t < MOST) {
      bool leads = t < count;
#pragma unroll 8
      for (int before = 0; before < MOST; ++before) {
        if (before < t && t < count && adapters[before] == adapters[t]) leads = false;
      }
      const u32 warp = __ballot_sync(full_warp, leads);
      if (lane_id() == 0) bits[t / warp_size] = warp;
    }
    __syncthreads();
    u64 all = 0;
#pragma unroll
    for (int n = 0; n < MOST / warp_size; ++n) all |= static_cast<u64>(bits[n]) << (n * warp_size);
    return all;
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
