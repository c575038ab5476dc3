// causal_conv1d   y[c, t] = act(bias[c] + Σ_j weight[c, width - 1 - j] x[c, t - j]), the oldest element first.
//
// `convolve`: along time a group of lanes has a channel, eight steps a lane, 64 bytes of which a lane loads before it
// computes; across channels a thread walks time with its window in registers (causal_conv.cuh). Where every item of the
// batch is a sequence, whole tiles are loaded while those before are computed. `last`: the last width - 1 elements of each
// sequence and of the state before it.
#include "recurrence/causal_conv.cuh"

namespace baracuda {

namespace conv {

// y of N steps from t on; false where windows cross a boundary, and y is stored one by one.
template <class T, int TAPS, int CH, int N, class A = acc_t<T>>
BARACUDA_D bool outputs(const CausalConv1dParams& p, const Weights<T, TAPS, CH>& weights,
                        const Run<T, TAPS, CH, N>& run, const Place& at, const T* x, T* to, i64 t, A (&y)[N][CH]) {
  const bool silu = p.silu;
  if (crosses<N>(p, at.b, t, at.end)) {
#pragma unroll 1
    for (int i = 0; i < N * CH; ++i) {
      const i64 step = t + i / CH, k = i % CH;
      if (step >= at.end) break;
      const Window w = window_of(p, at.b, step);
      const A sum = sum_alone(p, x + k * p.x_strides[1], w, at.c + k, step);
      to[k * p.y_strides[1] + step * p.y_strides[2]] = from_acc<T>(w.reach < 0 ? A(0) : activated<T>(sum, silu));
    }
    return false;
  }
#pragma unroll
  for (int s = 0; s < N; ++s) run.sum(p, weights, s, y[s]);
  if (!silu) return true;
#pragma unroll
  for (int s = 0; s < N; ++s) {
#pragma unroll
    for (int k = 0; k < CH; ++k) y[s][k] = activated<T>(y[s][k], true);
  }
  return true;
}

template <class T, int TAPS, bool WIDE>
BARACUDA_D void along_time(const CausalConv1dParams& p, const Place& at, const Weights<T, TAPS, 1>& weights, const T* x,
                           T* y) {
  using A = acc_t<T>;
  constexpr int ahead = 64 / static_cast<int>(steps * sizeof(T));  // tiles
  const Group group(p, at);
  const i64 pitch = group.lanes * steps;
  // The first lane of a tile gets what precedes it from the last lane of the tile before.
  auto carry = tail_before<T, TAPS, WIDE>(p, x, at);
  const auto tile = [&](const Vec<T, steps>& in, i64 t, bool whole) {
    const auto next = group.neighbour(tail_of<TAPS>(in), -1);
    Run<T, TAPS, 1, steps> run;
    join(run, chosen(group.lane == 0, carry, next), in);
    carry = next;
    if (!at.mine || t >= at.end) return;
    A out[steps][1];
    if (!outputs(p, weights, run, at, x, y, t, out)) return;
    Vec<A, steps> row;
#pragma unroll
    for (int s = 0; s < steps; ++s) row[s] = out[s][0];
    put_tile<WIDE>(y, t, p.y_strides[2], from_acc<T>(row), whole ? steps : at.end - t);
  };
  i64 base = at.t;
  if (unbroken(p)) {
    const bool silu = p.silu;
    const T* from = x + (base + group.lane * steps) * p.x_strides[2];
    T* to = y + (base + group.lane * steps) * p.y_strides[2];
    const i64 x_pitch = pitch * p.x_strides[2], y_pitch = pitch * p.y_strides[2];
    Vec<T, steps> in[ahead];
#pragma unroll
    for (int u = 0; u < ahead; ++u) in[u] = Vec<T, steps>{};
    if (at.mine && base + ahead * pitch <= at.end) {
#pragma unroll
      for (int u = 0; u < ahead; ++u, from += x_pitch) in[u] = whole_tile<WIDE>(from, 0, p.x_strides[2]);
    }
#pragma unroll 1
    for (; base + ahead * pitch <= at.end; base += ahead * pitch) {
      const bool more = at.mine && base + 2 * ahead * pitch <= at.end;
#pragma unroll
      for (int u = 0; u < ahead; ++u, from += x_pitch, to += y_pitch) {
        const auto before = group.neighbour(tail_of<TAPS>(in[u]), -1);
        Run<T, TAPS, 1, steps> run;
        join(run, chosen(group.lane == 0, carry, before), in[u]);
        if (more) in[u] = whole_tile<WIDE>(from, 0, p.x_strides[2]);  // of the next of its kind
        carry = before;
        Vec<A, steps> row;
#pragma unroll
        for (int s = 0; s < steps; ++s) {
          A z[1];
          run.sum(p, weights, s, z);
          row[s] = z[0];
        }
        if (silu) {
#pragma unroll
          for (int s = 0; s < steps; ++s) row[s] = activated<T>(row[s], true);
        }
        if (at.mine) put_tile<WIDE>(to, 0, p.y_strides[2], from_acc<T>(row), steps);
      }
    }
  }
  for (; base + ahead * pitch <= at.end; base += ahead * pitch) {
    const i64 t = base + group.lane * steps;
    Vec<T, steps> in[ahead];
#pragma unroll
    for (int u = 0; u < ahead; ++u) in[u] = Vec<T, steps>{};
    if (at.mine) {
#pragma unroll
      for (int u = 0; u < ahead; ++u) in[u] = whole_tile<WIDE>(x, t + u * pitch, p.x_strides[2]);
    }
#pragma unroll
    for (int u = 0; u < ahead; ++u) tile(in[u], t + u * pitch, true);
  }
#pragma unroll 1
  for (; base < at.end; base += pitch) {
    const i64 t = base + group.lane * steps;
    tile(tile_at<WIDE>(x, t, p.x_strides[2], at.mine ? at.end - t : 0), t, false);
  }
}

template <class T, int TAPS, int CH>
BARACUDA_D void across_time(const CausalConv1dParams& p, const Place& at, const Weights<T, TAPS, CH>& weights,
                            const T* x, T* y) {
  using A = acc_t<T>;
  constexpr int N = TAPS > 4 || sizeof(T) > 2 ? 4 : 8;
  Run<T, TAPS, CH, N> run;
  run.load_past(p, x, at);
  i64 t = at.t;
  if (unbroken(p)) {
    const bool silu = p.silu;
    const T* from = x + t * p.x_strides[2];
    T* to = y + t * p.y_strides[2];
    Vec<T, CH> in[N];
    if (t + N <= at.end) {
#pragma unroll
      for (int s = 0; s < N; ++s, from += p.x_strides[2]) in[s] = load<CH>(from);
    }
#pragma unroll 1
    for (; t + N <= at.end; t += N) {
      const bool more = t + 2 * N <= at.end;
#pragma unroll
      for (int s = 0; s < N; ++s, from += p.x_strides[2], to += p.y_strides[2]) {
#pragma unroll
        for (int k = 0; k < CH; ++k) run.at(s, 0, k) = to_acc(in[s][k]);
        if (more) in[s] = load<CH>(from);
        A z[CH];
        run.sum(p, weights, s, z);
        Vec<A, CH> row;
#pragma unroll
        for (int k = 0; k < CH; ++k) row[k] = activated<T>(z[k], silu);
        store(to, from_acc<T>(row));
      }
      run.advance();
    }
  }
  for (; t < at.end; t += N) {
    const int left = static_cast<int>(min<i64>(at.end - t, N));
    const T* from = x + t * p.x_strides[2];
    Vec<T, CH> in[N];
#pragma unroll
    for (int s = 0; s < N; ++s, from += p.x_strides[2]) {
      in[s] = Vec<T, CH>{};
      if (s < left) in[s] = load<CH>(from);
    }
#pragma unroll
    for (int s = 0; s < N; ++s) {
#pragma unroll
      for (int k = 0; k < CH; ++k) run.at(s, 0, k) = to_acc(in[s][k]);
    }
    A out[N][CH];
    if (outputs(p, weights, run, at, x, y, t, out)) {
      T* to = y + t * p.y_strides[2];
#pragma unroll
      for (int s = 0; s < N; ++s, to += p.y_strides[2]) {
        Vec<A, CH> row;
#pragma unroll
        for (int k = 0; k < CH; ++k) row[k] = out[s][k];
        if (s < left) store(to, from_acc<T>(row));
      }
    }
    run.advance();
  }
}

}  // namespace conv

template <class T, class L, int TAPS> BARACUDA_D void causal_conv1d(const CausalConv1dParams& p) {
  using namespace conv;
  constexpr int CH = L::along ? 1 : across_channels<T, TAPS>;
  const Place at = Place::of<L>(p, CH);
  const T* const x = static_cast<const T*>(p.x) + at.b * p.x_strides[0] + at.c * p.x_strides[1];
  T* const y = static_cast<T*>(p.y) + at.b * p.y_strides[0] + at.c * p.y_strides[1];
  Weights<T, TAPS, CH> weights;
  weights.load(p, at.c, at.mine);
  if constexpr (L::along) along_time<T, TAPS, L::wide>(p, at, weights, x, y);
  else if (at.mine) across_time<T, TAPS, CH>(p, at, weights, x, y);
}

// final_states[s, c, k]: element k of the last width - 1.
template <class T> BARACUDA_D void causal_conv_last(const CausalConv1dParams& p) {
  const i64 i = (static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x;
  const i64 kept = p.width - 1, k = i % kept, c = i / kept % p.channels, s = i / kept / p.channels;
  if (s >= p.states) return;
  const conv::Bounds at = conv::bounds_of(p, s);
  const i64 t = at.end - kept + k;
  T value = T(0.0f);
  if (t >= at.start) {
    const i64 b = p.bounds == nullptr ? s : 0;
    value = static_cast<const T*>(p.x)[b * p.x_strides[0] + c * p.x_strides[1] + t * p.x_strides[2]];
  } else if (p.initial_states != nullptr) {
    value = static_cast<const T*>(p.initial_states)[s * p.state_strides[0] + c * p.state_strides[1] +
                                                    (k + at.end - at.start) * p.state_strides[2]];
  }
  static_cast<T*>(p.final_states)[s * p.final_strides[0] + c * p.final_strides[1] + k * p.final_strides[2]] = value;
}

}  // namespace baracuda
