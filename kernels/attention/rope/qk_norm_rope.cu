// qk_norm_rope   y = R(rms_norm(x) weight) of every head of queries and keys, R the rotation of rope.cuh, and its gradient.
//
// A block has a tile of tokens of one side, queries or keys. It makes their angles once, in shared memory. A group of
// lanes takes a token and every ways-th head of it, one after another, the next one's chunks in flight: weights and
// angles stay in registers, and heads are a stride apart. A lane holds HELD units of a head, each two chunks of 16 bytes
// that hold whole pairs, as in rope.cuh. A sum over a head runs over the lane's elements in order, then over the lanes as
// a tree: it follows from the columns alone. Gradients of weights: a lane adds the heads that it took in order, a block
// its groups in order, `combine` the blocks as a tree; so their order depends on the shape and on the number of
// multiprocessors. Measurements: docs/design/rope.md.
#include "attention/rope/heads.cuh"

namespace baracuda {

// Grid: tiles of queries, then tiles of keys, times parts of a token's heads. WIDE instances have the next head in flight.
template <class T, bool INTERLEAVED, bool WIDE, int HELD, class P> BARACUDA_D void qk_norm_rope(const P& p) {
  using A = acc_t<T>;
  constexpr int V = vec_elems<T>;
  BARACUDA_DYNAMIC_SMEM(A, weights);
  const qk::Share own = qk::share_of(p);
  const i64 first_row = own.tile * own.tile_rows;
  const int tokens = static_cast<int>(min<i64>(own.tile_rows, p.rows - first_row));
  const int step = static_cast<int>(gridDim.y) * own.ways;
  int base = static_cast<int>(blockIdx.y) * own.ways;
  if (tokens <= 0 || base >= own.heads) return;
  const int lanes = static_cast<int>(p.lanes), group = static_cast<int>(threadIdx.x) / lanes;
  const int row = group % own.tile_rows, way = group / own.tile_rows, pairs = static_cast<int>(p.rotary_dim / 2);
  A* const cosines = weights + p.head_dim;
  A* const sines = cosines + own.tile_rows * pairs;
  const qk::Token first = qk::token_at(p, first_row), token = qk::token_after(p, first, row);
  const int side = own.side, left = row < tokens ? own.heads - way : 0;  // base < left: the group has a head
  qk::Lane<T, INTERLEAVED, WIDE, HELD> lane(p, static_cast<int>(threadIdx.x) % lanes);
  qk::Head<T> in = qk::head_at<T>(p, side ? p.x2 : p.x, 2 * side, token, base + way);
  qk::Head<T> out = qk::head_at<T>(p, side ? p.y2 : p.y, 2 * side + 1, token, base + way);
  const i64 in_step = step * p.strides[2 * side][1], out_step = step * p.strides[2 * side + 1][1];
  Vec<T, V> x[HELD][2], ahead[HELD][2];
  lane.load_chunks(in, base < left, ahead);  // in flight while the angles are computed
  qk::fill_weights<T>(p, side, weights);
  qk::fill_angles<T>(p, first, tokens, cosines, sines);
  __syncthreads();
  qk::Turns<A, V> turns[HELD];
#pragma unroll
  for (int u = 0; u < HELD; ++u) turns[u] = lane.turns_of(cosines + row * pairs, sines + row * pairs, u);
#pragma unroll 1
  for (; base < own.heads; base += step, out.from += out_step) {
    const bool mine = base < left;
#pragma unroll
    for (int u = 0; u < HELD; ++u) x[u][0] = ahead[u][0], x[u][1] = ahead[u][1];
    in.from += in_step;
    if constexpr (WIDE) lane.load_chunks(in, base + step < left, ahead);
    const auto s = qk::head_scale(p, x);
#pragma unroll
    for (int u = 0; u < HELD; ++u) {
      Vec<A, V> z[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        // Read again for each head: in registers they would make others spill.
        const Vec<A, V> weight = lane.weights_of(weights + forgotten(0), u, i);
#pragma unroll
        for (int k = 0; k < V; ++k) z[i][k] = to_acc(x[u][i][k]) * s.scale * s.rstd * weight[k];
      }
      lane.turn(z, u, turns[u], false);
#pragma unroll
      for (int i = 0; i < 2; ++i) lane.store_chunk(out, mine, u, i, z[i]);
    }
    if constexpr (!WIDE) lane.load_chunks(in, base + step < left, ahead);
  }
}

// Blocks are persistent, side_blocks of each side. x is dy, x3 what was normalised, y dx.
template <class T, bool INTERLEAVED, bool WIDE, int HELD, class P> BARACUDA_D void qk_norm_rope_backward(const P& p) {
  using A = acc_t<T>;
  constexpr int V = vec_elems<T>;
  BARACUDA_DYNAMIC_SMEM(A, weights);
  const qk::Share own = qk::share_of(p);
  const int side = own.side, columns = static_cast<int>(p.head_dim), pairs = static_cast<int>(p.rotary_dim / 2);
  void* const into = side ? p.y2 : p.y;
  const bool summing = p.want >> side & 1;
  if (into == nullptr && !summing) return;
  const int lanes = static_cast<int>(p.lanes), group = static_cast<int>(threadIdx.x) / lanes;
  const int row = group % own.tile_rows, way = group / own.tile_rows;
  A* const cosines = weights + columns;
  A* const sines = cosines + own.tile_rows * pairs;
  A* const board = cosines;  // when the angles are done with: the sums for weights, a row a group
  qk::Lane<T, INTERLEAVED, WIDE, HELD> lane(p, static_cast<int>(threadIdx.x) % lanes);
  qk::fill_weights<T>(p, side, weights);
  const i64 x_step = own.ways * p.strides[side + 4][1], dy_step = own.ways * p.strides[2 * side][1];
  const i64 dx_step = own.ways * p.strides[2 * side + 1][1];
  Vec<A, V> dw[HELD][2]{};
#pragma unroll 1
  for (i64 tile = own.tile; tile < own.tiles; tile += own.step) {
    const i64 first_row = tile * own.tile_rows;
    const int tokens = static_cast<int>(min<i64>(own.tile_rows, p.rows - first_row));
    const qk::Token first = qk::token_at(p, first_row), token = qk::token_after(p, first, row);
    const int left = row < tokens ? own.heads - way : 0;  // base < left: the group has a head
    qk::Head<T> in = qk::head_at<T>(p, side ? p.y3 : p.x3, side + 4, token, way);
    qk::Head<T> from = qk::head_at<T>(p, side ? p.x2 : p.x, 2 * side, token, way);
    qk::Head<T> out = qk::head_at<T>(p, into, 2 * side + 1, token, way);
    Vec<T, V> x[HELD][2], ahead[HELD][2], dy[HELD][2];
    lane.load_chunks(in, 0 < left, ahead);  // in flight while the angles are computed
    __syncthreads();                        // nobody takes angles of the tile before
    qk::fill_angles<T>(p, first, tokens, cosines, sines);
    __syncthreads();
    const int angle = row * pairs;
    qk::Turns<A, V> turns[HELD];
#pragma unroll
    for (int u = 0; u < HELD; ++u) turns[u] = lane.turns_of(cosines + angle, sines + angle, u);
#pragma unroll 1
    for (int base = 0; base < own.heads; base += own.ways, out.from += dx_step) {
      const bool mine = base < left;
      lane.load_chunks(from, mine, dy);  // in flight while the scale is computed
#pragma unroll
      for (int u = 0; u < HELD; ++u) x[u][0] = ahead[u][0], x[u][1] = ahead[u][1];
      in.from += x_step, from.from += dy_step;
      if constexpr (WIDE) lane.load_chunks(in, base + own.ways < left, ahead);
      const auto s = qk::head_scale(p, x);
      double slope = 0;
      Vec<A, V> g[HELD][2];  // dy turned back, then times the weights
      if (mine) {            // the angles of no token are anything, and 0 times infinity would reach dw
#pragma unroll
        for (int u = 0; u < HELD; ++u) {
          g[u][0] = to_acc(dy[u][0]), g[u][1] = to_acc(dy[u][1]);
          if constexpr (HELD > 1) {  // read again, as weights are: no room
            const int again = forgotten(angle);
            turns[u] = lane.turns_of(cosines + again, sines + again, u);
          }
          lane.turn(g[u], u, turns[u], true);
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            // Read again for each head: in registers they would make others spill.
            const Vec<A, V> weight = lane.weights_of(weights + forgotten(0), u, i);
#pragma unroll
            for (int k = 0; k < V; ++k) {
              const A xhat = to_acc(x[u][i][k]) * s.scale * s.rstd;
              dw[u][i][k] = math::fma(g[u][i][k], xhat, dw[u][i][k]);
              g[u][i][k] *= weight[k];
              slope += static_cast<double>(g[u][i][k] * xhat);
            }
          }
        }
      }
      const A mean = static_cast<A>(qk::lanes_sum(slope, lanes) / static_cast<double>(columns));
      if (mine && into != nullptr) {
#pragma unroll
        for (int u = 0; u < HELD; ++u) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            Vec<A, V> dx;
#pragma unroll
            for (int k = 0; k < V; ++k) {
              const A xhat = to_acc(x[u][i][k]) * s.scale * s.rstd;
              dx[k] = math::fma(-xhat, mean, g[u][i][k]) * s.rstd * s.scale;
            }
            lane.store_chunk(out, true, u, i, dx);
          }
        }
      }
      if constexpr (!WIDE) lane.load_chunks(in, base + own.ways < left, ahead);
    }
  }
  if (!summing) return;
  __syncthreads();
