// binary     y = f(a, b), f one functor of elementwise/binary_functors.cuh; schedule map, a and b broadcast by strides of 0.
//
// One of the operands may be a number of the parameters: its pointer is null.
#include <baracuda/map.cuh>
#include "elementwise/binary_functors.cuh"

namespace baracuda {

// The number in the place of an operand, as the arithmetic has it.
template <class F, class T, class P> BARACUDA_D compute_t<T> given_number(const P& p) {
  using A = compute_t<T>;
  if constexpr (is_integer<T>) return cast<A>(cast<T>(p.whole()));
  else if constexpr (F::in_element) return cast<A>(cast<T>(p.number()));
  else return static_cast<A>(p.number());
}

// out[k] = f(a[k], b[k]), an absent operand being `number`.
template <class A, class F, class T, class Out, int N>
BARACUDA_D void apply_or(const F& f, const bool (&present)[2], A number, const Vec<T, N> (&in)[2], Vec<Out, N>& out) {
  Vec<A, N> x[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    x[i] = cast_vec<A>(in[i]);
#pragma unroll
    for (int k = 0; k < N; ++k) x[i][k] = present[i] ? x[i][k] : number;
  }
  if constexpr (is_same<Out, bool>) {
#pragma unroll
    for (int k = 0; k < N; ++k) out[k] = f(x[0][k], x[1][k]) != 0;
  } else {
    Vec<A, N> y;
#pragma unroll
    for (int k = 0; k < N; ++k) y[k] = f(x[0][k], x[1][k]);
    out = cast_vec<Out>(y);
  }
}

template <template <class> class F, class T, class L> BARACUDA_D void binary(const BinaryParams& p) {
  using A = compute_t<T>;
  using R = typename F<T>::Result;
  constexpr int coefficients = F<T>::coefficients;
  const A number = given_number<F<T>, T>(p);
  [[maybe_unused]] A alpha = A(1);
  if constexpr (coefficients == 1) alpha = cast<A>(p.alpha());
  R* const y[1] = {static_cast<R*>(p.y)};
  const T* const left = static_cast<const T*>(p.left);
  const T* const right = static_cast<const T*>(p.right);
  const bool present[2] = {left != nullptr, right != nullptr};
  const T* const given[2] = {left ? left : right, right ? right : left};  // an absent one is read, and not used
  const auto f = [&](A a, A b) {
    if constexpr (coefficients == 0) return F<T>::value(a, b);
    else if constexpr (coefficients == 1) return F<T>::value(a, b, alpha);
    else return F<T>::value(a, b, p.rtol, p.atol, p.equal_nan != 0);
  };
  map<L>(p, y, given, [&](const auto& in, auto& out) { apply_or(f, present, number, in, out[0]); });
}

}  // namespace baracuda
