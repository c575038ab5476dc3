// gated_activation_backward   dgate = dy up act'(gate), dup = dy act(gate); schedule map.
//
// An unwanted output is a null pointer: it is not stored, and for elements of 32 and 64 bits not computed.
#include <baracuda/map.cuh>
#include "gated/gates.cuh"

namespace baracuda {

// For 16 bits the slope and the activation share one exponential: with two, the kernel was bound by instructions, not
// by memory (docs/design/map.md).
template <class F, class G, class T, int N>
BARACUDA_D void both_gradients(const Vec<T, N> (&in)[3], Vec<T, N> (&out)[2], const Coefficients<float>& c) {
  const auto dy = cast_vec<float>(in[0]), gate = cast_vec<float>(in[1]), up = cast_vec<float>(in[2]);
  Vec<float, N> dgate, dup;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    dgate[k] = gate_gradient<T, G>(dy[k], up[k], gate[k], c);
    dup[k] = up_gradient<F, G>(dy[k], gate[k], up[k], c);
  }
  out[0] = cast_vec<T>(dgate);
  out[1] = cast_vec<T>(dup);
}

template <class F, class G, class T, class L>
BARACUDA_D void gated_activation_backward(const GatedActivationBackwardParams& p) {
  using A = acc_t<T>;
  const Coefficients<A> k(p.coefficients);
  T* const grads[2] = {static_cast<T*>(p.dgate), static_cast<T*>(p.dup)};
  const T* const given[3] = {static_cast<const T*>(p.dy), static_cast<const T*>(p.gate), static_cast<const T*>(p.up)};
  map<L>(p, grads, given, [&](const auto& in, auto& out) {
    if constexpr (is_half<T>) {
      both_gradients<F, G>(in, out, k);
      return;
    }
    if (p.dgate != nullptr) {
      map_elements<A>([&](A dy, A gate, A up) { return gate_gradient<T, G>(dy, up, gate, k); }, in, out[0]);
    }
    if (p.dup != nullptr) {
      map_elements<A>([&](A dy, A gate, A up) { return up_gradient<F, G>(dy, gate, up, k); }, in, out[1]);
    }
  });
}

}  // namespace baracuda
