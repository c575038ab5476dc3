// block_select_lists    puts the lists of blocks in order; and by a stable counting sort the queries that chose a block.
//
// Sort: queries in tiles, a warp each. A warp counts the blocks that its queries chose; sums over the tiles, and over the
// blocks, say where each tile's queries of each block begin; then the warp writes its queries there, one after the other.
// A list names a block once, so the lanes that a query keeps busy never meet, and the order is that of the queries.
#include "attention/sparse/selected.cuh"
#include <baracuda/reduce.cuh>

namespace baracuda {

template <int THREADS, class P> BARACUDA_D void block_select_order(const P& p) {
  using namespace attention;
  const i64 list = static_cast<i64>(blockIdx.x) * (THREADS / warp_size) + threadIdx.x / warp_size;
  if (list >= p.num_lists) return;
  const i64 query = list % p.query_len, owner = list / p.query_len;
  const i64 from =
      owner / p.kv_heads * p.list_stride[0] + owner % p.kv_heads * p.list_stride[1] + query * p.list_stride[2];
  const i64 end = end_of_keys(p, query);
  const int lane = lane_id(), count = p.selected;
  i32* const out = static_cast<i32*>(p.lists) + list * count;
  const auto block_at = [&](int n) {
    const i64 at = from + n * p.list_stride[3];
    const i64 x = p.wide_blocks ? static_cast<const i64*>(p.blocks)[at] : static_cast<const i32*>(p.blocks)[at];
    return x < 0 || x >= p.key_blocks || x * p.block_size >= end ? no_block : static_cast<i32>(x);
  };
  for (int n = lane; n < count; n += warp_size) {
    const i32 mine = block_at(n);
    int rank = 0;
    for (int m = 0; m < count; ++m) {
      const i32 other = block_at(m);
      rank += other < mine || (other == mine && m < n);
    }
    out[rank] = mine;
  }
  __syncwarp();
  int kept = 0;
  i32 before = no_block;
#pragma unroll 1
  for (int first = 0; first < count; first += warp_size) {
    const i32 mine = first + lane < count ? out[first + lane] : no_block;
    const i32 above = __shfl_up_sync(full_warp, mine, 1), previous = lane == 0 ? before : above;
    const bool keeps = mine != no_block && mine != previous;
    const u32 keep = __ballot_sync(full_warp, keeps);
    before = __shfl_sync(full_warp, mine, warp_size - 1);
    if (keeps) out[kept + __popc(keep & ((1u << lane) - 1))] = mine;
    kept += __popc(keep);
    __syncwarp();
  }
  for (int n = kept + lane; n < count; n += warp_size) out[n] = no_block;
}

namespace attention {

// Calls f(block, query) for the choices of a tile of queries, in their order; a warp's lanes take the blocks of a query.
template <class P, class F> BARACUDA_D void each_choice(const P& p, i64 owner, i64 tile, const F& f) {
  const i64 last = min<i64>(p.query_len, (tile + 1) * p.tile_queries);
#pragma unroll 1
  for (i64 query = tile * p.tile_queries; query < last; ++query) {
    const i32* const list = static_cast<const i32*>(p.lists) + (owner * p.query_len + query) * p.selected;
    for (int n = lane_id(); n < p.selected; n += warp_size) {
      if (list[n] != no_block) f(list[n], static_cast<i32>(query));
    }
    __syncwarp();
  }
}

}  // namespace attention

template <class P> BARACUDA_D void block_select_count(const P& p) {
  using namespace attention;
  const i64 tile = blockIdx.x % p.tiles, owner = blockIdx.x / p.tiles;
  i32* const counts = static_cast<i32*>(p.table) + blockIdx.x * p.key_blocks;
  for (int n = lane_id(); n < p.key_blocks; n += warp_size) counts[n] = 0;
  __syncwarp();
  each_choice(p, owner, tile, [&](i32 block, i32) { ++counts[block]; });
}

template <int THREADS, class P> BARACUDA_D void block_select_begins(const P& p) {
  __shared__ i32 scratch[THREADS / warp_size], totals[2];
  const i64 owner = blockIdx.x;
  const int blocks = static_cast<int>(p.key_blocks), thread = static_cast<int>(threadIdx.x);
  i32* const table = static_cast<i32*>(p.table) + owner * p.tiles * blocks;
  i32* const begin = static_cast<i32*>(p.begins) + owner * (blocks + 1);
  i32* const slots = static_cast<i32*>(p.slots) + owner * (blocks + 1);
  i32 before[2] = {0, 0};
  for (int first = 0; first < blocks; first += THREADS) {
    const int block = first + thread;
    i32 count = 0;
    if (block < blocks) {
      for (i64 tile = 0; tile < p.tiles; ++tile) {
        i32& here = table[tile * blocks + block];
        const i32 own = here;
        here = count, count += own;
      }
    }
    const i32 parts = count > p.part ? static_cast<i32>((count + p.part - 1) / p.part) : 0;
    const i32 counts = block_scan<Sum, THREADS>(count, scratch);
    __syncthreads();
    const i32 all_parts = block_scan<Sum, THREADS>(parts, scratch);
    if (block < blocks) begin[block] = before[0] + counts - count, slots[block] = before[1] + all_parts - parts;
    if (thread == THREADS - 1) totals[0] = before[0] + counts, totals[1] = before[1] + all_parts;
    __syncthreads();
    before[0] = totals[0], before[1] = totals[1];
  }
  if (thread == 0) begin[blocks] = before[0], slots[blocks] = before[1];
}

template <class P> BARACUDA_D void block_select_sort(const P& p) {
  using namespace attention;
  const i64 tile = blockIdx.x % p.tiles, owner = blockIdx.x / p.tiles;
  i32* const before = static_cast<i32*>(p.table) + blockIdx.x * p.key_blocks;
  const i32* const begin = static_cast<const i32*>(p.begins) + owner * (p.key_blocks + 1);
  i32* const order = static_cast<i32*>(p.order) + owner * p.query_len * p.selected;
  each_choice(p, owner, tile, [&](i32 block, i32 query) { order[begin[block] + before[block]++] = query; });
}

}  // namespace baracuda
