#pragma once
// recurrence    what the kernels of linear attention share: which rows a sequence has, tiles of steps in shared memory,
//               and a thread's share of a state [d_k, d_v].
//
// A block has 32 columns of the state of one head of one sequence. Of them each group of 8 lanes has 2, and of the d_k
// rows lane l of a group has 4 l + 32 i + j. Sums over d_k are chains within a thread and then a butterfly over the 8
// lanes; their order is fixed by d_k alone.
#include <baracuda/reduce.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {
namespace recurrence {

constexpr int threads = 128, group_lanes = 8, columns = 2, tile_columns = 32, tile_elements = 2048;

struct Rows {
  i64 begin, end;
};

// Bound n: clamped to [0, total] and to the largest bound before it. All threads of the block call it.
template <class P> BARACUDA_D i64 settled_bound(const P& p, i64 n) {
  __shared__ i64 highest[threads / warp_size];
  i64 most = 0;
  for (i64 i = threadIdx.x; i <= n; i += threads) {
    const i64 at = i * p.bound_stride;
    const i64 bound = p.wide_bounds ? static_cast<const i64*>(p.bounds)[at] : static_cast<const i32*>(p.bounds)[at];
    most = max<i64>(most, min<i64>(bound, p.seq_len));
  }
#pragma unroll
  for (int lane = 1; lane < warp_size; lane *= 2) most = max<i64>(most, __shfl_xor_sync(full_warp, most, lane));
  __syncthreads();
  if (lane_id() == 0) highest[threadIdx.x / warp_size] = most;
  __syncthreads();
#pragma unroll
  for (int warp = 0; warp < threads / warp_size; ++warp) most = max<i64>(most, highest[warp]);
  return most;
}
template <class P> BARACUDA_D Rows rows_of(const P& p, i64 n) {
  if (p.bounds == nullptr) return {0, p.seq_len};
  const i64 begin = settled_bound(p, n);
  return {begin, settled_bound(p, n + 1)};
}

// The head of `heads` that head `head` of `all` shares with its neighbours.
BARACUDA_D i64 head_of(i64 head, i64 all, i64 heads) {
  return heads == all ? head : static_cast<u32>(head) / (static_cast<u32>(all) / static_cast<u32>(heads));
}
// The place of (batch, row, head) in an operand of rows.
template <class T> BARACUDA_D T* row_at(const void* x, const i64 (&stride)[3], i64 batch, i64 row, i64 head) {
  return const_cast<T*>(static_cast<const T*>(x)) + batch * stride[0] + row * stride[1] + head * stride[2];
}

// The thread's number if the block's warps are counted from warp `turn` on: the operands of few steps are loaded by
// different warps, so that they are under way together.
BARACUDA_D int counted_from(int turn) { return (static_cast<int>(threadIdx.x) - turn * warp_size) & (threads - 1); }

// `steps` rows of an operand into tile[step][DK], zeros behind d_k. A warp has a row, the first of them warp `turn`, so
// that it can be normalised: x / sqrt(sum x^2 + eps). EXP: exp(x).
template <class T, int DK, bool EXP = false, class A>
BARACUDA_D void load_rows(A* tile, const T* from, i64 stride, int steps, int d_k, bool normalised, double eps,
                          int turn = 0) {
  constexpr int N = DK / warp_size;
  for (int step = counted_from(turn) / warp_size; step < steps; step += threads / warp_size) {
    A x[N], squares = A(0);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const int d = i * warp_size + lane_id();
      x[i] = A(0);
      if (d < d_k) x[i] = to_acc(from[step * stride + d]);
      if constexpr (EXP) x[i] = math::exp(x[i]);
      squares = math::fma(x[i], x[i], squares);
    }
    if (normalised) {
#pragma unroll
      for (int lane = 1; lane < warp_size; lane *= 2) squares += __shfl_xor_sync(full_warp, squares, lane);
      const A factor = A(1) / math::sqrt(squares + static_cast<A>(eps));
#pragma unroll
      for (int i = 0; i < N; ++i) x[i] *= factor;
    }
#pragma unroll
    for (int i = 0; i < N; ++i) tile[step * DK + i * warp_size + lane_id()] = x[i];
  }
}
// `steps` rows of 32 columns, zeros behind what there is of them.
template <class T, class A>
BARACUDA_D void load_columns(A* tile, const T* from, i64 stride, int steps, int left, int turn = 0) {
  for (int n = counted_from(turn); n < steps * tile_columns; n += threads) {
    const int step = n / tile_columns, column = n % tile_columns;
    tile[n] = column < left ? to_acc(from[step * stride + column]) : A(0);
  }
}
// A number a step; 1 or 0 where the operand is absent. EXP: its exp.
template <bool EXP, class A>
BARACUDA_D void load_numbers(A* tile, const void* x, const i64 (&stride)[3], i64 batch, i64 row, i64 head, int steps,
                             int turn = 0) {
  if (x == nullptr) return;
  for (int n = counted_from(turn); n < steps; n += threads) {
    const A number = *row_at<A>(x, stride, batch, row + n, head);
    tile[n] = EXP ? math::exp(number) : number;
  }
}

