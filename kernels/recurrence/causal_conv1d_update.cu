// causal_conv1d_update   a few new elements of each sequence, after a state in its slot, which is moved on in place.
//
// A thread has a channel of a sequence; sums begin with the bias and add the oldest element first, as causal_conv1d's.
// Gates multiply what comes in and the sum, both rounded to the element, as gated_short_conv has them between kernels.
#include "recurrence/causal_conv.cuh"

namespace baracuda {

template <class T, int TAPS> BARACUDA_D void causal_conv1d_update(const CausalConv1dUpdateParams& p) {
  using A = acc_t<T>;
  const i64 i = (static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x;
  const i64 c = i % p.channels, b = i / p.channels;
  if (b >= p.batch) return;
  i64 slot = b;
  if (p.conv_state_indices != nullptr) {
    const i64 at = b * p.index_step;
    slot = p.wide_indices ? static_cast<const i64*>(p.conv_state_indices)[at]
                          : static_cast<const i32*>(p.conv_state_indices)[at];
  }
  const bool known = slot >= 0 && slot < p.slots;
  const T* const x = static_cast<const T*>(p.x) + b * p.x_strides[0] + c * p.x_strides[1];
  T* const y = static_cast<T*>(p.y) + b * p.y_strides[0] + c * p.y_strides[1];
  T* const state = static_cast<T*>(p.conv_state) + (known ? slot : 0) * p.state_strides[0] + c * p.state_strides[1];
  T* const kept = static_cast<T*>(p.intermediate_states) + b * p.kept_strides[0] + c * p.kept_strides[2];
  const auto gated = [&](T value, const void* gates, const i64* strides, i64 t) {
    if (gates == nullptr) return value;
    const T gate = static_cast<const T*>(gates)[b * strides[0] + c * strides[1] + t * strides[2]];
    return from_acc<T>(to_acc(gate) * to_acc(value));
  };
  const auto fresh = [&](i64 t) { return gated(x[t * p.x_strides[2]], p.in_gate, p.in_strides, t); };
  // Element k of the state followed by the new ones.
  const auto element = [&](i64 k) { return k < p.state_len ? state[k * p.state_strides[2]] : fresh(k - p.state_len); };
  conv::Weights<T, TAPS, 1> weights;
  weights.load(p, c, true);
  conv::Run<T, TAPS, 1, 1> run;
#pragma unroll
  for (int j = 1; j < TAPS; ++j) {
    const bool there = known && conv::has_tap<TAPS>(p, j);
    run.at(0, j, 0) = there ? to_acc(state[(p.state_len - j) * p.state_strides[2]]) : A(0);
  }
  for (i64 t = 0; t < p.tokens; ++t) {
    run.at(0, 0, 0) = to_acc(fresh(t));
    A sum[1];
    run.sum(p, weights, 0, sum);
    const T z = gated(from_acc<T>(conv::activated<T>(sum[0], p.silu)), p.out_gate, p.out_strides, t);
    y[t * p.y_strides[2]] = known ? z : from_acc<T>(A(0));
    run.advance();
    for (i64 k = 0; p.intermediate_states != nullptr && k < p.state_len; ++k) {
      kept[t * p.kept_strides[1] + k * p.kept_strides[3]] = known ? element(t + 1 + k) : from_acc<T>(A(0));
    }
  }
  // Each place is written after those before it, and read before that.
  for (i64 k = 0; known && k < p.state_len; ++k) state[k * p.state_strides[2]] = element(p.tokens + k);
}

}  // namespace baracuda
