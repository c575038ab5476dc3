#pragma once
// segments   tokens sorted by row, stably and without float atomics: what sums of chosen rows are made from.
//
// A stable counting sort. Block (range, part) looks at one part of the tokens and at the rows of one range.
// `segment_count` counts them; `segment_place` writes each token to its place: the rows before it, the parts before this
// one, the tokens before it. Counts are integers, so their atomics have no order. Afterwards the tokens of row r are
// order[starts[r]] … order[starts[r + 1] - 1], in their own order. schedules/counting_sort.py has the sizes of a block.
#include <baracuda/reduce.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {

constexpr int sort_warps = sort_threads / warp_size;

// One list of tokens. counts: [parts][ranges][range_pitch]; range_pitch is range_rows, or, of one range, at least its rows
// rounded up to four. totals: [parts][ranges]. starts: an entry a row, rounded up to four, and one. order, and rows (the
// row of each, null where nobody asks): an entry a token.
struct SegmentSort {
  i64 tokens, num_rows;
  int ranges, parts, range_pitch;
  i32 *counts, *totals, *starts, *order, *rows;
};

struct SortBlock {
  int range, part;
  i64 first_row;
  int rows;        // of the range that exist, up to a multiple of four: what is counted
  i64 begin, end;  // tokens of the part: whole tiles of sort_threads but for the last
};
BARACUDA_D SortBlock sort_block(const SegmentSort& p, int block) {
  SortBlock s;
  s.range = block % p.ranges;
  s.part = block / p.ranges;
  s.first_row = static_cast<i64>(s.range) * range_rows;
  s.rows = static_cast<int>(round_up(min(p.num_rows - s.first_row, static_cast<i64>(range_rows)), i64(4)));
  const i64 share = round_up(div_up(p.tokens, static_cast<i64>(p.parts)), static_cast<i64>(sort_threads));
  s.begin = min(s.part * share, p.tokens);
  s.end = min(s.begin + share, p.tokens);
  return s;
}

// counts[part][row] for the rows of the range, totals[part][range] their sum. row_of(token): its row, -1 for none.
template <class Row> BARACUDA_D void segment_count(const SegmentSort& p, int block, const Row& row_of) {
  __shared__ i32 count[range_rows];
  const SortBlock s = sort_block(p, block);
  for (int i = threadIdx.x; i < s.rows; i += sort_threads) count[i] = 0;
  __syncthreads();
  i32 mine = 0;
#pragma unroll 4
  for (i64 token = s.begin + threadIdx.x; token < s.end; token += sort_threads) {
    const i64 row = row_of(token) - s.first_row;
    if (row >= 0 && row < range_rows) {
      atomicAdd(&count[row], 1);
      ++mine;
    }
  }
  const i32 total = block_reduce<Sum, sort_threads>(mine);  // its barriers also complete the counts
  i32* out = p.counts + (static_cast<i64>(s.part) * p.ranges + s.range) * p.range_pitch;
  for (int i = threadIdx.x; i < s.rows; i += sort_threads) out[i] = count[i];
  if (threadIdx.x == 0) p.totals[s.part * p.ranges + s.range] = total;
}

template <class Row> BARACUDA_D void segment_place(const SegmentSort& p, int block, const Row& row_of) {
  constexpr int own = range_rows / sort_threads;
  __shared__ i32 next[range_rows];  // where the range's next token of each row goes
  __shared__ i32 scratch[sort_warps];
  __shared__ i32 found[sort_warps];
  __shared__ i32 list_token[sort_threads];
  __shared__ i32 list_row[sort_threads];
  const SortBlock s = sort_block(p, block);
  const int lane = lane_id(), warp = threadIdx.x / warp_size;

  // Tokens of the ranges before this one.
  i32 before = 0;
  for (i32 i = threadIdx.x; i < p.parts * p.ranges; i += sort_threads) {
    if (i % p.ranges < s.range) before += p.totals[i];
  }
  before = block_reduce<Sum, sort_threads>(before);

  // Of this range's rows: the start of each, and what the parts before this one have of it.
  i32 all[own], earlier[own], sum = 0;
#pragma unroll
  for (int k = 0; k < own; ++k) all[k] = earlier[k] = 0;
  const i64 pitch = static_cast<i64>(p.ranges) * p.range_pitch;
  const i32* counts = p.counts + s.first_row + threadIdx.x * own;
#pragma unroll 4
  for (int part = 0; part < (static_cast<int>(threadIdx.x) * own < s.rows ? p.parts : 0); ++part) {
    const auto n = load<own>(counts + part * pitch);
#pragma unroll
    for (int k = 0; k < own; ++k) {
      all[k] += n[k];
      if (part < s.part) earlier[k] += n[k];
    }
  }
#pragma unroll
  for (int k = 0; k < own; ++k) sum += all[k];
  i32 start = before + block_scan<Sum, sort_threads>(sum, scratch) - sum;
#pragma unroll
  for (int k = 0; k < own; ++k) {
    const int row = threadIdx.x * own + k;
    next[row] = start + earlier[k];
    if (s.part == 0 && row < s.rows) p.starts[s.first_row + row] = start;
    start += all[k];
  }
  if (s.part == 0 && s.range == p.ranges - 1 && threadIdx.x == sort_threads - 1) {
    p.starts[s.first_row + s.rows] = start;
  }
  __syncthreads();

  // Tile by tile, the tokens of the range are listed in order; then the first warp places the list, 32 at a time, each
  // behind those of its own row before it. Two barriers a tile: found is read between them and the list written; the
  // list is read after the second, and by then no warp is past the first barrier of the next tile.
  for (i64 tile = s.begin; tile < s.end; tile += sort_threads) {
    const i64 token = tile + threadIdx.x;
    const i64 row = token < s.end ? row_of(token) - s.first_row : -1;
    const bool mine = row >= 0 && row < range_rows;
    const u32 mask = __ballot_sync(full_warp, mine);
    if (lane == 0) found[warp] = __popc(mask);
    __syncthreads();
    const i32 n = found[lane];
    const i32 earlier_warps = warp_reduce<Sum>(lane < warp ? n : 0);
    const i32 total = warp_reduce<Sum>(n);
    if (mine) {
      const int at = earlier_warps + __popc(mask & ((1u << lane) - 1u));
      list_token[at] = static_cast<i32>(token);
      list_row[at] = static_cast<i32>(row);
    }
    __syncthreads();
    if (warp == 0) {
      for (i32 i = lane; i - lane < total; i += warp_size) {
        const bool some = i < total;
        const i32 r = some ? list_row[i] : -1 - lane;  // an idle lane matches none
        const u32 same = __match_any_sync(full_warp, r);
        const i32 rank = __popc(same & ((1u << lane) - 1u));
        const i32 base = some ? next[r] : 0;
        __syncwarp();
        if (some) {
          if (rank == 0) next[r] = base + __popc(same);
          p.order[base + rank] = list_token[i];
          if (p.rows != nullptr) p.rows[base + rank] = static_cast<i32>(s.first_row) + r;
        }
        __syncwarp();
      }
    }
  }
}

}  // namespace baracuda
