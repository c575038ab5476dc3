#pragma once
// causal_conv   what the kernels of causal_conv1d share: which elements a thread has, the window of each, its sum.
//
// Along: neighbours in time lie in memory side by side. A group of up to 32 lanes has a channel and walks its steps, eight
// consecutive ones a lane and tile; a lane has the elements before its own from its neighbour, by shuffle. Across:
// channels lie side by side; a thread has a few of them and walks `span` steps. The sum of a window begins with the bias
// and adds the oldest element first, in every layout.
#include <baracuda/math.cuh>
#include <baracuda/reduce.cuh>
#include <baracuda/vector.cuh>

namespace baracuda::conv {

constexpr int steps = 8;  // of a lane in a tile along time

template <bool WIDE> struct Along {
  static constexpr bool along = true, wide = WIDE;
};
using AlongWide = Along<true>;
using AlongAny = Along<false>;
struct Across {
  static constexpr bool along = false, wide = true;
};

// A kernel has room for TAPS weights; up to four are just as many.
template <int TAPS, class P> BARACUDA_D bool has_tap(const P& p, int j) { return TAPS <= 4 || j < p.width; }

// The channels of a thread across channels; the page has the same numbers.
template <class T, int TAPS> constexpr int across_channels = TAPS > 4 || sizeof(T) == 8 ? 2 : 4;

// The elements of a thread: of channels c …, in time from t to end - 1 of batch item b (along time those of its group).
// part: the block's number among those of its channels. Lanes along time are neighbours in a layout along time, lanes
// across channels in the other.
struct Place {
  i64 b, c, t, end, part;
  int time_lane, channel_lane;
  bool mine;
  template <class L, class P> static BARACUDA_D Place of(const P& p, int channels) {
    Place at;
    const int lanes = L::along ? p.time_lanes : p.channel_lanes, i = static_cast<int>(threadIdx.x);
    const int fast = i & (lanes - 1), slow = i / lanes;
    at.time_lane = L::along ? fast : slow, at.channel_lane = L::along ? slow : fast;
    const u32 tiles = static_cast<u32>(p.time_tiles), of_channels = static_cast<u32>(p.channel_tiles);
    const u32 tile = blockIdx.x % tiles, rest = blockIdx.x / tiles;
    const i64 channel_tile = rest % of_channels;
    at.b = rest / of_channels;
    at.c = (channel_tile * p.channel_lanes + at.channel_lane) * channels;
    at.part = at.b * p.time_tiles + tile;
    at.t = (L::along ? tile : static_cast<i64>(tile) * p.time_lanes + at.time_lane) * p.span;
    at.end = min<i64>(at.t + p.span, p.length);
    at.mine = at.b < p.batch && at.c < p.channels && at.t < p.length;
    return at;
  }
};

// Where sequence s begins and ends.
struct Bounds {
  i64 start, end;
};
template <class P> BARACUDA_D Bounds bounds_of(const P& p, i64 s) {
  if (p.bounds == nullptr) return {0, p.length};
  const i32* const at = static_cast<const i32*>(p.bounds) + s * p.bounds_step;
  const i64 start = min<i64>(max<i64>(at[0], 0), p.length);
  return {start, min<i64>(max<i64>(at[p.bounds_step], start), p.length)};
}

// What precedes element t: `reach` elements of its own sequence, negative where it has none; state: the row of
// initial_states that precedes those, -1 for zeros.
struct Window {
  i64 reach, state;
};
template <class P> BARACUDA_D i64 reach_of(const P& p, i64 b, i64 t) {
  if (p.positions == nullptr) return t;
  return min<i64>(static_cast<const i32*>(p.positions)[b * p.position_strides[0] + t * p.position_strides[1]], t);
}
template <class P> BARACUDA_D i64 sequence_at(const P& p, i64 b, i64 t) {
  if (p.rows == nullptr) return b;
  return static_cast<const i32*>(p.rows)[b * p.row_strides[0] + t * p.row_strides[1]];
}
template <class P> BARACUDA_D Window window_of(const P& p, i64 b, i64 t) {
  Window w{reach_of(p, b, t), -1};
  if (p.initial_states != nullptr && w.reach >= 0 && w.reach < p.width - 1) {
    const i64 s = sequence_at(p, b, t);
    if (s >= 0 && s < p.states && bounds_of(p, s).start == t - w.reach) w.state = s;
  }
  return w;
}
template <class T, class P> BARACUDA_D acc_t<T> state_at(const P& p, i64 s, i64 c, i64 k) {
  return to_acc(static_cast<const T*>(
      p.initial_states)[s * p.state_strides[0] + c * p.state_strides[1] + k * p.state_strides[2]]);
}

// Whether every item of the batch is one sequence: then a window crosses no boundary but the first, whose elements before
// the beginning are known when a walk begins, so that whole tiles need not look.
template <class P> BARACUDA_D bool unbroken(const P& p) { return p.positions == nullptr && p.rows == nullptr; }

// What stands `back` elements before the beginning of item b.
template <class T, class P> BARACUDA_D T before_all(const P& p, i64 b, i64 c, int back) {
  if (p.initial_states == nullptr || back >= p.width || b >= p.states || !unbroken(p)) return T(0.0f);
  return static_cast<const T*>(
      p.initial_states)[b * p.state_strides[0] + c * p.state_strides[1] + (p.width - 1 - back) * p.state_strides[2]];
}

// Whether the window of one of N steps from t on goes beyond its own sequence: then each is looked at alone.
template <int N, class P> BARACUDA_D bool crosses(const P& p, i64 b, i64 t, i64 end) {
  if (p.positions == nullptr) return t < p.width - 1;
  const i32* const at = static_cast<const i32*>(p.positions) + b * p.position_strides[0] + t * p.position_strides[1];
  bool any = t < p.width - 1;
  if (N % 4 == 0 && p.position_strides[1] == 1 && t + N <= end && (reinterpret_cast<u64>(at) & 15) == 0) {
    const Vec<i32, N % 4 ? 4 : N> reach = load<N % 4 ? 4 : N>(at);
#pragma unroll
    for (int s = 0; s < N; ++s) any |= reach[s] < p.width - 1;
    return any;
  }
#pragma unroll 1
  for (int s = 0; s < N && t + s < end; ++s) any |= at[s * p.position_strides[1]] < p.width - 1;
  return any;
}

// Weights by distance in time, and the bias.
template <class T, int TAPS, int CH> struct Weights {
  using A = acc_t<T>;
  A w[TAPS][CH], bias[CH];
  template <class P> BARACUDA_D void load(const P& p, i64 c, bool mine) {
#pragma unroll
    for (int k = 0; k < CH; ++k) {
      const T* const from =
          static_cast<const T*>(p.weight) + (c + k) * p.weight_strides[0] + (p.width - 1) * p.weight_strides[1];
#pragma unroll
      for (int j = 0; j < TAPS; ++j) {
        w[j][k] = mine && has_tap<TAPS>(p, j) ? to_acc(from[-j * p.weight_strides[1]]) : A(0);
      }
      bias[k] = mine && p.bias != nullptr ? to_acc(static_cast<const T*>(p.bias)[(c + k) * p.bias_step]) : A(0);
    }
  }
};

// N steps of CH channels, and the TAPS - 1 elements before them.
template <class T, int TAPS, int CH, int N> struct Run {
  using A = acc_t<T>;
  A v[TAPS - 1 + N][CH];

  BARACUDA_D A& at(int s, int j, int k) { return v[TAPS - 1 + s - j][k]; }  // what stands j before step s
  BARACUDA_D const A& at(int s, int j, int k) const { return v[TAPS - 1 + s - j][k]; }

  // What stands before a thread's first element.
  template <class P> BARACUDA_D void load_past(const P& p, const T* x, const Place& place) {
#pragma unroll
    for (int j = 1; j < TAPS; ++j) {
      const bool there = has_tap<TAPS>(p, j) && place.t >= j;
      const Vec<T, CH> one = load_vec<T, CH, true>(x + (place.t - j) * p.x_strides[2], there ? CH : 0);
      const bool first = has_tap<TAPS>(p, j) && place.t < j;
#pragma unroll
      for (int k = 0; k < CH; ++k) {
        const T found = first ? before_all<T>(p, place.b, place.c + k, j - static_cast<int>(place.t)) : one[k];
        at(0, j, k) = to_acc(found);
      }
    }
  }
  // The last of these steps are what precedes the next.
  BARACUDA_D void advance() {
#pragma unroll
    for (int i = 0; i < TAPS - 1; ++i) {
#pragma unroll
      for (int k = 0; k < CH; ++k) v[i][k] = v[N + i][k];
    }
  }
  template <class P> BARACUDA_D void sum(const P& p, const Weights<T, TAPS, CH>& weights, int s, A (&sum)[CH]) const {
#pragma unroll
    for (int k = 0; k < CH; ++k) sum[k] = weights.bias[k];
#pragma unroll
    for (int j = TAPS - 1; j >= 0; --j) {
      if (!has_tap<TAPS>(p, j)) continue;
#pragma unroll
      for (int k = 0; k < CH; ++k) sum[k] = math::fma(weights.w[j][k], at(s, j, k), sum[k]);
    }
  }
};

// Element t - j of a channel as window w of t has it: in place of elements of other sequences, those of the state or 0.
template <class T, class P> BARACUDA_D acc_t<T> seen(const P& p, const T* x, const Window& w, i64 c, i64 t, int j) {
  if (j <= w.reach) return to_acc(x[(t - j) * p.x_strides[2]]);
  return w.state >= 0 ? state_at<T>(p, w.state, c, p.width - 1 - (j - w.reach)) : acc_t<T>(0);
}
// The sum of one such window, all of which is read again: few cross a boundary.
template <class T, class P> BARACUDA_D acc_t<T> sum_alone(const P& p, const T* x, const Window& w, i64 c, i64 t) {
  using A = acc_t<T>;
  const T* const weight = static_cast<const T*>(p.weight) + c * p.weight_strides[0];
  A sum = p.bias != nullptr ? to_acc(static_cast<const T*>(p.bias)[c * p.bias_step]) : A(0);
#pragma unroll 1
  for (int j = p.width - 1; j >= 0; --j) {
    sum = math::fma(to_acc(weight[(p.width - 1 - j) * p.weight_strides[1]]), seen(p, x, w, c, t, j), sum);
  }
  return sum;
}

// The lanes of a channel along time.
struct Group {
  int lanes, lane, first;  // of the warp's lanes
  template <class P> BARACUDA_D Group(const P& p, const Place& at) {
    lanes = p.time_lanes, lane = at.time_lane, first = static_cast<int>(threadIdx.x) & (warp_size - 1) & ~(lanes - 1);
  }
  // What the lane by `step` further has; the last one's neighbour is the first.
  template <class X> BARACUDA_D X neighbour(const X& x, int step) const {
    return shuffle(x, first | ((lane + step) & (lanes - 1)));
  }
};

// The last TAPS - 1 of a lane's steps, or some more.
template <int TAPS> constexpr int tail_steps = TAPS == 2 ? 1 : TAPS == 3 ? 2 : TAPS == 4 ? 4 : 8;
template <int TAPS, class T> BARACUDA_D Vec<T, tail_steps<TAPS>> tail_of(const Vec<T, steps>& x) {
  Vec<T, tail_steps<TAPS>> y;
#pragma unroll
  for (int i = 0; i < tail_steps<TAPS>; ++i) y[i] = x[steps - tail_steps<TAPS> + i];
  return y;
}
// A lane's steps after the tail of those before them.
template <class T, int TAPS>
BARACUDA_D void join(Run<T, TAPS, 1, steps>& run, const Vec<T, tail_steps<TAPS>>& before, const Vec<T, steps>& x) {
#pragma unroll
  for (int j = 1; j < TAPS; ++j) run.at(0, j, 0) = to_acc(before[tail_steps<TAPS> - j]);
#pragma unroll
  for (int s = 0; s < steps; ++s) run.at(s, 0, 0) = to_acc(x[s]);
}

// Eight steps of a lane, all of which exist.
template <bool WIDE, class T> BARACUDA_D Vec<T, steps> whole_tile(const T* x, i64 t, i64 step) {
  if constexpr (WIDE) return load<steps>(x + t);
  else return load_strided<T, steps>(x + t * step, step, steps);
}
template <bool WIDE, class T> BARACUDA_D Vec<T, steps> tile_at(const T* x, i64 t, i64 step, i64 left) {
  if constexpr (WIDE) return load_vec<T, steps, true>(x + t, left);
  else return load_strided<T, steps>(x + t * step, step, left);
}
template <bool WIDE, class T> BARACUDA_D void put_tile(T* y, i64 t, i64 step, const Vec<T, steps>& values, i64 left) {
  if constexpr (WIDE) store_vec<T, steps, true>(y + t, values, left);
  else store_strided(y + t * step, step, values, left);
}

// The tail of what precedes a thread's first step.
template <class T, int TAPS, bool WIDE, class P>
BARACUDA_D Vec<T, tail_steps<TAPS>> tail_before(const P& p, const T* x, const Place& at) {
  constexpr int N = tail_steps<TAPS>;
  Vec<T, N> tail = {};
  if (!at.mine) return tail;
  if (at.t > 0) {
    if constexpr (WIDE) return load<N>(x + at.t - N);
    else return load_strided<T, N>(x + (at.t - N) * p.x_strides[2], p.x_strides[2], N);
  }
#pragma unroll
  for (int j = 1; j < TAPS; ++j) tail[N - j] = before_all<T>(p, at.b, at.c, j);
  return tail;
}
// first ? a : b of vectors, by words: of structs the compiler chooses an address.
template <class T, int N> BARACUDA_D Vec<T, N> chosen(bool first, const Vec<T, N>& a, const Vec<T, N>& b) {
  using W = Word<N * sizeof(T) % 4 == 0 ? 4 : 2>;
  Vec<T, N> out;
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(out) / sizeof(W)); ++i) {
    const W x = reinterpret_cast<const W*>(&a)[i], y = reinterpret_cast<const W*>(&b)[i];
    reinterpret_cast<W*>(&out)[i] = first ? x : y;
  }
  return out;
}

// 1 / (1 + exp(-z)); for 16 bits to about 2^-17, and 0 where it is below 2^-126.
template <class T, class A = acc_t<T>> BARACUDA_D A sigmoid(A z) {
  if constexpr (is_half<T>) return math::fast_rcp(1.0f + math::fast_exp2(z * -1.44269504f));
  else return A(1) / (A(1) + math::exp(-z));
}
template <class T, class A = acc_t<T>> BARACUDA_D A activated(A z, bool silu) {
  if constexpr (is_half<T>) return silu ? z * sigmoid<T>(z) : z;
  else return silu ? z / (A(1) + math::exp(-z)) : z;
}

}  // namespace baracuda::conv
