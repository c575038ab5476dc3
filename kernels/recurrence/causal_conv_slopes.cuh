#pragma once
// causal_conv_slopes   what the gradients of causal_conv1d share, and the walk of those along time: a group of lanes has a
// channel, and goes from its last tile to the first.
#include "recurrence/causal_conv.cuh"

namespace baracuda::conv {

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

}  // namespace baracuda::conv
