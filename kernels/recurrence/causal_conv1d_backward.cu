// causal_conv1d_backward   dx[t] = Σ_j w[j] g[t + j], dw[j] = Σ_t g[t] x[t - j], g = dy act'(z), z made anew.
//
// `slopes`: a thread walks time from its end, with the g of the steps ahead in registers, and adds its steps' parts of
// dweight and dbias, the last step first. Parts of threads of one block are added lane by lane (lanes along time as a
// tree in a warp, and warps in order), and those of blocks by `fold`: eight lanes take every eighth part in order, and
// are added in order. Shapes and the row of the table fix that order. `first`: the slopes of initial_states, one thread
// for each.
#include <baracuda/reduce.cuh>

#include "recurrence/causal_conv.cuh"

namespace baracuda {

namespace conv {

template <class A> BARACUDA_D A slope_of(A z, A dy, bool silu) {
  if (!silu) return dy;
  const A s = A(1) / (A(1) + math::exp(-z));
  return dy * (s * math::fma(z, A(1) - s, A(1)));
}

// The slope that final_states hands to x[t].
template <class T, class P> BARACUDA_D acc_t<T> handed(const P& p, i64 b, i64 c, i64 t) {
  const i64 s = sequence_at(p, b, t);
  if (s < 0 || s >= p.states) return acc_t<T>(0);
  const Bounds at = bounds_of(p, s);
  if (t < at.start || t >= at.end || at.end - t > p.width - 1) return acc_t<T>(0);
  const i64 k = p.width - 1 - (at.end - t);
  return to_acc(static_cast<const T*>(
      p.dfinal_states)[s * p.dfinal_strides[0] + c * p.dfinal_strides[1] + k * p.dfinal_strides[2]]);
}

// g and reach of N steps from t on, of which those before `end` exist; sums: also adds to dweight and dbias.
template <class T, class L, int TAPS, int CH, int N> struct Slopes {
  using A = acc_t<T>;
  A g[N][CH];
  int reach[N];

  template <class Sums>
  BARACUDA_D void find(const CausalConv1dBackwardParams& p, const Place& at, const Weights<T, TAPS, CH>& weights, i64 t,
                       i64 end, const Sums& sums) {
    const T* const x = static_cast<const T*>(p.x) + at.b * p.x_strides[0] + at.c * p.x_strides[1];
    const T* const dy = static_cast<const T*>(p.dy) + at.b * p.dy_strides[0] + at.c * p.dy_strides[1];
    typename L::template Tile<T, CH, N> in, slope;
    in.load(x + t * p.x_strides[2], 0, p.x_strides[2], end - t);
    slope.load(dy + t * p.dy_strides[2], 0, p.dy_strides[2], end - t);
    Past<T, TAPS, CH> past;
    past.load(p, x, t);
#pragma unroll
    for (int s = 0; s < N; ++s) {
      A now[CH], sum[CH];
#pragma unroll
      for (int k = 0; k < CH; ++k) now[k] = to_acc(in.at(s, k));
      Past<T, TAPS, CH> seen = past;
      bool there = t + s < end;
      reach[s] = TAPS;
      if (there && (p.positions != nullptr || t + s < p.width - 1)) {
        const Window w = window_of(p, at.b, t + s);
        seen.replace(p, w, at.c);
        reach[s] = static_cast<int>(min<i64>(w.reach, TAPS));
        there = w.reach >= 0;
      }
      window_sum(p, weights, seen, now, sum);
#pragma unroll
      for (int k = 0; k < CH; ++k) g[s][k] = there ? slope_of(sum[k], to_acc(slope.at(s, k)), p.silu) : A(0);
      if (there) sums(g[s], now, seen);
      past.push(now);
    }
  }
};

}  // namespace conv

template <class T, class L, int TAPS> BARACUDA_D void causal_conv1d_slopes(const CausalConv1dBackwardParams& p) {
  using namespace conv;
  using A = acc_t<T>;
  constexpr int CH = L::template channels<T, 8>, sums = TAPS + 1;
  const Place at = Place::of<L>(p, CH);
  Weights<T, TAPS, CH> weights;
  weights.load(p, at.c, at.mine);
  A total[sums][CH];
#pragma unroll
  for (int j = 0; j < sums; ++j) {
#pragma unroll
    for (int k = 0; k < CH; ++k) total[j][k] = A(0);
  }
  if (at.mine) {
    const auto nothing = [](const A(&)[CH], const A(&)[CH], const Past<T, TAPS, CH>&) {};
    const auto add = [&](const A(&g)[CH], const A(&now)[CH], const Past<T, TAPS, CH>& seen) {
#pragma unroll
      for (int k = 0; k < CH; ++k) {
        total[0][k] = math::fma(g[k], now[k], total[0][k]);
#pragma unroll
        for (int j = 1; j < TAPS; ++j) {
          if (j < p.width) total[j][k] = math::fma(g[k], seen.v[j - 1][k], total[j][k]);
        }
        total[TAPS][k] += g[k];
      }
    };
    // The steps ahead, whose windows hold the last of this thread's elements.
    A ahead[TAPS - 1][CH];
    int ahead_reach[TAPS - 1];
    {
      Slopes<T, L, TAPS, CH, TAPS> next;
      next.find(p, at, weights, at.end, p.length, nothing);
#pragma unroll
      for (int j = 0; j < TAPS - 1; ++j) {
        ahead_reach[j] = next.reach[j];
#pragma unroll
        for (int k = 0; k < CH; ++k) ahead[j][k] = next.g[j][k];
      }
    }
    T* const dx = static_cast<T*>(p.dx);
    for (i64 t = at.t + (at.end - 1 - at.t) / steps * steps; t >= at.t; t -= steps) {
      Slopes<T, L, TAPS, CH, steps> own;
      own.find(p, at, weights, t, at.end, add);
      typename L::template Tile<T, CH, steps> out;
#pragma unroll
      for (int s = steps - 1; s >= 0; --s) {
        if (t + s >= at.end) continue;
        A slope[CH];
#pragma unroll
        for (int k = 0; k < CH; ++k) slope[k] = own.reach[s] >= 0 ? weights.w[0][k] * own.g[s][k] : A(0);
#pragma unroll
        for (int j = 1; j < TAPS; ++j) {
          if (j < p.width && j <= ahead_reach[j - 1]) {
#pragma unroll
            for (int k = 0; k < CH; ++k) slope[k] = math::fma(weights.w[j][k], ahead[j - 1][k], slope[k]);
          }
        }
        if (p.dfinal_states != nullptr) {
#pragma unroll
          for (int k = 0; k < CH; ++k) slope[k] += handed<T>(p, at.b, at.c + k, t + s);
        }
#pragma unroll
        for (int k = 0; k < CH; ++k) out.at(s, k) = from_acc<T>(slope[k]);
#pragma unroll
        for (int j = TAPS - 2; j > 0; --j) {
          ahead_reach[j] = ahead_reach[j - 1];
#pragma unroll
          for (int k = 0; k < CH; ++k) ahead[j][k] = ahead[j - 1][k];
        }
        ahead_reach[0] = own.reach[s];
#pragma unroll
        for (int k = 0; k < CH; ++k) ahead[0][k] = own.g[s][k];
      }
      if (dx != nullptr) {
        T* const to = dx + at.b * p.dx_strides[0] + at.c * p.dx_strides[1] + t * p.dx_strides[2];
        out.store(to, 0, p.dx_strides[2], at.end - t);
      }
    }
  }
  if (p.partials == nullptr) return;
  // The sums of the block's channels: lanes along time within a warp as a tree, then all others in order.
  __shared__ A held[conv_threads * sums * CH];
  int rows = p.time_lanes, row = at.time_lane;
  if constexpr (L::along) {
    const int lanes = min(p.time_lanes, warp_size);
    for (int mask = 1; mask < lanes; mask *= 2) {
#pragma unroll
      for (int j = 0; j < sums; ++j) total[j][0] += shuffle_xor(total[j][0], mask);
    }
    rows = p.time_lanes / lanes, row = at.time_lane / lanes;
  }
#pragma unroll
  for (int j = 0; j < sums; ++j) {
#pragma unroll
    for (int k = 0; k < CH; ++k) {
      if (!L::along || (at.time_lane & (warp_size - 1)) == 0) {
        held[((row * p.channel_lanes + at.channel_lane) * CH + k) * sums + j] = total[j][k];
      }
    }
  }
  __syncthreads();
  const i64 first = at.c - static_cast<i64>(at.channel_lane) * CH;
  const int items = p.channel_lanes * CH * sums;
  for (int i = threadIdx.x; i < items; i += conv_threads) {
    const i64 c = first + i / sums;
    if (c >= p.channels || at.b >= p.batch) continue;
    A s = held[i];
    for (int r = 1; r < rows; ++r) s += held[r * items + i];
    static_cast<A*>(p.partials)[(at.part * p.channels + c) * sums + i % sums] = s;
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
    Past<T, TAPS, 1> past;
    past.load(p, x, t);
    past.replace(p, Window{r, s}, c);
    A now[1] = {to_acc(x[t * p.x_strides[2]])}, sum[1];
    window_sum(p, weights, past, now, sum);
    const A g = slope_of(sum[0], to_acc(dy[t * p.dy_strides[2]]), p.silu);
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
