#pragma once
// causal_conv   what the kernels of causal_conv1d share: which elements a thread has, the window of each, its sum.
//
// A thread has CH channels and walks `span` steps of time, eight at a time, with the last TAPS - 1 elements of each
// channel in registers. Along: neighbours in time lie in memory side by side, CH is 1. Across: channels do. The sum of a
// window begins with the bias and adds the oldest element first, in every layout.
#include <baracuda/math.cuh>
#include <baracuda/vector.cuh>

namespace baracuda::conv {

constexpr int steps = 8;  // of time, in a tile

template <bool WIDE> struct Along {
  static constexpr bool along = true;
  template <class T, int BYTES> static constexpr int channels = 1;
  // N elements of time from p on, of which `left` exist.
  template <class T, int CH, int N> struct Tile {
    Vec<T, steps> v;
    BARACUDA_D void load(const T* p, i64, i64 step, i64 left) {
      if constexpr (WIDE) v = load_vec<T, steps, true>(p, left);
      else v = load_strided<T, steps>(p, step, left);
    }
    BARACUDA_D void store(T* p, i64, i64 step, i64 left) const {
      if constexpr (WIDE) store_vec<T, steps, true>(p, v, left);
      else store_strided(p, step, v, left);
    }
    BARACUDA_D T& at(int s, int) { return v[s]; }
  };
};
using AlongWide = Along<true>;
using AlongAny = Along<false>;
struct Across {
  static constexpr bool along = false;
  template <class T, int BYTES>
  static constexpr int channels = BYTES > static_cast<int>(sizeof(T)) ? BYTES / static_cast<int>(sizeof(T)) : 1;
  template <class T, int CH, int N> struct Tile {
    Vec<T, CH> v[N];
    BARACUDA_D void load(const T* p, i64, i64 step, i64 left) {
      if (left >= N) {
#pragma unroll
        for (int s = 0; s < N; ++s) v[s] = baracuda::load<CH>(p + s * step);
        return;
      }
#pragma unroll
      for (int s = 0; s < N; ++s) v[s] = load_vec<T, CH, true>(p + s * step, s < left ? CH : 0);
    }
    BARACUDA_D void store(T* p, i64, i64 step, i64 left) const {
#pragma unroll
      for (int s = 0; s < N; ++s) {
        if (s < left) baracuda::store(p + s * step, v[s]);
      }
    }
    BARACUDA_D T& at(int s, int c) { return v[s][c]; }
  };
};

// The elements of a thread: channels c …, time t … end - 1 of batch item b. part: the block's number among those of its
// channels. Lanes along time are neighbours in a layout along time, lanes across channels in the other.
struct Place {
  i64 b, c, t, end, part;
  int time_lane, channel_lane;
  bool mine;
  template <class L, class P> static BARACUDA_D Place of(const P& p, int channels) {
    Place at;
    const int lanes = L::along ? p.time_lanes : p.channel_lanes, i = static_cast<int>(threadIdx.x);
    const int fast = i & (lanes - 1), slow = i / lanes;
    at.time_lane = L::along ? fast : slow, at.channel_lane = L::along ? slow : fast;
    const i64 block = static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x;
    const i64 tile = block % p.time_tiles, rest = block / p.time_tiles;
    at.c = (rest % p.channel_tiles * p.channel_lanes + at.channel_lane) * channels;
    at.b = rest / p.channel_tiles;
    at.part = at.b * p.time_tiles + tile;
    at.t = (tile * p.time_lanes + at.time_lane) * p.span;
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

// Weights by distance in time, and the bias.
template <class T, int TAPS, int CH> struct Weights {
  using A = acc_t<T>;
  A w[TAPS][CH], bias[CH];
  template <class P> BARACUDA_D void load(const P& p, i64 c, bool mine) {
#pragma unroll
    for (int k = 0; k < CH; ++k) {
#pragma unroll
      for (int j = 0; j < TAPS; ++j) {
        const bool there = mine && j < p.width;
        w[j][k] = there ? to_acc(static_cast<const T*>(
                              p.weight)[(c + k) * p.weight_strides[0] + (p.width - 1 - j) * p.weight_strides[1]])
                        : A(0);
      }
      bias[k] = mine && p.bias != nullptr ? to_acc(static_cast<const T*>(p.bias)[(c + k) * p.bias_step]) : A(0);
    }
  }
};

// The last TAPS - 1 elements before t, the newest first; 0 before the beginning.
template <class T, int TAPS, int CH> struct Past {
  using A = acc_t<T>;
  A v[TAPS - 1][CH];
  template <class P> BARACUDA_D void load(const P& p, const T* x, i64 t) {
#pragma unroll
    for (int j = 0; j < TAPS - 1; ++j) {
      const bool there = j + 1 < p.width && t > j;
      if constexpr (CH > 1) {
        const Vec<T, CH> one = load_vec<T, CH, true>(x + (t - 1 - j) * p.x_strides[2], there ? CH : 0);
#pragma unroll
        for (int k = 0; k < CH; ++k) v[j][k] = to_acc(one[k]);
      } else {
        v[j][0] = there ? to_acc(x[(t - 1 - j) * p.x_strides[2]]) : A(0);
      }
    }
  }
  BARACUDA_D void push(const A (&now)[CH]) {
#pragma unroll
    for (int j = TAPS - 2; j > 0; --j) {
#pragma unroll
      for (int k = 0; k < CH; ++k) v[j][k] = v[j - 1][k];
    }
#pragma unroll
    for (int k = 0; k < CH; ++k) v[0][k] = now[k];
  }
  // In place of elements of other sequences, those of the state or 0.
  template <class P> BARACUDA_D void replace(const P& p, const Window& w, i64 c) {
    if (w.reach >= p.width - 1) return;
#pragma unroll
    for (int j = 1; j < TAPS; ++j) {
      if (j < p.width && j > w.reach) {
#pragma unroll
        for (int k = 0; k < CH; ++k) {
          v[j - 1][k] = w.state >= 0 ? state_at<T>(p, w.state, c + k, p.width - 1 - (j - w.reach)) : A(0);
        }
      }
    }
  }
};

template <int TAPS, int CH, class T, class P, class A = acc_t<T>>
BARACUDA_D void window_sum(const P& p, const Weights<T, TAPS, CH>& w, const Past<T, TAPS, CH>& past, const A (&now)[CH],
                           A (&sum)[CH]) {
#pragma unroll
  for (int k = 0; k < CH; ++k) sum[k] = w.bias[k];
#pragma unroll
  for (int j = TAPS - 1; j > 0; --j) {
    if (j < p.width) {
#pragma unroll
      for (int k = 0; k < CH; ++k) sum[k] = math::fma(w.w[j][k], past.v[j - 1][k], sum[k]);
    }
  }
#pragma unroll
  for (int k = 0; k < CH; ++k) sum[k] = math::fma(w.w[0][k], now[k], sum[k]);
}

template <class A> BARACUDA_D A activated(A z, bool silu) { return silu ? z / (A(1) + math::exp(-z)) : z; }

}  // namespace baracuda::conv
