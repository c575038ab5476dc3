// qk_norm_rope   y = R(rms_norm(x) weight) of every head of queries and keys, R the rotation of rope.cuh, and its gradient.
//
// A block has a tile of tokens: it makes their angles once, in shared memory, and keeps the weights there. A group of
// lanes takes a head of a token; a lane holds up to two units of it in registers, each two chunks of 16 bytes that hold
// whole pairs, as in rope.cuh. A sum over a head runs over the lane's elements in order, then over the lanes as a tree: it
// follows from the columns alone. Gradients of weights: a lane adds the heads that it took in order, a block its groups in
// order, `combine` the blocks as a tree; so their order depends on the shape and on the number of multiprocessors.
#include "attention/rope/rope.cuh"
#include "norm/channel.cuh"

#include <baracuda/reduce.cuh>

namespace baracuda {

namespace qk {

constexpr int threads = 256, held = 2;  // units a lane holds

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
template <class T, class P> BARACUDA_D Head<T> head_at(const P& p, void* base, int n, i64 token, i64 head) {
  const i64(&by)[4] = p.strides[n];
  i64 s;
  const i64 b =
      static_cast<i64>(divmod(static_cast<u64>(token), static_cast<u64>(p.seq_len), reinterpret_cast<u64&>(s)));
  return {static_cast<T*>(base) + (b * by[0] + head * by[1] + s * by[2]), by[3]};
}

// The cosines and sines of a tile's tokens, times the scale: entry r * pairs + j.
template <class T, class P>
BARACUDA_D void fill_angles(const P& p, i64 first, int tokens, acc_t<T>* cosines, acc_t<T>* sines) {
  using A = acc_t<T>;
  const int pairs = static_cast<int>(p.rotary_dim / 2);
  const A scale = static_cast<A>(p.scale());
  for (int i = threadIdx.x; i < tokens * pairs; i += threads) {
    const int r = i / pairs, pair = i % pairs;
    u64 s;
    const i64 b = static_cast<i64>(divmod(static_cast<u64>(first + r), static_cast<u64>(p.seq_len), s));
    A sine, cosine;
    if (p.cos != nullptr) {
      cosine = rope_entry<T>(p, 0, b, s, pair), sine = rope_entry<T>(p, 1, b, s, pair);
    } else {
      u64 position = s;  // wraps, as NumPy does
      if (p.positions != nullptr) {
        const i64 at = b * p.position_strides[0] + static_cast<i64>(s) * p.position_strides[1];
        position = static_cast<u64>(rope_integer(p.positions, at, p.positions_wide));
      }
      position += static_cast<u64>(p.offset());
      Angle<A>::sincos(static_cast<i64>(position), rope_kept<A>(p, pair), &sine, &cosine);
    }
    cosines[i] = cosine * scale, sines[i] = sine * scale;
  }
}
template <class T, class P> BARACUDA_D void fill_weights(const P& p, const void* from, i64 stride, acc_t<T>* weights) {
  for (int i = threadIdx.x; i < p.head_dim; i += threads) {
    weights[i] = from == nullptr
                     ? acc_t<T>(1)
                     : norm::affine_at<T>(from, i * stride, p.wide) + static_cast<acc_t<T>>(p.weight_offset);
  }
}

BARACUDA_D double lanes_sum(double x, int lanes) {
#pragma unroll 1
  for (int mask = 1; mask < lanes; mask *= 2) x += shuffle_xor(x, mask);
  return x;
}

// Turns the pairs of two chunks of a unit; `back`: by the negated angle.
template <int V, bool INTERLEAVED, class A>
BARACUDA_D void turn_unit(Vec<A, V> (&x)[2], const Unit& at, const A* cosines, const A* sines, int pairs, bool back) {
  const auto turn = [&](A& a, A& b, int pair) {
    if (pair >= pairs) return;
    const A c = cosines[pair], s = back ? -sines[pair] : sines[pair], a0 = a;
    a = math::fma(a0, c, -(b * s));
    b = math::fma(b, c, a0 * s);
  };
  if (!at.turning) return;
  if constexpr (INTERLEAVED) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int k = 0; k < V; k += 2) turn(x[i][k], x[i][k + 1], (at.col[i] + k) / 2);
    }
  } else {
#pragma unroll
    for (int k = 0; k < V; ++k) turn(x[0][k], x[1][k], at.col[0] + k);
  }
}

// The sum of squares of a head in double: products of 16-bit floats and of floats are exact there.
template <int V, class T> BARACUDA_D double squares(const Vec<T, V> (&x)[held][2]) {
  double sum = 0;
#pragma unroll
  for (int u = 0; u < held; ++u) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const double value = static_cast<double>(to_acc(x[u][i][k]));
        sum = math::fma(value, value, sum);
      }
    }
  }
  return sum;
}

}  // namespace qk

