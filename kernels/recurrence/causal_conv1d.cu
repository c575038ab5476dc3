// causal_conv1d   y[c, t] = act(bias[c] + Σ_j weight[c, width - 1 - j] x[c, t - j]), the oldest element first.
//
// `convolve`: a thread walks time with its window in registers (causal_conv.cuh). `last`: the last width - 1 elements of
// each sequence and of the state before it.
#include "recurrence/causal_conv.cuh"

namespace baracuda {

template <class T, class L, int TAPS> BARACUDA_D void causal_conv1d(const CausalConv1dParams& p) {
  using namespace conv;
  using A = acc_t<T>;
  constexpr int CH = L::template channels<T, (TAPS > 4 ? 8 : 16)>;
  using Tile = typename L::template Tile<T, CH, steps>;
  const Place at = Place::of<L>(p, CH);
  if (!at.mine) return;
  const T* const x = static_cast<const T*>(p.x) + at.b * p.x_strides[0] + at.c * p.x_strides[1];
  T* const y = static_cast<T*>(p.y) + at.b * p.y_strides[0] + at.c * p.y_strides[1];
  Weights<T, TAPS, CH> weights;
  weights.load(p, at.c, true);
  Past<T, TAPS, CH> past;
  past.load(p, x, at.t);
  for (i64 t = at.t; t < at.end; t += steps) {
    Tile in, out;
    in.load(x + t * p.x_strides[2], 0, p.x_strides[2], at.end - t);
#pragma unroll
    for (int s = 0; s < steps; ++s) {
      A now[CH], sum[CH];
#pragma unroll
      for (int k = 0; k < CH; ++k) now[k] = to_acc(in.at(s, k));
      const bool edge = p.positions != nullptr || t + s < p.width - 1;
      bool none = false;
      if (edge && t + s < at.end) {
        const Window w = window_of(p, at.b, t + s);
        Past<T, TAPS, CH> seen = past;
        seen.replace(p, w, at.c);
        window_sum(p, weights, seen, now, sum);
        none = w.reach < 0;
      } else {
        window_sum(p, weights, past, now, sum);
      }
#pragma unroll
      for (int k = 0; k < CH; ++k) out.at(s, k) = from_acc<T>(none ? A(0) : activated(sum[k], p.silu));
      past.push(now);
    }
    out.store(y + t * p.y_strides[2], 0, p.y_strides[2], at.end - t);
  }
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
