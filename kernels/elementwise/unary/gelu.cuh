#pragma once
// gelu  x Phi(x), Phi the normal distribution.
#include "elementwise/activations.cuh"
#include "elementwise/gradients.cuh"
#include "elementwise/normal.cuh"

namespace baracuda {

template <class T, bool FLUSH = false> BARACUDA_D acc_t<T> gelu(acc_t<T> x, acc_t<T> by) {
  using A = acc_t<T>;
  const auto [g, ratio] = normal<T, FLUSH>(x);
  const A m = ratio * g, cdf = x < A(0) ? m * g : math::fma(-m, g, A(1));
  if constexpr (is_half<T> && FLUSH) return x * cdf;
  const bool tail = x < A(-1);
  // Far out ratio g alone would be subnormal where the product with x and `by` is not.
  return times_by<T>(tail ? x * ratio * g : x, tail ? g : cdf, by);
}

BARACUDA_GATE(Gelu, gelu)

// dy (Phi + x phi); below 0 both have the factor g g.
template <class T, class A> BARACUDA_D A gelu_gradient(A dy, A x) {
  auto [g, ratio] = normal<T>(x);
  if constexpr (is_half<T>) {  // near the zero of the slope, -0.75, the shorter fits are off by 2 ulp of bf16
    ratio = normal_ratio(math::fast_rcp(math::fma(magnitude(x), 0.25f, 1.0f)));
  }
  const A density = A(0.3989422804014327), outer = x < A(0) ? g : A(1);
  const A sum = math::fma(x, density, x < A(0) ? ratio : -ratio);
  return dy * outer * (x < A(0) ? sum : math::fma(g * g, sum, A(1))) * outer;
}

namespace gradient {

BARACUDA_GRADIENT(Gelu, gelu_gradient<T>(dy, x))

}  // namespace gradient
}  // namespace baracuda