template <class T, bool INTERLEAVED, bool WIDE, class P> BARACUDA_D void qk_norm_rope(const P& p) {
  using A = acc_t<T>;
  constexpr int V = vec_elems<T>;
  BARACUDA_DYNAMIC_SMEM(A, cosines);
  const int pairs = static_cast<int>(p.rotary_dim / 2), columns = static_cast<int>(p.head_dim);
  A* const sines = cosines + p.tile_rows * pairs;
  A* const weights = sines + p.tile_rows * pairs;  // of queries, then of keys
  const i64 first = static_cast<i64>(blockIdx.x) * p.tile_rows;
  const int tokens = static_cast<int>(min<i64>(p.tile_rows, p.rows - first));
  if (tokens <= 0) return;
  qk::fill_angles<T>(p, first, tokens, cosines, sines);
  qk::fill_weights<T>(p, p.weight, p.weight_stride, weights);
  qk::fill_weights<T>(p, p.weight2, p.weight_stride2, weights + columns);
  __syncthreads();
  const int lanes = static_cast<int>(p.lanes), groups = qk::threads / lanes;
  const int group = static_cast<int>(threadIdx.x) / lanes, lane = static_cast<int>(threadIdx.x) % lanes;
  const int heads = static_cast<int>(p.head_counts[0] + p.head_counts[1]), jobs = tokens * heads;
#pragma unroll 1
  for (int base = blockIdx.y * groups; base < jobs; base += gridDim.y * groups) {
    const int job = base + group;
    const bool mine = job < jobs;
    const int token = mine ? job / heads : 0, head = mine ? job % heads : 0;
    const bool key = head >= p.head_counts[0];
    const i64 own = key ? head - p.head_counts[0] : head;
    const qk::Head<T> in = qk::head_at<T>(p, key ? p.x2 : p.x, key ? 2 : 0, first + token, own);
    const qk::Head<T> out = qk::head_at<T>(p, key ? p.y2 : p.y, key ? 3 : 1, first + token, own);
    Vec<T, V> x[qk::held][2];
#pragma unroll
    for (int u = 0; u < qk::held; ++u) {
      const qk::Unit at = qk::unit_at<V, INTERLEAVED>(p, lane + u * lanes);
#pragma unroll
      for (int i = 0; i < 2; ++i) x[u][i] = in.template load_at<WIDE, V>(at.col[i], mine ? at.exist[i] : 0);
    }
    const double sum = qk::lanes_sum(qk::squares(x), lanes);
    const auto s = norm::centre_of<A>(0.0, 0.0, 1.0 / math::sqrt(sum / static_cast<double>(columns) + p.eps));
#pragma unroll
    for (int u = 0; u < qk::held; ++u) {
      const qk::Unit at = qk::unit_at<V, INTERLEAVED>(p, lane + u * lanes);
      Vec<A, V> z[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int k = 0; k < V; ++k) {
          const A w = k < at.exist[i] ? weights[(key ? columns : 0) + at.col[i] + k] : A(0);
          z[i][k] = to_acc(x[u][i][k]) * s.scale * s.rstd * w;
        }
      }
      qk::turn_unit<V, INTERLEAVED>(z, at, cosines + token * pairs, sines + token * pairs, pairs, false);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        out.template store_at<WIDE, V>(at.col[i], mine ? at.exist[i] : 0, from_acc<T>(z[i]));
      }
    }
  }
}

