// causal_conv1d_backward   dx[t] = Σ_j w[j] g[t + j], dw[j] = Σ_t g[t] x[t - j], g = dy act'(z), z made anew.
//
// `slopes`, one pass: along time a group of lanes walks its channel from the last tile to the first, and has the g of the
// steps ahead from the next lane; across channels a thread walks forward. dx adds its terms in the order of j. A thread
// adds its steps' parts of dweight and dbias as it walks; the lanes of a group are added as a tree, or threads of a block
// in order, and parts of blocks by `fold`: eight lanes take every eighth part in order, and are added in order. Shapes
// and the row of the table fix that order. `first`: the slopes of initial_states, one thread for each.
#include <baracuda/async_copy.cuh>

#include "recurrence/causal_conv_slopes.cuh"

namespace baracuda {

namespace conv {

// Rows of x and dy that a thread has under way, in shared memory, to which no other looks.
template <class T, int CH> constexpr int rows_ahead = CH * sizeof(T) > 8 ? 4 : 8;

// A thread walks its steps forward, and TAPS - 1 steps more: each adds to the slopes of the elements of its window, of
// which `pending` has those that are not complete.
template <class T, int TAPS, int CH>
BARACUDA_D void slopes_across(const CausalConv1dBackwardParams& p, const Place& at, const Weights<T, TAPS, CH>& weights,
                              Sums<T, TAPS, CH>& sums, Vec<T, CH>* ring) {
  using A = acc_t<T>;
  constexpr int N = 4, lag = TAPS - 1, ahead_of_use = rows_ahead<T, CH>;
  const T* const x = static_cast<const T*>(p.x) + at.b * p.x_strides[0] + at.c * p.x_strides[1];
  const T* const dy = static_cast<const T*>(p.dy) + at.b * p.dy_strides[0] + at.c * p.dy_strides[1];
  T* const dx = static_cast<T*>(p.dx) + at.b * p.dx_strides[0] + at.c * p.dx_strides[1];
  const i64 seen_to = min<i64>(at.end + lag, p.length);
  Run<T, TAPS, CH, N> run;
  run.load_past(p, x, at);
  A pending[lag + N][CH];  // from element t - lag on
#pragma unroll
  for (int i = 0; i < lag; ++i) {
#pragma unroll
    for (int k = 0; k < CH; ++k) pending[i][k] = A(0);
  }
  i64 t = at.t;
  if (unbroken(p)) {  // rows that are whole, of which final_states hands nothing to those that become complete
    const i64 plain_end = p.dfinal_states == nullptr ? at.end : min<i64>(at.end, p.length - (p.width - 1));
    const bool silu = p.silu, wanted = p.dx != nullptr;
    const T* from = x + t * p.x_strides[2];
    const T* from_slope = dy + t * p.dy_strides[2];
    T* to = dx + (t - lag) * p.dx_strides[2];
    int stage = 0, ahead = t + N <= plain_end ? static_cast<int>(plain_end - t) / N * N : 0;
    const auto fetch = [&](int to) {
      if (ahead-- > 0) {
        cp_async<sizeof(Vec<T, CH>)>(ring + 2 * to * conv_threads, from);
        cp_async<sizeof(Vec<T, CH>)>(ring + (2 * to + 1) * conv_threads, from_slope);
      }
      cp_async_commit();
      from += p.x_strides[2], from_slope += p.dy_strides[2];
    };
#pragma unroll
    for (int s = 0; s < ahead_of_use - 1; ++s) fetch(s);
#pragma unroll 1
    for (; t + N <= plain_end; t += N, stage = (stage + N) % ahead_of_use) {
      const bool more = wanted && t > at.t;
#pragma unroll
      for (int s = 0; s < N; ++s, to += p.dx_strides[2]) {
        cp_async_wait<ahead_of_use - 2>();
        const Vec<T, CH> in = ring[2 * (stage + s) * conv_threads], slope = ring[(2 * (stage + s) + 1) * conv_threads];
        fetch((stage + s + ahead_of_use - 1) % ahead_of_use);  // the row before this one, which is read, makes room
        A g[CH];
#pragma unroll
        for (int k = 0; k < CH; ++k) run.at(s, 0, k) = to_acc(in[k]), g[k] = to_acc(slope[k]);
        if (silu) {
          A z[CH];
          run.sum(p, weights, s, z);
#pragma unroll
          for (int k = 0; k < CH; ++k) g[k] = slope_of<T>(z[k], g[k], true);
        }
#pragma unroll
        for (int k = 0; k < CH; ++k) {
          sums.v[TAPS][k] += g[k];
          pending[lag + s][k] = weights.w[0][k] * g[k];
        }
#pragma unroll
        for (int j = 0; j < TAPS; ++j) {
          if (!has_tap<TAPS>(p, j)) continue;
#pragma unroll
          for (int k = 0; k < CH; ++k) {
            sums.v[j][k] = math::fma(g[k], run.at(s, j, k), sums.v[j][k]);
            A& slot = pending[lag + s - j][k];
            if (j > 0) slot = math::fma(weights.w[j][k], g[k], slot);
          }
        }
        Vec<A, CH> row;
#pragma unroll
        for (int k = 0; k < CH; ++k) row[k] = pending[s][k];
        if (lag > N ? wanted && t + s >= at.t + lag : s < lag ? more : wanted) store(to, from_acc<T>(row));
      }
      run.advance();
#pragma unroll
      for (int i = 0; i < lag; ++i) {
#pragma unroll
        for (int k = 0; k < CH; ++k) pending[i][k] = pending[N + i][k];
      }
    }
  }
#pragma unroll 1
  for (; t < at.end + lag; t += N) {
    const int left = static_cast<int>(min<i64>(seen_to - t, N));
    Vec<T, CH> in[N], slope[N];
    const T* from = x + t * p.x_strides[2];
    const T* from_slope = dy + t * p.dy_strides[2];
#pragma unroll
    for (int s = 0; s < N; ++s, from += p.x_strides[2], from_slope += p.dy_strides[2]) {
      in[s] = slope[s] = Vec<T, CH>{};
      if (s < left) in[s] = load<CH>(from), slope[s] = load<CH>(from_slope);
    }
#pragma unroll
    for (int s = 0; s < N; ++s) {
#pragma unroll
      for (int k = 0; k < CH; ++k) run.at(s, 0, k) = to_acc(in[s][k]);
    }
    if (t + N <= at.end && !crosses<N>(p, at.b, t, seen_to)) {
#pragma unroll
      for (int s = 0; s < N; ++s) {
        A g[CH];
        run.sum(p, weights, s, g);
#pragma unroll
        for (int k = 0; k < CH; ++k) {
          g[k] = slope_of<T>(g[k], to_acc(slope[s][k]), p.silu);
          sums.v[TAPS][k] += g[k];
          pending[lag + s][k] = weights.w[0][k] * g[k];
        }
#pragma unroll
        for (int j = 0; j < TAPS; ++j) {
          if (!has_tap<TAPS>(p, j)) continue;
#pragma unroll
          for (int k = 0; k < CH; ++k) {
            sums.v[j][k] = math::fma(g[k], run.at(s, j, k), sums.v[j][k]);
            A& to = pending[lag + s - j][k];
            if (j > 0) to = math::fma(weights.w[j][k], g[k], to);
          }
        }
      }
    } else {
      A g[N][CH];
      Reaches reaches;
#pragma unroll
      for (int s = 0; s < N; ++s) {
#pragma unroll
        for (int k = 0; k < CH; ++k) g[s][k] = pending[lag + s][k] = A(0);
      }
#pragma unroll 1
      for (int i = 0; i < left * CH; ++i) {
        const int s = i / CH, k = i % CH;
        const Window w = window_of(p, at.b, t + s);
        if (w.reach < 0) continue;
        if (k == 0) reaches.put(s, w.reach);
        const A one = slope_alone(p, x, dy, w, at.c, t + s, k, t + s < at.end, sums);
#pragma unroll
        for (int n = 0; n < N * CH; ++n) g[n / CH][n % CH] = n == i ? one : g[n / CH][n % CH];
      }
#pragma unroll
      for (int s = 0; s < N; ++s) {
#pragma unroll
        for (int j = 0; j < TAPS; ++j) {
          if (!has_tap<TAPS>(p, j) || !reaches.covers(s, j)) continue;
#pragma unroll
          for (int k = 0; k < CH; ++k) {
            A& to = pending[lag + s - j][k];
            to = j == 0 ? weights.w[0][k] * g[s][k] : math::fma(weights.w[j][k], g[s][k], to);
          }
        }
      }
    }
    run.advance();
    if (p.dfinal_states != nullptr) {
#pragma unroll 1
      for (int i = 0; i < N * CH; ++i) {
        const i64 e = t - lag + i / CH;
        if (e < at.t || e >= at.end) continue;
        const A more = handed<T>(p, at.b, at.c + i % CH, e);
#pragma unroll
        for (int n = 0; n < N * CH; ++n) {
          A& to = pending[n / CH][n % CH];
          to = n == i ? to + more : to;
        }
      }
    }
    T* to = dx + (t - lag) * p.dx_strides[2];
    const int first = static_cast<int>(at.t - t) + lag, last = static_cast<int>(at.end - t) + lag;
#pragma unroll
    for (int i = 0; i < N; ++i, to += p.dx_strides[2]) {
      Vec<A, CH> row;
#pragma unroll
      for (int k = 0; k < CH; ++k) row[k] = pending[i][k];
      if (p.dx != nullptr && i >= first && i < last) store(to, from_acc<T>(row));
    }
#pragma unroll
    for (int i = 0; i < lag; ++i) {
#pragma unroll
      for (int k = 0; k < CH; ++k) pending[i][k] = pending[N + i][k];
    }
  }
}

}  // namespace conv

template <class T, class L, int TAPS> BARACUDA_D void causal_conv1d_slopes(const CausalConv1dBackwardParams& p) {
  using namespace conv;
  using A = acc_t<T>;
  constexpr int CH = L::along ? 1 : across_channels<T, TAPS>, count = TAPS + 1;
  const Place at = Place::of<L>(p, CH);
  Weights<T, TAPS, CH> weights;
  weights.load(p, at.c, at.mine);
  Sums<T, TAPS, CH> sums;
  A* const parts = static_cast<A*>(p.partials);
  if constexpr (L::along) {
    slopes_along<T, TAPS, L::wide>(p, at, weights, sums);
    if (parts == nullptr) return;
    for (int mask = 1; mask < p.time_lanes; mask *= 2) {
#pragma unroll
      for (int j = 0; j < count; ++j) sums.v[j][0] += shuffle_xor(sums.v[j][0], mask);
    }
    if (!at.mine || at.time_lane != 0) return;
#pragma unroll
    for (int j = 0; j < count; ++j) parts[(at.part * p.channels + at.c) * count + j] = sums.v[j][0];
  } else {
    constexpr int ring_bytes = 2 * rows_ahead<T, CH> * conv_threads * sizeof(Vec<T, CH>);
    constexpr int sum_bytes = conv_threads * count * CH * sizeof(A);
    __shared__ __align__(16) unsigned char room[ring_bytes > sum_bytes ? ring_bytes : sum_bytes];
    if (at.mine) {
      slopes_across<T, TAPS, CH>(p, at, weights, sums, reinterpret_cast<Vec<T, CH>*>(room) + threadIdx.x);
    }
    if (parts == nullptr) return;
    A* const held = reinterpret_cast<A*>(room);
    __syncthreads();  // all have read the last of their rows
#pragma unroll
    for (int j = 0; j < count; ++j) {
#pragma unroll
      for (int k = 0; k < CH; ++k) {
        held[((at.time_lane * p.channel_lanes + at.channel_lane) * CH + k) * count + j] = sums.v[j][k];
      }
    }
    __syncthreads();
    const i64 first = at.c - static_cast<i64>(at.channel_lane) * CH;
    const int items = p.channel_lanes * CH * count;
    for (int i = threadIdx.x; i < items; i += conv_threads) {
      const i64 c = first + i / count;
      if (c >= p.channels || at.b >= p.batch) continue;
      A s = held[i];
      for (int r = 1; r < p.time_lanes; ++r) s += held[r * items + i];
      parts[(at.part * p.channels + c) * count + i % count] = s;
    }
  }
}

// dweight and dbias of the parts; a block has conv_threads / 8 of them.
template <class T, int TAPS> BARACUDA_D void causal_conv1d_fold(const CausalConv1dBackwardParams& p) {
  using A = acc_t<T>;
  constexpr int sums = TAPS + 1, items = conv_threads / 8;
  __shared__ A held[8][items];
  const int item = static_cast<int>(threadIdx.x) % items, lane = static_cast<int>(threadIdx.x) / items;
  const i64 i = static_cast<i64>(blockIdx.x) * items + item, all = p.channels * sums;
  A s = A(0);
  for (i64 part = lane; i < all && part < p.parts; part += 8) s += static_cast<const A*>(p.partials)[part * all + i];
  held[lane][item] = s;
  __syncthreads();
  if (lane != 0 || i >= all) return;
#pragma unroll
  for (int k = 1; k < 8; ++k) s += held[k][item];
  const i64 c = i / sums, j = i % sums;
  if (j == TAPS) {
    if (p.dbias != nullptr) static_cast<T*>(p.dbias)[c * p.dbias_step] = from_acc<T>(s);
  } else if (j < p.width && p.dweight != nullptr) {
    static_cast<T*>(p.dweight)[c * p.dweight_strides[0] + (p.width - 1 - j) * p.dweight_strides[1]] = from_acc<T>(s);
  }
}

// dinitial_states[s, c, k], of the steps that see it and of final_states.
template <class T, int TAPS> BARACUDA_D void causal_conv1d_first(const CausalConv1dBackwardParams& p) {
  using namespace conv;
  using A = acc_t<T>;
  const i64 i = (static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x;
  const i64 kept = p.width - 1, k = i % kept, c = i / kept % p.channels, s = i / kept / p.channels;
  if (s >= p.states) return;
  const Bounds bounds = bounds_of(p, s);
  const i64 b = p.bounds == nullptr ? s : 0, count = bounds.end - bounds.start;
  const T* const x = static_cast<const T*>(p.x) + b * p.x_strides[0] + c * p.x_strides[1];
  const T* const dy = static_cast<const T*>(p.dy) + b * p.dy_strides[0] + c * p.dy_strides[1];
  Weights<T, TAPS, 1> weights;
  weights.load(p, c, true);
  A slope = A(0);
  for (i64 r = 0; r <= k; ++r) {
    const i64 t = bounds.start + r;
    if (t >= p.length || reach_of(p, b, t) != r || sequence_at(p, b, t) != s) continue;
    const A g = slope_of<T>(sum_alone(p, x, Window{r, s}, c, t), to_acc(dy[t * p.dy_strides[2]]), p.silu);
    const i64 j = r + kept - k;
#pragma unroll
    for (int d = 1; d < TAPS; ++d) {
      if (d == j) slope = math::fma(weights.w[d][0], g, slope);
    }
  }
  if (p.dfinal_states != nullptr && k >= count) {
    slope += to_acc(static_cast<const T*>(
        p.dfinal_states)[s * p.dfinal_strides[0] + c * p.dfinal_strides[1] + (k - count) * p.dfinal_strides[2]]);
  }
  static_cast<T*>(
      p.dinitial_states)[s * p.dinitial_strides[0] + c * p.dinitial_strides[1] + k * p.dinitial_strides[2]] =
      from_acc<T>(slope);
}

}  // namespace baracuda
