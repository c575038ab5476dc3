// complex_binary   y = f(a, b), f the functor of a kind (elementwise/complex/); schedule map, a and b broadcast by strides of
// 0.
#include <baracuda/map.cuh>
#include "elementwise/complex_binary.cuh"

namespace baracuda {

template <class F, class R, class = void> constexpr bool has_tolerance = true;
template <class F, class R>
constexpr bool has_tolerance<F, R, decltype(static_cast<void>(F::value(complex<R>(R(0)), complex<R>(R(0)))))> = false;

template <class F, class T, class P> BARACUDA_D auto complex_value(const P& p, T a, T b) {
  if constexpr (has_tolerance<F, part_t<T>>) return F::value(a, b, p.rtol, p.atol, p.equal_nan != 0);
  else return F::value(a, b);
}

template <template <class> class F, class T, class L> BARACUDA_D void complex_binary(const ComplexBinaryParams& p) {
  using R = part_t<T>;
  using Out = decltype(complex_value<F<R>>(p, T{}, T{}));
  const T *const left = static_cast<const T*>(p.left), *const right = static_cast<const T*>(p.right);
  const ComplexOperands<T> x(p, left == nullptr ? 1 : right == nullptr ? 2 : 0);
  Out* const y[1] = {static_cast<Out*>(p.y)};
  const T* const given[2] = {left ? left : right, right ? right : left};  // an absent one is read, and not used
  map<L>(p, y, given, [&](const auto& in, auto& out) {
#pragma unroll
    for (int k = 0; k < out[0].size; ++k) {
      out[0][k] = complex_value<F<R>>(p, x.left(in[0][k]), x.right(in[1][k]));
    }
  });
}

}  // namespace baracuda
