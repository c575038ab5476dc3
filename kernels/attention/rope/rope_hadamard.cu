// rope_hadamard   y = H R(x) / sqrt(d) of every head, R the rotation of rope.cuh, H Sylvester's matrix of d columns, and its
//                 gradient, R^-1(H dy) / sqrt(d).
//
// Blocks, groups of lanes and their walk over a token's heads are those of qk_norm_rope.cu. A lane's chunks for R hold
// whole pairs, those for H are V neighbours and the V that are half a head behind them: the same where all columns turn;
// else a group exchanges them in shared memory. Level q of H is a sum and a difference of columns that differ in bit q:
// first the bits within a chunk, ascending, then the highest, then those between lanes, ascending. It follows from d and T
// alone, and fixes the order of every sum.
#include "attention/rope/heads.cuh"

namespace baracuda {

namespace rope_hadamard_lanes {

// The chunks of unit u for H, of which there are `units`.
template <int V, class P> BARACUDA_D qk::Unit unit_at(const P& p, int u) {
  const int columns = static_cast<int>(p.head_dim);
  const bool there = u < p.hadamard_units, pair = columns >= 2 * V;
  qk::Unit at;
  at.turning = false;
  at.col[0] = u * V, at.col[1] = u * V + columns / 2;
  at.exist[0] = there ? min(columns, V) : 0, at.exist[1] = there && pair ? V : 0;
  return at;
}

template <class A> BARACUDA_D void add_and_subtract(A& a, A& b) {
  const A a0 = a;
  a = a0 + b, b = a0 - b;
}

// H of the head whose chunks a group holds; all lanes of a warp come here together.
template <int V, int HELD, class A, class P> BARACUDA_D void transform(const P& p, int lane, Vec<A, V> (&z)[HELD][2]) {
  const int columns = static_cast<int>(p.head_dim);
#pragma unroll
  for (int step = 1; step < V; step *= 2) {
    if (step >= columns) break;
#pragma unroll
    for (int u = 0; u < HELD; ++u) {
#pragma unroll
      for (int k = 0; k < V; ++k) {
        if (k & step) continue;
        add_and_subtract(z[u][0][k], z[u][0][k + step]);
        add_and_subtract(z[u][1][k], z[u][1][k + step]);
      }
    }
  }
  if (columns >= 2 * V) {
#pragma unroll
    for (int u = 0; u < HELD; ++u) {
#pragma unroll
      for (int k = 0; k < V; ++k) add_and_subtract(z[u][0][k], z[u][1][k]);
    }
  }
  const int lanes = static_cast<int>(p.lanes);
#pragma unroll 1
  for (int mask = 1; mask < p.hadamard_units; mask *= 2) {
    if (mask < lanes) {
#pragma unroll
      for (int u = 0; u < HELD; ++u) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
          for (int k = 0; k < V; ++k) {
            const A other = shuffle_xor(z[u][i][k], mask);
            z[u][i][k] = lane & mask ? other - z[u][i][k] : z[u][i][k] + other;
          }
        }
      }
    } else if constexpr (HELD > 1) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int k = 0; k < V; ++k) add_and_subtract(z[0][i][k], z[1][i][k]);
      }
    }
  }
}

// What a group of lanes holds as the chunks of `from`, as those of `to`; `board` is the group's.
template <bool WIDE, int V, int HELD, class L, class A>
BARACUDA_D void exchange(A* board, const L& from, const L& to, Vec<A, V> (&z)[HELD][2]) {
  const qk::Head<A> head{board, 1};
  __syncwarp();  // nobody takes what was there before
#pragma unroll
  for (int u = 0; u < HELD; ++u) {
#pragma unroll
    for (int i = 0; i < 2; ++i) head.template store_at<WIDE, V>(from.at[u].col[i], from.at[u].exist[i], z[u][i]);
  }
  __syncwarp();
#pragma unroll
  for (int u = 0; u < HELD; ++u) {
#pragma unroll
    for (int i = 0; i < 2; ++i) z[u][i] = head.template load_at<WIDE, V>(to.at[u].col[i], to.at[u].exist[i]);
  }
}

