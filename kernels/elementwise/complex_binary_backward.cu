// complex_binary_backward  dy conj(∂f/∂a) and dy conj(∂f/∂b), functors of a kind (elementwise/complex/), of operands of y's
// shape; schedule map. An operand that was broadcast has its gradient from complex_binary_backward_sum.cu.
#include <baracuda/map.cuh>
#include "elementwise/complex_binary.cuh"

namespace baracuda {

template <template <class> class F, class T, class L>
BARACUDA_D void complex_binary_backward(const ComplexBinaryBackwardParams& p) {
  using G = F<part_t<T>>;
  const ComplexOperands<T> x(p, p.number_place);
  T* const gradients[2] = {static_cast<T*>(p.d_left), static_cast<T*>(p.d_right)};
  const T* const given[3] = {static_cast<const T*>(p.dy), static_cast<const T*>(p.left),
                             static_cast<const T*>(p.right)};
  const bool first = gradients[0] != nullptr, second = gradients[1] != nullptr;
  map<L>(p, gradients, given, [&](const auto& in, auto& out) {
    if (first) {
#pragma unroll
      for (int k = 0; k < out[0].size; ++k) out[0][k] = G::da(in[0][k], x.left(in[1][k]), x.right(in[2][k]));
    }
    if (second) {
#pragma unroll
      for (int k = 0; k < out[1].size; ++k) out[1][k] = G::db(in[0][k], x.left(in[1][k]), x.right(in[2][k]));
    }
  });
}

}  // namespace baracuda
