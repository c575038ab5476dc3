#pragma once
// heads      what kernels of normalised and rotated heads share: the tokens and heads of a block, their angles and weights,
//            and the columns that a lane holds; qk_norm_rope.cu describes the schedule.
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

// What a block works on: the side (0 queries, 1 keys, 2 values), its tokens in tiles, and how many groups share a token's
// heads.
struct Share {
  int side, tile_rows, ways, heads;
  i64 tile, tiles, step;
};
template <class P> BARACUDA_D Share share_of(const P& p) {
  int side = 0;
  i64 tile = blockIdx.x;
#pragma unroll
  for (int k = 0; k + 1 < static_cast<int>(sizeof(p.side_blocks) / sizeof(i64)); ++k) {
    if (side == k && tile >= p.side_blocks[k]) tile -= p.side_blocks[k], side = k + 1;
  }
  return {side, p.side_rows[side],  p.side_ways[side],  static_cast<int>(p.head_counts[side]),
          tile, p.side_tiles[side], p.side_blocks[side]};
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

}  // namespace baracuda
