#pragma once
// block_importance    importance[t][j] = sum_h sum_c exp(scale q[h][t] k[c] - lse[h][t]) overlap(c, j) / stride
//
// over the query heads h of a key head and the compressed keys c that query t sees: c stands for the tokens from c stride
// to c stride + size, and is seen once all of them are. overlap: how many of them block j holds. Blocks that begin after
// the query are -inf; the first `initial` and the `local` last of the others are inf.
//
// A warp has one query of one key head. Sums over heads stand in shared memory for a tile of compressed keys; then each lane
// adds to blocks of its own, so that every sum has one order.
#include "attention/sparse/block_select_simt.cuh"

namespace baracuda {
namespace attention {

// A query's row of blocks.
template <class A, class P> struct BlockRow {
  const P& p;
  A* const row;
  const i64 position;  // of the query among the tokens
  const i64 blocks;    // 0: there is no such query

  BARACUDA_D BlockRow(const P& p, const Choice& choice, bool there = true)
      : p(p), row(static_cast<A*>(p.importance) + choice.b * p.stride[2][0] + choice.kv * p.stride[2][1] +
                  choice.query * p.stride[2][2]),
        position(choice.query + p.query_start), blocks(there ? p.blocks : 0) {
    for (i64 block = lane_id(); block < blocks; block += warp_size) row[block] = A(0);
    __syncwarp();
  }
  // Compressed keys that the query sees.
  BARACUDA_D int seen() const { return seen_at(p, position); }
  static BARACUDA_D int seen_at(const P& p, i64 position) {
    const i64 past = position + 1 - p.size;
    return past < 0 ? 0 : static_cast<int>(min<i64>(p.key_len, past / p.stride_tokens + 1));
  }
  // Adds the sums of the `count` compressed keys from c0 on. All lanes call.
  BARACUDA_D void add(const A* sums, int c0, int count) const {
    const i64 step = p.stride_tokens, first = c0 * step, last = first + (count - 1) * step + p.size - 1;
    for (i64 block = first / p.block_size + lane_id(); block <= last / p.block_size && block < blocks;
         block += warp_size) {
      const i64 begin = block * p.block_size, end = begin + p.block_size;
      const i64 from = begin < p.size ? 0 : (begin - p.size) / step + 1;  // the first whose end is behind `begin`
      const int low = static_cast<int>(max<i64>(from - c0, 0)),
                high = static_cast<int>(min<i64>((end - 1) / step - c0, count - 1));
      A sum = A(0);
      for (int c = low; c <= high; ++c) {
        const i64 token = (c0 + c) * step, tokens = min(end, token + p.size) - max(begin, token);
        sum = math::fma(sums[c], static_cast<A>(tokens), sum);
      }
      row[block] += sum / static_cast<A>(step);
    }
    __syncwarp();
  }
  BARACUDA_D void finish() const {
    const i64 own = position / p.block_size;
    for (i64 block = lane_id(); block < blocks; block += warp_size) {
      if (block > own) row[block] = -numeric<A>::infinity();
      else if (block < p.initial || block > own - p.local) row[block] = numeric<A>::infinity();
    }
  }
};

}  // namespace attention
}  // namespace baracuda