// Blocks are persistent, those of queries (blockIdx.y 0) and of keys apart. x is dy, x3 what was normalised, y dx.
template <class T, bool INTERLEAVED, bool WIDE, class P> BARACUDA_D void qk_norm_rope_backward(const P& p) {
  using A = acc_t<T>;
  constexpr int V = vec_elems<T>;
  BARACUDA_DYNAMIC_SMEM(A, cosines);
  const bool key = blockIdx.y == 1;
  const int pairs = static_cast<int>(p.rotary_dim / 2), columns = static_cast<int>(p.head_dim);
  A* const sines = cosines + p.tile_rows * pairs;
  A* const weights = sines + p.tile_rows * pairs;
  A* const board = weights + columns;  // of the sums for weights, a row a group
  const int lanes = static_cast<int>(p.lanes), groups = qk::threads / lanes;
  const int group = static_cast<int>(threadIdx.x) / lanes, lane = static_cast<int>(threadIdx.x) % lanes;
  const int heads = static_cast<int>(p.head_counts[key]);
  void* const into = key ? p.y2 : p.y;
  void* const sums = key ? p.sums2 : p.sums;
  const bool summing = key ? p.want & 2 : p.want & 1;
  if (into == nullptr && !summing) return;
  qk::fill_weights<T>(p, key ? p.weight2 : p.weight, key ? p.weight_stride2 : p.weight_stride, weights);
  Vec<A, V> dw[qk::held][2]{};
#pragma unroll 1
  for (i64 tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
    const i64 first = tile * p.tile_rows;
    const int tokens = static_cast<int>(min<i64>(p.tile_rows, p.rows - first)), jobs = tokens * heads;
    __syncthreads();
    qk::fill_angles<T>(p, first, tokens, cosines, sines);
    __syncthreads();
#pragma unroll 1
    for (int base = 0; base < jobs; base += groups) {
      const int job = base + group;
      const bool mine = job < jobs;
      const int token = mine ? job / heads : 0, head = mine ? job % heads : 0;
      const qk::Head<T> in = qk::head_at<T>(p, key ? p.y3 : p.x3, key ? 5 : 4, first + token, head);
      const qk::Head<T> from = qk::head_at<T>(p, key ? p.x2 : p.x, key ? 2 : 0, first + token, head);
      Vec<T, V> x[qk::held][2], dy[qk::held][2];
#pragma unroll
      for (int u = 0; u < qk::held; ++u) {
        const qk::Unit at = qk::unit_at<V, INTERLEAVED>(p, lane + u * lanes);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          x[u][i] = in.template load_at<WIDE, V>(at.col[i], mine ? at.exist[i] : 0);
          dy[u][i] = from.template load_at<WIDE, V>(at.col[i], mine ? at.exist[i] : 0);
        }
      }
      const double sum = qk::lanes_sum(qk::squares(x), lanes);
      const auto s = norm::centre_of<A>(0.0, 0.0, 1.0 / math::sqrt(sum / static_cast<double>(columns) + p.eps));
      double slope = 0;
      Vec<A, V> g[qk::held][2];  // dy turned back
#pragma unroll
      for (int u = 0; u < qk::held; ++u) {
        const qk::Unit at = qk::unit_at<V, INTERLEAVED>(p, lane + u * lanes);
        g[u][0] = to_acc(dy[u][0]), g[u][1] = to_acc(dy[u][1]);
        qk::turn_unit<V, INTERLEAVED>(g[u], at, cosines + token * pairs, sines + token * pairs, pairs, true);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
          for (int k = 0; k < V; ++k) {
            if (!mine || k >= at.exist[i]) continue;
            const A xhat = to_acc(x[u][i][k]) * s.scale * s.rstd;
            dw[u][i][k] = math::fma(g[u][i][k], xhat, dw[u][i][k]);
            slope += static_cast<double>(g[u][i][k] * weights[at.col[i] + k] * xhat);
          }
        }
      }
      const A mean = static_cast<A>(qk::lanes_sum(slope, lanes) / static_cast<double>(columns));
      if (into == nullptr) continue;
      const qk::Head<T> out = qk::head_at<T>(p, into, key ? 3 : 1, first + token, head);
#pragma unroll
      for (int u = 0; u < qk::held; ++u) {
        const qk::Unit at = qk::unit_at<V, INTERLEAVED>(p, lane + u * lanes);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          Vec<A, V> dx;
#pragma unroll
          for (int k = 0; k < V; ++k) {
            const A w = k < at.exist[i] ? weights[at.col[i] + k] : A(0), xhat = to_acc(x[u][i][k]) * s.scale * s.rstd;
            dx[k] = math::fma(-xhat, mean, g[u][i][k] * w) * s.rstd * s.scale;
          }
          out.template store_at<WIDE, V>(at.col[i], mine ? at.exist[i] : 0, from_acc<T>(dx));
        }
      }
    }
  }
  if (!summing) return;
#pragma unroll
  for (int u = 0; u < qk::held; ++u) {
    const qk::Unit at = qk::unit_at<V, INTERLEAVED>(p, lane + u * lanes);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int k = 0; k < V; ++k) {
        if (k < at.exist[i]) board[group * columns + at.col[i] + k] = dw[u][i][k];
      }
    }
  }
  __syncthreads();
  for (int col = threadIdx.x; col < columns; col += qk::threads) {
    A sum = 0;
#pragma unroll 4
    for (int g = 0; g < groups; ++g) sum += board[g * columns + col];
    static_cast<A*>(sums)[static_cast<i64>(blockIdx.x) * columns + col] = sum;
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
  for (i64 part = lane_id(); part < p.parts; part += warp_size)
    sum += static_cast<double>(sums[part * p.columns + col]);
  sum = warp_reduce<Sum>(sum);
  if (lane_id() == 0) norm::put_affine<T>(out, col * (key ? p.stride2 : p.stride), p.wide, sum);
}

}  // namespace baracuda
