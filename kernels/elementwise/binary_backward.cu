// binary_backward  dy ∂f/∂a and dy ∂f/∂b, functors of a kind (elementwise/binary/), of operands of y's shape; schedule
// map. An operand that was broadcast has its gradient from binary_backward_sum.cu.
#include <baracuda/map.cuh>
#include "elementwise/binary_gradients.cuh"
#include "elementwise/binary_number.cuh"

namespace baracuda {

template <class F, class G, class T, class L> BARACUDA_D void binary_backward(const BinaryBackwardParams& p) {
  using A = compute_t<T>;
  const Operands<F, T, BinaryBackwardParams> x(p);
  T* const gradients[2] = {static_cast<T*>(p.d_left), static_cast<T*>(p.d_right)};
  const T* const given[3] = {static_cast<const T*>(p.dy), static_cast<const T*>(p.left),
                             static_cast<const T*>(p.right)};
  const bool first = gradients[0] != nullptr, second = gradients[1] != nullptr;
  map<L>(p, gradients, given, [&](const auto& in, auto& out) {
    const auto dy = cast_vec<A>(in[0]), a = cast_vec<A>(in[1]), b = cast_vec<A>(in[2]);
    auto da = dy, db = dy;
    if (first) {
#pragma unroll
      for (int k = 0; k < dy.size; ++k) da[k] = G::da(dy[k], x.left(a[k]), x.right(b[k]), x.alpha);
    }
    if (second) {
#pragma unroll
      for (int k = 0; k < dy.size; ++k) db[k] = G::db(dy[k], x.left(a[k]), x.right(b[k]), x.alpha);
    }
    out[0] = cast_vec<T>(da), out[1] = cast_vec<T>(db);
  });
}

}  // namespace baracuda
