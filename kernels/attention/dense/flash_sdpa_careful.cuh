#pragma once
// flash_sdpa_careful    products of one warp by mma.sync, of operands in global memory: for the rows that
//                       flash_sdpa_pipelined computes again with care. A lane's rows and columns are as in Rows
//                       (flash.cuh).
#include "attention/flash.cuh"

namespace baracuda {
namespace attention {

// The elements of a source, widened; zeros from row `rows` and from column `cols` on.
template <class Source> struct Padded {
  const Source source;
  const int rows, cols;

  BARACUDA_D float at(int row, int col) const { return row < rows && col < cols ? to_acc(source.row(row)[col]) : 0.0f; }
  BARACUDA_D float finite_at(int row, int col) const {  // zeros also in place of infinite and NaN elements
    const float x = at(row, col);
    return math::isfinite(x) ? x : 0.0f;
  }
};

// scores += q kᵀ for 16 queries and the tile of KEYS keys at k0.
template <class T, int D, int KEYS, class Queries, class Keys>
BARACUDA_D void add_scores_with_care(float (&scores)[KEYS / 8][4], const Padded<Queries>& queries,
                                     const Padded<Keys>& keys, int k0) {
  const auto pair = [](const auto& x, int row, int col) { return pack_pair<T>(x.at(row, col), x.at(row, col + 1)); };
  const int lane_row = lane_id() / 4, lane_col = lane_id() % 4 * 2;
#pragma unroll 1
  for (int d = 0; d < D; d += 16) {
    const int col = d + lane_col;
    u32 query[4];
#pragma unroll
    for (int n = 0; n < 4; ++n) query[n] = pair(queries, lane_row + n % 2 * 8, col + n / 2 * 8);
#pragma unroll
    for (int n = 0; n < KEYS / 8; ++n) {
      const int key = k0 + 8 * n + lane_row;
      mma_m16n8k16<T>(scores[n], query, {pair(keys, key, col), pair(keys, key, col + 8)});
    }
  }
}

// acc += weights v for the finite values of the tile of KEYS keys at k0.
template <class T, int D, int KEYS, class Values>
BARACUDA_D void add_finite_outputs(float (&acc)[D / 8][4], const u32 (&weights)[KEYS / 16][4],
                                   const Padded<Values>& values, int k0) {
  const int lane_row = lane_id() / 4, lane_col = lane_id() % 4 * 2;
  u32 kept[KEYS / 16][4];  // in local memory
  for (int j = 0; j < KEYS / 16; ++j) memcpy(kept[j], weights[j], sizeof(kept[j]));
#pragma unroll 1
  for (int j = 0; j < KEYS; j += 16) {
    const u32(&weight)[4] = *opaque(&kept[j / 16]);
    const int key = k0 + j + lane_col;
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
      const auto pair = [&](int key) {
        const int col = 8 * n + lane_row;
        return pack_pair<T>(values.finite_at(key, col), values.finite_at(key + 1, col));
      };
      mma_m16n8k16<T>(acc[n], weight, {pair(key), pair(key + 8)});
    }
  }
}

}  // namespace attention
}  // namespace baracuda
