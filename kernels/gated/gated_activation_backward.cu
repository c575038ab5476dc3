// gated_activation_backward   dgate = dy up act'(gate), dup = dy act(gate); schedule map.
//
// An unwanted output is a null pointer: it is not stored, and for elements of 32 and 64 bits not computed.
#include <baracuda/map.cuh>
#include "elementwise/gradients.cuh"

namespace baracuda {

// dy up act'(gate); gradient(d) is d act'(gate). Where dy up overflows, the slope may bring it back into range: then
// both are scaled down first.
template <class T, class A, class G> BARACUDA_D A gate_gradient(A dy, A up, const G& gradient) {
  A product = dy * up, back = A(1);
  if (!is_same<T, f16> && math::isinf(product)) {  // products of f16 values do not overflow
    constexpr A down = is_same<A, float> ? A(5.421010862427522e-20) : A(7.458340731200207e-155);  // 2^-64, 2^-512
    product = (dy * down) * (up * down), back = A(1) / down;
  }
  return gradient(product) * back * back;
}

// For 16 bits the slope and the activation share one exponential: with two, the kernel was bound by instructions, not
// by memory (docs/design/map.md).
template <template <class> class F, template <class> class G, class T, int N>
BARACUDA_D void both_gradients(const Vec<T, N> (&in)[3], Vec<T, N> (&out)[2]) {
  const auto dy = cast_vec<float>(in[0]), gate = cast_vec<float>(in[1]), up = cast_vec<float>(in[2]);
  Vec<float, N> dgate, dup;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    dgate[k] = gate_gradient<T>(dy[k], up[k], [&](float d) { return G<T>::value(d, gate[k], 0.0f); });
    dup[k] = F<T>::by(gate[k], dy[k]);
  }
  out[0] = cast_vec<T>(dgate);
  out[1] = cast_vec<T>(dup);
}

template <template <class> class F, template <class> class G, class T, class L>
BARACUDA_D void gated_activation_backward(const GatedActivationBackwardParams& p) {
  using A = acc_t<T>;
  T* const grads[2] = {static_cast<T*>(p.dgate), static_cast<T*>(p.dup)};
  const T* const given[3] = {static_cast<const T*>(p.dy), static_cast<const T*>(p.gate), static_cast<const T*>(p.up)};
  map<L>(p, grads, given, [&](const auto& in, auto& out) {
    if constexpr (is_half<T>) {
      both_gradients<F, G>(in, out);
      return;
    }
    if (p.dgate != nullptr) {
      map_elements<A>(
          [](A dy, A gate, A up) { return gate_gradient<T>(dy, up, [&](A d) { return G<T>::value(d, gate, A(0)); }); },
          in, out[0]);
    }
    if (p.dup != nullptr) {
      map_elements<A>([](A dy, A gate, A) { return F<T>::by(gate, dy); }, in, out[1]);
    }
  });
}

}  // namespace baracuda