// Grid: tiles of x, then tiles of x2, times parts of a token's heads. WIDE instances have the next head in flight.
template <class T, bool INTERLEAVED, bool WIDE, int HELD, bool BACK, class P> BARACUDA_D void walk(const P& p) {
  using A = acc_t<T>;
  constexpr int V = vec_elems<T>;
  BARACUDA_DYNAMIC_SMEM(A, boards);
  const qk::Share own = qk::share_of(p);
  const i64 first_row = own.tile * own.tile_rows;
  const int tokens = static_cast<int>(min<i64>(own.tile_rows, p.rows - first_row));
  const int step = static_cast<int>(gridDim.y) * own.ways;
  int base = static_cast<int>(blockIdx.y) * own.ways;
  if (tokens <= 0 || base >= own.heads) return;
  const int lanes = static_cast<int>(p.lanes), group = static_cast<int>(threadIdx.x) / lanes;
  const int row = group % own.tile_rows, way = group / own.tile_rows, pairs = static_cast<int>(p.rotary_dim / 2);
  const int place = static_cast<int>(threadIdx.x) % lanes;
  A* const board = boards + group * static_cast<int>(p.board);
  A* const cosines = boards + qk::threads / lanes * static_cast<int>(p.board);
  A* const sines = cosines + own.tile_rows * pairs;
  const qk::Token first = qk::token_at(p, first_row), token = qk::token_after(p, first, row);
  const int side = own.side, left = row < tokens ? own.heads - way : 0;  // base < left: the group has a head
  using Lane = qk::Lane<T, INTERLEAVED, WIDE, HELD>;
  const Lane turning(p, place);
  Lane mixing = turning;
#pragma unroll
  for (int u = 0; u < HELD; ++u) mixing.at[u] = unit_at<V>(p, place + u * lanes);
  const Lane &enters = BACK ? mixing : turning, &leaves = BACK ? turning : mixing;
  qk::Head<T> in = qk::head_at<T>(p, side ? p.x2 : p.x, 2 * side, token, base + way);
  qk::Head<T> out = qk::head_at<T>(p, side ? p.y2 : p.y, 2 * side + 1, token, base + way);
  const i64 in_step = step * p.strides[2 * side][1], out_step = step * p.strides[2 * side + 1][1];
  Vec<T, V> ahead[HELD][2];
  enters.load_chunks(in, base < left, ahead);  // in flight while the angles are computed
  qk::fill_angles<T>(p, first, tokens, cosines, sines);
  __syncthreads();
  qk::Turns<A, V> turns[HELD];
#pragma unroll
  for (int u = 0; u < HELD; ++u) turns[u] = turning.turns_of(cosines + row * pairs, sines + row * pairs, u);
  const A unit = static_cast<A>(p.unit);
#pragma unroll 1
  for (; base < own.heads; base += step, out.from += out_step) {
    const bool mine = base < left;
    Vec<A, V> z[HELD][2];
#pragma unroll
    for (int u = 0; u < HELD; ++u) z[u][0] = to_acc(ahead[u][0]), z[u][1] = to_acc(ahead[u][1]);
    in.from += in_step;
    if constexpr (WIDE) enters.load_chunks(in, base + step < left, ahead);
    if constexpr (BACK) {
      transform<V>(p, place, z);
      if (p.board > 0) exchange<WIDE>(board, enters, leaves, z);
    }
#pragma unroll
    for (int u = 0; u < HELD; ++u) turning.turn(z[u], u, turns[u], BACK);
    if constexpr (!BACK) {
      if (p.board > 0) exchange<WIDE>(board, enters, leaves, z);
      transform<V>(p, place, z);
    }
#pragma unroll
    for (int u = 0; u < HELD; ++u) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int k = 0; k < V; ++k) z[u][i][k] *= unit;
        leaves.store_chunk(out, mine, u, i, z[u][i]);
      }
    }
    if constexpr (!WIDE) enters.load_chunks(in, base + step < left, ahead);
  }
}

}  // namespace rope_hadamard_lanes

template <class T, bool INTERLEAVED, bool WIDE, int HELD, class P> BARACUDA_D void rope_hadamard(const P& p) {
  rope_hadamard_lanes::walk<T, INTERLEAVED, WIDE, HELD, false>(p);
}
template <class T, bool INTERLEAVED, bool WIDE, int HELD, class P> BARACUDA_D void rope_hadamard_backward(const P& p) {
  rope_hadamard_lanes::walk<T, INTERLEAVED, WIDE, HELD, true>(p);
}

}  // namespace baracuda
