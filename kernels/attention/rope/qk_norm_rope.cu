// qk_norm_rope   y = R(rms_norm(x) weight) of every head of queries and keys, R the rotation of rope.cuh, and its gradient.
//
// A block has a tile of tokens of one side, queries or keys. It makes their angles once, in shared memory. A group of
// lanes takes a token and every ways-th head of it, one after another, the next one's chunks in flight: weights and
// angles stay in registers, and heads are a stride apart. A lane holds HELD units of a head, each two chunks of 16 bytes
// that hold whole pairs, as in rope.cuh. A sum over a head runs over the lane's elements in order, then over the lanes as
// a tree: it follows from the columns alone. Gradients of weights: a lane adds the heads that it took in order, a block
// its groups in order, `combine` the blocks as a tree; so their order depends on the shape and on the number of
// multiprocessors. Measurements: docs/design/rope.md.
#include "attention/rope/rope.cuh"
#include "norm/channel.cuh"

#include <baracuda/reduce.cuh>

namespace baracuda {

namespace qk {

constexpr int threads = 256;

// Where the two chunks of a unit are, and how many of their columns exist.
struct Unit {
  int col[2], exist[2];
  bool turning;
};
template <int V, bool INTERLEAVED, class P> BARACUDA_D Unit unit_at(const P& p, int u) {
  const int pairs = static_cast<int>(p.rotary_dim / 2), split = INTERLEAVED ? (pairs + 1) / 2 * 2 : pairs;
  const int rotary = static_cast<int>(p.rotary_dim), columns = static_cast<int>(p.head_dim);
  Unit at;
  at.turning = u < p.rotary_units;
  at.col[0] = at.turning ? u * V : rotary + (u - static_cast<int>(p.rotary_units)) * V;
  at.col[1] = at.col[0] + (at.turning ? split : static_cast<int>(p.copy_units) * V);
  const int end[2] = {at.turning ? split : min(columns, rotary + static_cast<int>(p.copy_units) * V),
                      at.turning ? rotary : columns};
#pragma unroll
  for (int i = 0; i < 2; ++i) at.exist[i] = u < p.units ? max(min(end[i] - at.col[i], V), 0) : 0;
  return at;
}

// A head: the element that its columns start at, and the distance between them.
template <class T> struct Head {
  T* from;
  i64 stride;
  template <bool WIDE, int V> BARACUDA_D Vec<T, V> load_at(int col, int exist) const {
    if constexpr (!WIDE) return load_strided<T, V>(from + col * stride, stride, exist);
    Vec<T, V> x{};
    if (exist > 0) x = load<V>(from + col);
    return x;
  }
  template <bool WIDE, int V> BARACUDA_D void store_at(int col, int exist, const Vec<T, V>& x) const {
    if constexpr (!WIDE) store_strided<T, V>(from + col * stride, stride, x, exist);
    else if (exist > 0) store(from + col, x);
  }
};

// What a block works on: the side (0 queries, 1 keys), its tokens in tiles, and how many groups share a token's heads.
struct Share {
  int side, tile_rows, ways, heads;
  i64 tile, tiles, step;
};
template <class P> BARACUDA_D Share share_of(const P& p) {
  const int side = static_cast<i64>(blockIdx.x) >= p.side_blocks[0];
  return {side,
          p.side_rows[side],
          p.side_ways[side],
          static_cast<int>(p.head_counts[side]),
          static_cast<i64>(blockIdx.x) - (side ? p.side_blocks[0] : 0),
          p.side_tiles[side],
          p.side_blocks[side]};
}

// The sample and the place in it of a token.
struct Token {
  i64 b, s;
};
template <class P> BARACUDA_D Token token_at(const P& p, i64 row) {
  u64 s;
  const u64 b = divmod(static_cast<u64>(row), static_cast<u64>(p.seq_len), s);
  return {static_cast<i64>(b), static_cast<i64>(s)};
}
// That of the token `row` after `first`, row < threads: only rows beyond the sample's end divide, in 32 bits.
template <class P> BARACUDA_D Token token_after(const P& p, Token first, int row) {
  const i64 s = first.s + row;
  if (s < p.seq_len) return {first.b, s};
  u32 rest;
  const u32 samples = divmod(static_cast<u32>(s - p.seq_len), static_cast<u32>(min<i64>(p.seq_len, threads)), rest);
  return {first.b + 1 + samples, rest};
}
template <class T, class P> BARACUDA_D Head<T> head_at(const P& p, void* base, int n, Token at, int head) {
  const i64(&by)[4] = p.strides[n];
  return {static_cast<T*>(base) + (at.b * by[0] + head * by[1] + at.s * by[2]), by[3]};
}

// The cosines and sines of a tile's tokens, times the scale: entry r * pairs + j.
template <class T, class P>
BARACUDA_D void fill_angles(const P& p, Token first, int tokens, acc_t<T>* cosines, acc_t<T>* sines) {
  using A = acc_t<T>;
  const u32 pairs = static_cast<u32>(p.rotary_dim / 2);
  if (pairs == 0) return;
  const A scale = static_cast<A>(p.scale());
  u32 pair, r = divmod(threadIdx.x, pairs, pair), kept = pairs;
  typename Angle<A>::frequency frequency{};
#pragma unroll 1
  while (static_cast<int>(r) < tokens) {
    const Token at = token_after(p, first, static_cast<int>(r));
    A sine, cosine;
    if (p.cos != nullptr) {
      cosine = rope_entry<T>(p, 0, at.b, at.s, pair), sine = rope_entry<T>(p, 1, at.b, at.s, pair);
    } else {
      if (pair != kept) frequency = rope_kept<A>(p, pair), kept = pair;
      const u64 position = rope_position(p, at.b, at.s, pair) + static_cast<u64>(p.offset());  // wraps, as NumPy does
      Angle<A>::sincos(static_cast<i64>(position), frequency, &sine, &cosine);
    }
    cosines[r * pairs + pair] = cosine * scale, sines[r * pairs + pair] = sine * scale;
    r += p.step_rows, pair += p.step_pairs;
    if (pair >= pairs) pair -= pairs, ++r;
  }
}
template <class T, class P> BARACUDA_D void fill_weights(const P& p, int side, acc_t<T>* weights) {
  const void* const from = side ? p.weight2 : p.weight;
  const i64 stride = side ? p.weight_stride2 : p.weight_stride;
  for (int i = threadIdx.x; i < p.head_dim; i += threads) {
    weights[i] = from == nullptr
                     ? acc_t<T>(1)
                     : norm::affine_at<T>(from, i * stride, p.wide) + static_cast<acc_t<T>>(p.weight_offset);
  }
}

// The cosines and sines of a unit's pairs.
template <class A, int V> struct Turns {
  Vec<A, V> cosine, sine;
};

// Where a lane's units are. Columns that do not exist have weight 0 and a cosine and sine of 0, so that they add nothing
// to sums. In WIDE instances weights and angles, too, are whole chunks.
template <class T, bool INTERLEAVED, bool WIDE, int HELD> struct Lane {
  using A = acc_t<T>;
  static constexpr int V = vec_elems<T>;
  using Chunks = Vec<T, V>[HELD][2];
  Unit at[HELD];

  template <class P> BARACUDA_D Lane(const P& p, int lane) {
#pragma unroll
    for (int u = 0; u < HELD; ++u) at[u] = unit_at<V, INTERLEAVED>(p, lane + u * static_cast<int>(p.lanes));
  }
  BARACUDA_D Vec<A, V> weights_of(A* weights, int u, int i) const {
    return Head<A>{weights, 1}.template load_at<WIDE, V>(at[u].col[i], at[u].exist[i]);
  }
  // Those of unit u, from the angles of a token.
  BARACUDA_D Turns<A, V> turns_of(A* cosines, A* sines, int u) const {
    constexpr int N = INTERLEAVED ? 2 : 1, W = V / N;  // pairs of a chunk, or of both
    Turns<A, V> turns;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const int pair = at[u].col[i] / N, exist = at[u].turning ? at[u].exist[i] / N : 0;
      const auto c = Head<A>{cosines, 1}.template load_at<WIDE, W>(pair, exist);
      const auto s = Head<A>{sines, 1}.template load_at<WIDE, W>(pair, exist);
#pragma unroll
      for (int k = 0; k < W; ++k) turns.cosine[i * W + k] = c[k], turns.sine[i * W + k] = s[k];
    }
    return turns;
  }
  BARACUDA_D void load_chunks(const Head<T>& from, bool mine, Chunks& x) const {
#pragma unroll
    for (int u = 0; u < HELD; ++u) {
#pragma unroll
      for (int i = 0; i < 2; ++i) x[u][i] = from.template load_at<WIDE, V>(at[u].col[i], mine ? at[u].exist[i] : 0);
    }
  }
  BARACUDA_D void store_chunk(const Head<T>& to, bool mine, int u, int i, const Vec<A, V>& y) const {
    to.template store_at<WIDE, V>(at[u].col[i], mine ? at[u].exist[i] : 0, from_acc<T>(y));
  }
  // Turns the pairs of unit u; `back`: by the negated angle.
  BARACUDA_D void turn(Vec<A, V> (&x)[2], int u, const Turns<A, V>& by, bool back) const {
    if (!at[u].turning) return;
#pragma unroll
    for (int j = 0; j < V; ++j) {
      A& a = INTERLEAVED ? x[j / (V / 2)][j % (V / 2) * 2] : x[0][j];
      A& b = INTERLEAVED ? x[j / (V / 2)][j % (V / 2) * 2 + 1] : x[1][j];
      const A c = by.cosine[j], s = back ? -by.sine[j] : by.sine[j], a0 = a;
      a = math::fma(a0, c, -(b * s));
      b = math::fma(b, c, a0 * s);
    }
  }
};

BARACUDA_D double lanes_sum(double x, int lanes) {
#pragma unroll 1
  for (int mask = 1; mask < lanes; mask *= 2) x += shuffle_xor(x, mask);
  return x;
}

// The scale of a head: 1 / rms. The sum of squares is in double: products of 16-bit floats and of floats are exact there.
template <int HELD, int V, class T, class P> BARACUDA_D auto head_scale(const P& p, const Vec<T, V> (&x)[HELD][2]) {
  double sum = 0;
#pragma unroll
  for (int u = 0; u < HELD; ++u) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const double value = static_cast<double>(to_acc(x[u][i][k]));
        sum = math::fma(value, value, sum);
      }
    }
  }
  sum = lanes_sum(sum, static_cast<int>(p.lanes));
  return norm::centre_of<acc_t<T>>(0.0, 0.0, 1.0 / math::sqrt(sum / static_cast<double>(p.head_dim) + p.eps));
}

}  // namespace qk

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
