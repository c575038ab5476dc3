#pragma once
// with_scales   sum · alpha · a · b of a matrix product and the scales of its row and column, whatever their exponents.
#include <baracuda/math.cuh>

namespace baracuda {

// In this order in A, factor being alpha · a. Where a product on the way is lost, in double instead, or of the fractions
// and exponents of doubles: a result that A holds does not pass through one that it does not. `over`: the result of
// finite factors is beyond A.
template <class A> BARACUDA_D A with_scales(A sum, A factor, A alpha, A a, A b, bool& over) {
  const A scaled = sum * factor;
  A x = scaled * b;
  over = false;
  if (!(math::lost(scaled) || math::lost(x) || math::lost(factor))) return x;
  if constexpr (is_same<A, float>) {
    const double whole = static_cast<double>(sum) * alpha * (static_cast<double>(a) * b);
    x = static_cast<float>(whole), over = math::isinf(x) && math::isfinite(whole);
  } else {
    int es, ef, ea, eb;
    const A m = math::frexp(sum, &es) * math::frexp(alpha, &ef) * math::frexp(a, &ea) * math::frexp(b, &eb);
    x = math::ldexp(m, es + ef + ea + eb), over = math::isinf(x) && math::isfinite(m);
  }
  return x;
}

// x with the largest number in the place of an infinity that stands for a larger one.
template <class A> BARACUDA_D A within(A x, bool over) { return over ? math::copysign(numeric<A>::max(), x) : x; }

}  // namespace baracuda
