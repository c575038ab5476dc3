// block_select_mma    y[t] = sum_j softmax_j(scale q[t] k[j]) v[j] over the keys j of the blocks that query t chose;
//   lse[t] = log sum_j exp(scale q[t] k[j])
//
// A block is one warp. Its 16 rows are query heads of one query that share a key head, and with it the choice; it walks the
// query's blocks upwards in tiles of KEYS. Keys are copied while values are multiplied, and values while keys are. Weights
// are powers of differences of scores. The order of every sum is fixed by (element, D, KEYS) and by the set of blocks.
#include "attention/flash_mma.cuh"
#include "attention/sparse/selected.cuh"

namespace baracuda {

template <class T, int D, int KEYS, class P> BARACUDA_D void block_select_mma(const P& p) {
  using namespace attention;
  constexpr int ROWS = 16;
  BARACUDA_DYNAMIC_SMEM(T, queries);   // [ROWS][D], at the end the outputs
  T* const keys = queries + ROWS * D;  // [KEYS][D]
  T* const values = keys + KEYS * D;   // [KEYS][D]

  const Choice choice = Choice::of<ROWS>(p, blockIdx.x);
  const T* const k = static_cast<const T*>(p.k) + choice.b * p.stride[1][0] + choice.kv * p.stride[1][1];
  const T* const v = static_cast<const T*>(p.v) + choice.b * p.stride[2][0] + choice.kv * p.stride[2][1];
  const auto load_keys = [&](const BlockWalk& w) {
    copy_rows<KEYS, D, warp_size>(keys, k + w.at * p.stride[1][2], p.stride[1][2], w.left(), p.d_k, p.wide & 2);
  };
  const auto load_values = [&](const BlockWalk& w) {
    copy_rows<KEYS, D, warp_size>(values, v + w.at * p.stride[2][2], p.stride[2][2], w.left(), p.d_v, p.wide & 4);
  };
  copy_rows<ROWS, D, warp_size>(queries, choice.row<T>(p.q, p.stride[0]), p.stride[0][1], choice.heads, p.d_k,
                                p.wide & 1);
  BlockWalk walk = choice.walk(p);
  bool more = walk.enter();
  if (more) load_keys(walk);
  cp_async_commit();
  sign_queries<T, ROWS * D>(queries, p.sign);

  const tile::Reader<D, false> query(queries), value(values);
  const tile::Reader<D, true> key(keys);
  const float scale_log2 = static_cast<float>(p.scale * 1.4426950408889634);
  Rows<T, D, 1, KEYS> rows;
#pragma unroll 1
  while (more) {
    cp_async_wait<0>();
    __syncwarp();  // the keys are loaded, and all have read the values before
    load_values(walk);
    cp_async_commit();
    const int left = walk.left();
    score<T, D, 1, KEYS>(rows.scores, query, key, 0);
    more = walk.step(KEYS);
    cp_async_wait<0>();
    __syncwarp();  // the values are loaded, and all have read the keys
    if (more) load_keys(walk);
    cp_async_commit();
    if (left < KEYS) rows.mask(left, -ROWS, KEYS);
    rows.template weigh<Scores::exact>(scale_log2);
    rows.rescale();
    rows.pack();
    multiply<T, D, 1, KEYS>(rows.acc, rows.weights, value, 0);
  }

  float factors[1][2];
  rows.close(factors, 1.0f);
  const int half = lane_id() % 4, row = 8 * half + lane_id() / 4;  // two lanes of a quad write a row each
  if (p.lse != nullptr && half < 2 && row < choice.heads) {
    const float total = half == 0 ? rows.row_sum[0][0] : rows.row_sum[0][1], none = -numeric<float>::infinity();
    const float lse =
        math::fma(half == 0 ? rows.base[0][0] : rows.base[0][1], static_cast<float>(p.scale), math::log(total));
    static_cast<float*>(p.lse)[choice.state(p) + row * p.query_len] = total == 0.0f ? none : lse;
  }
  cp_async_wait<0>();
  __syncwarp();  // other lanes' copies of q must not meet the outputs where no tile was visited
#pragma unroll
  for (int n = 0; n < D / 8; ++n) tile::put<D>(queries, 0, 8 * n, rows.acc[0][n], factors[0][0], factors[0][1]);
  __syncwarp();
  tile::copy_out<ROWS, D, warp_size>(choice.row<T>(p.y, p.stride[3]), p.stride[3][1], queries, lane_id(), choice.heads,
                                     p.d_v, p.wide & 8);
}

}  // namespace baracuda