#pragma unroll
  for (int u = 0; u < HELD; ++u) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int k = 0; k < V; ++k) {
        if (k < lane.at[u].exist[i]) board[group * columns + lane.at[u].col[i] + k] = dw[u][i][k];
      }
    }
  }
  __syncthreads();
  A* const sums = static_cast<A*>(side ? p.sums2 : p.sums);
  for (int col = threadIdx.x; col < columns; col += qk::threads) {
    A sum = 0;
#pragma unroll 4
    for (int g = 0; g < qk::threads / lanes; ++g) sum += board[g * columns + col];
    sums[own.tile * columns + col] = sum;
  }
}

// A warp for each column of the weights of queries (blockIdx.y 0) or keys.
template <class T, class P> BARACUDA_D void qk_norm_rope_combine(const P& p) {
  using A = acc_t<T>;
  const bool key = blockIdx.y == 1;
  void* const out = key ? p.dweight2 : p.dweight;
  const i64 col = static_cast<i64>(blockIdx.x) * (qk::threads / warp_size) + threadIdx.x / warp_size;
  if (out == nullptr || col >= p.columns) return;
  const A* const sums = static_cast<const A*>(key ? p.sums2 : p.sums);
  double sum = 0;
#pragma unroll 4
  for (i64 part = lane_id(); part < p.parts[key]; part += warp_size)
    sum += static_cast<double>(sums[part * p.columns + col]);
  sum = warp_reduce<Sum>(sum);
  if (lane_id() == 0) norm::put_affine<T>(out, col * (key ? p.stride2 : p.stride), p.wide, sum);
}

}  // namespace baracuda