BARACUDA_D int group_lane() { return lane_id() % group_lanes; }
// The first of the two columns that a thread has, within the block's.
BARACUDA_D int first_column() { return static_cast<int>(threadIdx.x) / group_lanes * columns; }
template <class A> BARACUDA_D A sum_of_group(A x) {
#pragma unroll
  for (int lane = 1; lane < group_lanes; lane *= 2) x += __shfl_xor_sync(full_warp, x, lane);
  return x;
}
// A thread's rows of a vector of DK numbers.
template <int DK, class A> BARACUDA_D void read_rows(A (&x)[DK / group_lanes], const A* row) {
#pragma unroll
  for (int i = 0; i < DK / 32; ++i) {
    const Vec<A, 4> four = load<4>(row + 32 * i + 4 * group_lane());
#pragma unroll
    for (int j = 0; j < 4; ++j) x[4 * i + j] = four[j];
  }
}
template <int DK> BARACUDA_D int row_of(int r) { return r / 4 * 32 + 4 * group_lane() + r % 4; }

// A thread's share of a state.
template <class A, int DK> struct State {
  static constexpr int R = DK / group_lanes;
  A x[R][columns];

  BARACUDA_D void clear() {
#pragma unroll
    for (int r = 0; r < R; ++r) x[r][0] = x[r][1] = A(0);
  }
  // Whether a thread's two columns are one access in every row.
  static BARACUDA_D bool paired(const A* x, i64 stride, int left) {
    return stride % columns == 0 && reinterpret_cast<u64>(x) % (columns * sizeof(A)) == 0 &&
           first_column() + columns <= left;
  }
  // Calls f(r, where row r is) for those of a thread's rows that exist. Places are walked, as a product of 64 bits for
  // each row costs as much as the row.
  template <class P, class F> static BARACUDA_D void each(P* at, i64 stride, int d_k, const F& f) {
    at += row_of<DK>(0) * stride;
    const bool whole = d_k == DK;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (whole || row_of<DK>(r) < d_k) f(r, at);
      at += (r % 4 == 3 ? 29 : 1) * stride;
    }
  }
  BARACUDA_D void read(const A* from, i64 stride, int d_k, int left) {
    clear();
    from += first_column();
    if (paired(from, stride, left)) {
      each(from, stride, d_k, [&](int r, const A* at) {
        const Vec<A, columns> pair = load<columns>(at);
        x[r][0] = pair[0], x[r][1] = pair[1];
      });
      return;
    }
    each(from, stride, d_k, [&](int r, const A* at) {
#pragma unroll
      for (int c = 0; c < columns; ++c) {
        if (first_column() + c < left) x[r][c] = at[c];
      }
    });
  }
  BARACUDA_D void write(A* to, i64 stride, int d_k, int left) const {
    to += first_column();
    const bool wide = paired(to, stride, left);
    each(to, stride, d_k, [&](int r, A* at) {
      if (wide) {
        Vec<A, columns> pair;
        pair[0] = x[r][0], pair[1] = x[r][1];
        store(at, pair);
      } else {
#pragma unroll
        for (int c = 0; c < columns; ++c) {
          if (first_column() + c < left) at[c] = x[r][c];
        }
      }
    });
  }
  // to[c] = sum over rows of k[row] state[row][c]
  BARACUDA_D void dot(A (&to)[columns], const A (&k)[R]) const {
#pragma unroll
    for (int c = 0; c < columns; ++c) {
      A sum = A(0);
#pragma unroll
      for (int r = 0; r < R; ++r) sum = math::fma(k[r], x[r][c], sum);
      to[c] = sum_of_group(sum);
    }
  }
  // to[c] = sum over rows of q[row] (state[row][c] + k[row] v[c])
  BARACUDA_D void dot(A (&to)[columns], const A (&q)[R], const A (&k)[R], const A (&v)[columns]) const {
#pragma unroll
    for (int c = 0; c < columns; ++c) {
      A sum = A(0);
#pragma unroll
      for (int r = 0; r < R; ++r) sum = math::fma(q[r], math::fma(k[r], v[c], x[r][c]), sum);
      to[c] = sum_of_group(sum);
    }
  }
  // state[row][c] += k[row] v[c]
  BARACUDA_D void add(const A (&k)[R], const A (&v)[columns]) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
