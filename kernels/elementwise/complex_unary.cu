// complex_unary   y = f(z), f the functor of a kind (elementwise/complex/), y complex, real or bool; schedule map.
#include <baracuda/complex.cuh>
#include <baracuda/map.cuh>

namespace baracuda {

template <template <class> class F, class T, class L> BARACUDA_D void complex_unary(const ComplexUnaryParams& p) {
  using R = part_t<T>;
  using Out = decltype(F<R>::value(T{}));
  Out* const y[1] = {static_cast<Out*>(p.y)};
  const T* const x[1] = {static_cast<const T*>(p.x)};
  map<L>(p, y, x, [](const auto& in, auto& out) {
#pragma unroll
    for (int k = 0; k < out[0].size; ++k) out[0][k] = F<R>::value(in[0][k]);
  });
}

}  // namespace baracuda
