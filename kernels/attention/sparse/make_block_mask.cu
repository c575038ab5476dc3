// make_block_mask    what a mask's formula says of each block of query_block x key_block scores: 0 that none of its pairs
//                    is seen, 2 that all are, else 1
//
// A block of 256 threads for each block of scores: warps take its queries in turn, lanes its keys, so that what a table
// has of neighbouring keys is read together.
#include <baracuda/index.cuh>

#include "attention/score_formula.cuh"

namespace baracuda {

template <class P> BARACUDA_D void make_block_mask(const P& p) {
  u64 b, h, row, column, rest = divmod(static_cast<u64>(blockIdx.x), static_cast<u64>(p.blocks[3]), column);
  rest = divmod(rest, static_cast<u64>(p.blocks[2]), row);
  b = divmod(rest, static_cast<u64>(p.blocks[1]), h);
  const attention::ScoreFormula<P> formula(p);
  const int q0 = static_cast<int>(row) * p.query_block, k0 = static_cast<int>(column) * p.key_block;
  const int queries = static_cast<int>(min<i64>(p.query_block, p.query_len - q0));
  const int keys = static_cast<int>(min<i64>(p.key_block, p.key_len - k0));
  bool any = false, all = true;
  for (int i = static_cast<int>(threadIdx.x) / warp_size; i < queries; i += 8) {
    for (int j = lane_id(); j < keys; j += warp_size) {
      const bool seen = formula.seen(static_cast<int>(b), static_cast<int>(h), q0 + i, k0 + j);
      any |= seen, all &= seen;
    }
  }
  const bool some = __syncthreads_or(any), every = __syncthreads_and(all);
  if (threadIdx.x != 0) return;
  u8* const out = static_cast<u8*>(p.kinds) + b * p.stride[0] + h * p.stride[1];
  out[row * p.stride[2] + column * p.stride[3]] = every ? 2 : some;
}

}  // namespace baracuda