#pragma unroll
      for (int c = 0; c < columns; ++c) x[r][c] = math::fma(k[r], v[c], x[r][c]);
    }
  }
  BARACUDA_D void scale(A factor) {
#pragma unroll
    for (int r = 0; r < R; ++r) x[r][0] *= factor, x[r][1] *= factor;
  }
  BARACUDA_D void scale(const A (&factor)[R]) {
#pragma unroll
    for (int r = 0; r < R; ++r) x[r][0] *= factor[r], x[r][1] *= factor[r];
  }
};

// The operands of some steps in shared memory, each [steps][DK] where it is there, and v [steps][32].
template <class T, class A, int DK, int TILE = tile_elements> struct Steps {
  static constexpr int R = DK / group_lanes, most = TILE / DK;
  A *q, *k, *decays, *a, *b, *v;

  template <class P> BARACUDA_D A* place(const P& p, A* shared) {
    const auto next = [&](bool there) {
      A* const at = there ? shared : nullptr;
      if (there) shared += TILE;
      return at;
    };
    q = next(true), k = next(true), decays = next(p.g_channel != nullptr);
    a = next(p.a != nullptr), b = next(p.b != nullptr);
    v = shared;
    return shared + most * tile_columns;
  }
  // The same from step s on.
  BARACUDA_D Steps from(int s) const {
    const auto later = [&](A* x) { return x == nullptr ? x : x + s * DK; };
    return {later(q), later(k), later(decays), later(a), later(b), v + s * tile_columns};
  }
  template <class P>
  BARACUDA_D void load(const P& p, A* factors, A* betas, i64 batch, i64 row, i64 head, i64 column, int steps) const {
    const auto rows = [&](const void* x, const i64(&stride)[3], i64 heads) {
      return row_at<T>(x, stride, batch, row, head_of(head, p.num_heads, heads));
    };
    const int d_k = p.d_k;
    load_rows<T, DK>(q, rows(p.q, p.stride[0], p.q_heads), p.stride[0][1], steps, d_k, p.normalised, p.eps);
    load_rows<T, DK>(k, rows(p.k, p.stride[1], p.k_heads), p.stride[1][1], steps, d_k, p.normalised, p.eps, 1);
    if (decays != nullptr)
      load_rows<A, DK, true>(decays, row_at<A>(p.g_channel, p.stride[3], batch, row, head), p.stride[3][1], steps, d_k,
                             false, 0.0f, 2);
    if (a != nullptr)
      load_rows<T, DK>(a, row_at<T>(p.a, p.stride[5], batch, row, head), p.stride[5][1], steps, d_k, false, 0.0f, 3);
    if (b != nullptr)
      load_rows<T, DK>(b, row_at<T>(p.b, p.stride[6], batch, row, head), p.stride[6][1], steps, d_k, false, 0.0f);
    load_columns<T>(v, rows(p.v, p.stride[2], p.v_heads) + column, p.stride[2][1], steps,
                    static_cast<int>(min<i64>(tile_columns, p.d_v - column)), 3);
    load_numbers<true>(factors, p.g, p.stride[7], batch, row, head, steps, 2);
    load_numbers<false>(betas, p.beta, p.stride[8], batch, row, head, steps, 1);
  }
};

// One step of a state. error: beta (v - k^T S) of the delta rule, v without it. read: a^T S, of the rank-one rule.
template <class A, int DK> struct Update {
  static constexpr int R = DK / group_lanes;
  A error[columns], read[columns];

  template <class P, class S>
  BARACUDA_D void step(const P& p, State<A, DK>& state, const S& tile, const A* factors, const A* betas, int s) {
    A x[R];
    if (tile.a != nullptr) {
      read_rows<DK>(x, tile.a + s * DK);
      state.dot(read, x);
    }
    if (p.g != nullptr) state.scale(factors[s]);
    if (tile.decays != nullptr) {
      read_rows<DK>(x, tile.decays + s * DK);
      state.scale(x);
    }
    if (tile.b != nullptr) {
      read_rows<DK>(x, tile.b + s * DK);
      state.add(x, read);
    }
    read_rows<DK>(x, tile.k + s * DK);
#pragma unroll
    for (int c = 0; c < columns; ++c) error[c] = tile.v[s * tile_columns + first_column() + c];
    if (p.beta != nullptr) {
      A known[columns];
      state.dot(known, x);
#pragma unroll
      for (int c = 0; c < columns; ++c) error[c] = betas[s] * (error[c] - known[c]);
    }
    state.add(x, error);
  }
};

}  // namespace recurrence
}  // namespace baracuda
