// causal_conv1d_backward   dx[t] = Σ_j w[j] g[t + j], dw[j] = Σ_t g[t] x[t - j], g = dy act'(z), z made anew.
//
// `slopes`, one pass: along time a group of lanes walks its channel from the last tile to the first, and has the g of the
// steps ahead from the next lane; across channels a thread walks forward. dx adds its terms in the order of j. A thread
// adds its steps' parts of dweight and dbias as it walks; the lanes of a group are added as a tree, or threads of a block
// in order, and parts of blocks by `fold`: eight lanes take every eighth part in order, and are added in order. Shapes
// and the row of the table fix that order. `first`: the slopes of initial_states, one thread for each.
#include "recurrence/causal_conv.cuh"

namespace baracuda {

namespace conv {

template <class T, class A = acc_t<T>> BARACUDA_D A slope_of(A z, A dy, bool silu) {
  if (!silu) return dy;
  const A s = sigmoid<T>(z);
  return dy * (s * math::fma(z, A(1) - s, A(1)));
}

// The slope that final_states hands to x[t].
template <class T, class P> BARACUDA_D acc_t<T> handed(const P& p, i64 b, i64 c, i64 t) {
  if (p.bounds == nullptr && p.length - t > p.width - 1) return acc_t<T>(0);
  const i64 s = sequence_at(p, b, t);
  if (s < 0 || s >= p.states) return acc_t<T>(0);
  const Bounds at = bounds_of(p, s);
  if (t < at.start || t >= at.end || at.end - t > p.width - 1) return acc_t<T>(0);
  const i64 k = p.width - 1 - (at.end - t);
  return to_acc(static_cast<const T*>(
      p.dfinal_states)[s * p.dfinal_strides[0] + c * p.dfinal_strides[1] + k * p.dfinal_strides[2]]);
}

// A thread's parts of dweight and dbias.
template <class T, int TAPS, int CH> struct Sums {
  using A = acc_t<T>;
  A v[TAPS + 1][CH];
  BARACUDA_D Sums() {
#pragma unroll
    for (int j = 0; j <= TAPS; ++j) {
#pragma unroll
      for (int k = 0; k < CH; ++k) v[j][k] = A(0);
    }
  }
};

// The reach of some steps, 0 to TAPS of each (-1 where the step does not exist): four bits a step, one more.
struct Reaches {
  u64 bits = 0;
  BARACUDA_D void put(int s, i64 reach) { bits |= static_cast<u64>(min<i64>(reach, 14) + 1) << 4 * s; }
  BARACUDA_D bool covers(int s, int j) const { return static_cast<int>(bits >> 4 * s & 15) > j; }
};

// g of one step whose window crosses a boundary, read again, and its parts of the sums.
template <class T, int TAPS, int CH, class A = acc_t<T>>
BARACUDA_D A slope_alone(const CausalConv1dBackwardParams& p, const T* x, const T* dy, const Window& w, i64 c, i64 t,
                         int k, bool own, Sums<T, TAPS, CH>& sums) {
  x += k * p.x_strides[1], c += k;
  const A z = sum_alone(p, x, w, c, t);
  const A g = slope_of<T>(z, to_acc(dy[k * p.dy_strides[1] + t * p.dy_strides[2]]), p.silu);
#pragma unroll
  for (int j = 0; j <= TAPS; ++j) {
    if (!own || (j < TAPS && !has_tap<TAPS>(p, j))) continue;
    const A other = j < TAPS ? seen(p, x, w, c, t, j) : A(0);
#pragma unroll
    for (int i = 0; i < CH; ++i) {
      if (i == k) sums.v[j][i] = j < TAPS ? math::fma(g, other, sums.v[j][i]) : sums.v[j][i] + g;
    }
  }
  return g;
}

// Whole tiles of a group from the last to the first, where every item is a sequence; three are under way.
template <class T, int TAPS, bool WIDE>
BARACUDA_D void whole_slopes_along(const CausalConv1dBackwardParams& p, const Place& at, const Group& group,
                                   const Weights<T, TAPS, 1>& weights, const T* x, const T* dy, T* dx, i64 last_tile,
                                   acc_t<T> (&carry)[TAPS - 1], Sums<T, TAPS, 1>& sums) {
  using A = acc_t<T>;
  constexpr int lag = TAPS - 1, stages = 3;
  const i64 pitch = group.lanes * steps;
  const bool silu = p.silu, wanted = p.dx != nullptr && at.mine, last = group.lane == group.lanes - 1;
  Vec<T, steps> in[stages], slope[stages];
  const auto first = tail_before<T, TAPS, WIDE>(p, x, at);
  Vec<T, tail_steps<TAPS>> before[stages];  // what the first lane of a tile has no neighbour for
  const i64 start = at.t + last_tile * pitch + group.lane * steps;
  const i64 x_pitch = pitch * p.x_strides[2], dy_pitch = pitch * p.dy_strides[2], dx_pitch = pitch * p.dx_strides[2];
  x += start * p.x_strides[2], dy += start * p.dy_strides[2], dx += start * p.dx_strides[2];
  const auto fetch = [&](int stage, bool of_first) {
    if (at.mine) {
      constexpr int N = tail_steps<TAPS>;
      in[stage] = whole_tile<WIDE>(x, 0, p.x_strides[2]);
      slope[stage] = whole_tile<WIDE>(dy, 0, p.dy_strides[2]);
      if (group.lane > 0 || of_first) before[stage] = first;
      else if constexpr (WIDE) before[stage] = load<N>(x - N);
      else before[stage] = load_strided<T, N>(x - N * p.x_strides[2], p.x_strides[2], N);
    }
    x -= x_pitch, dy -= dy_pitch;
  };
#pragma unroll
  for (int n = 0; n < stages; ++n) {
    in[n] = slope[n] = Vec<T, steps>{}, before[n] = first;
    if (last_tile >= n) fetch(n, last_tile == n);
  }
#pragma unroll 1
  for (int tile = static_cast<int>(last_tile); tile >= 0; tile -= stages) {
#pragma unroll
    for (int n = 0; n < stages; ++n) {
      if (tile < n) break;
      const auto next = group.neighbour(tail_of<TAPS>(in[n]), -1);
      Run<T, TAPS, 1, steps> run;
      join(run, chosen(group.lane == 0, before[n], next), in[n]);
      A g[steps + lag];
#pragma unroll
      for (int s = 0; s < steps; ++s) g[s] = to_acc(slope[n][s]);
      if (silu) {
#pragma unroll
        for (int s = 0; s < steps; ++s) {
          A z[1];
          run.sum(p, weights, s, z);
          g[s] = slope_of<T>(z[0], g[s], true);
        }
      }
#pragma unroll
      for (int s = steps - 1; s >= 0; --s) {
#pragma unroll
        for (int j = 0; j < TAPS; ++j) sums.v[j][0] = math::fma(g[s], run.at(s, j, 0), sums.v[j][0]);
        sums.v[TAPS][0] += g[s];
      }
      if (tile >= n + stages) fetch(n, tile == n + stages);
#pragma unroll
      for (int j = 0; j < lag; ++j) {
        const A ahead = group.neighbour(g[j], 1);
        g[steps + j] = last ? carry[j] : ahead;
        carry[j] = ahead;
      }
      Vec<A, steps> out;
#pragma unroll
      for (int s = 0; s < steps; ++s) {
        out[s] = weights.w[0][0] * g[s];
#pragma unroll
        for (int j = 1; j < TAPS; ++j) {
          if (has_tap<TAPS>(p, j)) out[s] = math::fma(weights.w[j][0], g[s + j], out[s]);
        }
      }
      if (wanted) put_tile<WIDE>(dx, 0, p.dx_strides[2], from_acc<T>(out), steps);
      dx -= dx_pitch;
    }
  }
}

// A group walks its steps from the last tile to the first. `carry` is g of the first steps of the tile done before.
template <class T, int TAPS, bool WIDE>
BARACUDA_D void slopes_along(const CausalConv1dBackwardParams& p, const Place& at, const Weights<T, TAPS, 1>& weights,
                             Sums<T, TAPS, 1>& sums) {
  using A = acc_t<T>;
  constexpr int lag = TAPS - 1;
  const T* const x = static_cast<const T*>(p.x) + at.b * p.x_strides[0] + at.c * p.x_strides[1];
  const T* const dy = static_cast<const T*>(p.dy) + at.b * p.dy_strides[0] + at.c * p.dy_strides[1];
  T* const dx = static_cast<T*>(p.dx) + at.b * p.dx_strides[0] + at.c * p.dx_strides[1];
  const Group group(p, at);
  const i64 pitch = group.lanes * steps, count = div_up(at.end - at.t, pitch);
  // What a lane has of a tile: of the one after the last the first lane, of the one before the first the last.
  const auto left_of = [&](i64 tile) -> i64 {
    const i64 t = at.t + tile * pitch + group.lane * steps;
    if (!at.mine) return 0;
    if (tile == count) return group.lane == 0 ? p.length - t : 0;
    if (tile < 0) return at.t > 0 && group.lane == group.lanes - 1 ? steps : 0;
    return at.end - t;
  };
  const auto tile_of = [&](const T* from, i64 step, i64 tile) {
    return tile_at<WIDE>(from, at.t + tile * pitch + group.lane * steps, step, left_of(tile));
  };
  i64 tile = at.end < p.length ? count : count - 1;
  // Tiles below this one are whole, and final_states hands them nothing.
  const i64 plain_end = p.dfinal_states == nullptr ? at.end : min<i64>(at.end, p.length - (p.width - 1));
  const i64 whole = unbroken(p) && plain_end > at.t ? (plain_end - at.t) / pitch : 0;
  Vec<T, steps> in = tile_of(x, p.x_strides[2], tile), slope = tile_of(dy, p.dy_strides[2], tile);
  A carry[lag];
#pragma unroll
  for (int j = 0; j < lag; ++j) carry[j] = A(0);
#pragma unroll 1
  for (; tile >= whole; --tile) {
    const i64 t = at.t + tile * pitch + group.lane * steps, left = left_of(tile);
    const Vec<T, steps> in_before = tile_of(x, p.x_strides[2], tile - 1);
    Vec<T, steps> slope_before = {};
    if (tile > 0) slope_before = tile_of(dy, p.dy_strides[2], tile - 1);
    const auto neighbours = group.neighbour(tail_of<TAPS>(in), -1);
    const auto last_before = group.neighbour(tail_of<TAPS>(in_before), -1);
    Run<T, TAPS, 1, steps> run;
    join(run, chosen(group.lane == 0, last_before, neighbours), in);
    const bool own = tile < count;
    // Whether a window of these steps, or of those ahead that see them, crosses a boundary.
    bool plain = own && left >= steps && !crosses<steps>(p, at.b, t, at.end);
    if (plain && p.positions != nullptr)
      plain = t + 2 * steps <= p.length && !crosses<steps>(p, at.b, t + steps, p.length);
    A g[steps + lag];
    if (plain) {
#pragma unroll
      for (int s = steps - 1; s >= 0; --s) {
        A z[1];
        run.sum(p, weights, s, z);
        g[s] = slope_of<T>(z[0], to_acc(slope[s]), p.silu);
#pragma unroll
        for (int j = 0; j < TAPS; ++j) sums.v[j][0] = math::fma(g[s], run.at(s, j, 0), sums.v[j][0]);
        sums.v[TAPS][0] += g[s];
      }
    } else {
#pragma unroll
      for (int s = 0; s < steps; ++s) g[s] = A(0);
#pragma unroll 1
      for (int s = steps - 1; s >= 0; --s) {
        if (s >= left) continue;
        const Window w = window_of(p, at.b, t + s);
        if (w.reach < 0) continue;
        const A one = slope_alone<T, TAPS, 1>(p, x, dy, w, at.c, t + s, 0, own, sums);
#pragma unroll
        for (int i = 0; i < steps; ++i) g[i] = i == s ? one : g[i];
      }
    }
#pragma unroll
    for (int j = 0; j < lag; ++j) {
      const A next = group.neighbour(g[j], 1);
      g[steps + j] = group.lane == group.lanes - 1 ? carry[j] : next;
      carry[j] = next;
    }
    if (p.dx != nullptr && own && left > 0) {
      Vec<A, steps> out;
      if (plain) {
#pragma unroll
        for (int s = 0; s < steps; ++s) {
          out[s] = weights.w[0][0] * g[s];
#pragma unroll
          for (int j = 1; j < TAPS; ++j) {
            if (has_tap<TAPS>(p, j)) out[s] = math::fma(weights.w[j][0], g[s + j], out[s]);
          }
        }
      } else {
        Reaches reaches;
#pragma unroll 1
        for (int s = 0; s < steps + lag && t + s < p.length; ++s) reaches.put(s, reach_of(p, at.b, t + s));
#pragma unroll
        for (int s = 0; s < steps; ++s) {
          out[s] = reaches.covers(s, 0) ? weights.w[0][0] * g[s] : A(0);
#pragma unroll
          for (int j = 1; j < TAPS; ++j) {
            const bool there = has_tap<TAPS>(p, j) && reaches.covers(s + j, j);
            if (there) out[s] = math::fma(weights.w[j][0], g[s + j], out[s]);
          }
        }
      }
      if (p.dfinal_states != nullptr) {
#pragma unroll 1
        for (int s = 0; s < steps && s < left; ++s) {
          const A more = handed<T>(p, at.b, at.c, t + s);
#pragma unroll
          for (int i = 0; i < steps; ++i) out[i] = i == s ? out[i] + more : out[i];
        }
      }
      put_tile<WIDE>(dx, t, p.dx_strides[2], from_acc<T>(out), left);
    }
    in = in_before, slope = slope_before;
  }
  whole_slopes_along<T, TAPS, WIDE>(p, at, group, weights, x, dy, dx, tile, carry, sums);
}

// A thread walks its steps forward, and TAPS - 1 steps more: each adds to the slopes of the elements of its window, of
// which `pending` has those that are not complete.
template <class T, int TAPS, int CH>
BARACUDA_D void slopes_across(const CausalConv1dBackwardParams& p, const Place& at, const Weights<T, TAPS, CH>& weights,
                              Sums<T, TAPS, CH>& sums) {
  using A = acc_t<T>;
  constexpr int N = 4, lag = TAPS - 1;
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
    Vec<T, CH> in[N], slope[N];
    if (t + N <= plain_end) {
#pragma unroll
      for (int s = 0; s < N; ++s, from += p.x_strides[2], from_slope += p.dy_strides[2])
        in[s] = load<CH>(from), slope[s] = load<CH>(from_slope);
    }
#pragma unroll 1
    for (; t + N <= plain_end; t += N) {
      const bool next = t + 2 * N <= plain_end, more = wanted && t > at.t;
#pragma unroll
      for (int s = 0; s < N; ++s, to += p.dx_strides[2]) {
        A g[CH];
#pragma unroll
        for (int k = 0; k < CH; ++k) run.at(s, 0, k) = to_acc(in[s][k]);
#pragma unroll
        for (int k = 0; k < CH; ++k) g[k] = to_acc(slope[s][k]);
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
        if (next) in[s] = load<CH>(from), slope[s] = load<CH>(from_slope);
        from += p.x_strides[2], from_slope += p.dy_strides[2];
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
    if (at.mine) slopes_across<T, TAPS, CH>(p, at, weights, sums);
    if (parts == nullptr) return;
    __shared__ A held[conv_threads * count * CH];
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
