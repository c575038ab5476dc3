#pragma once
// logaddexp  log(exp(a) + exp(b)), of base e and of base 2.
#include "elementwise/binary_gradients.cuh"

namespace baracuda {

// max + log(1 + exp(-|a - b|)); of two equal infinities the same, where their difference would be no number.
template <class T> struct Logaddexp : Operation<T> {
  using A = compute_t<T>;
  static BARACUDA_D A value(A a, A b) {
    const A top = math::maximum(a, b);
    return math::isinf(top) ? top : top + math::log1p(math::exp(-magnitude(a - b)));
  }
};

template <class T> struct Logaddexp2 : Operation<T> {
  using A = compute_t<T>;
  static BARACUDA_D A value(A a, A b) {
    const A top = math::maximum(a, b);
    return math::isinf(top) ? top : math::fma(math::log1p(math::exp2(-magnitude(a - b))), A(1.4426950408889634), top);
  }
};

namespace partial {

// dy / (1 + base^(b - a)), far down as two square roots of the exponential. That multiplies the rounding of a - b, which
// only 16-bit floats can bear: the others take the difference as two numbers.
template <class T> BARACUDA_D compute_t<T> share(compute_t<T> dy, compute_t<T> a, compute_t<T> b, bool base2) {
  using A = compute_t<T>;
  const A d = a - b;
  A root = base2 ? math::exp2(A(-0.5) * magnitude(d)) : math::exp(A(-0.5) * magnitude(d));
  if constexpr (!is_half<T>) {
    const A back = a - d, lost = (a - (d + back)) + (back - b);  // a - b is d + lost
    const A slope = (d < A(0) ? A(0.5) : A(-0.5)) * lost * (base2 ? A(0.6931471805599453) : A(1));
    if (math::isfinite(d)) root = math::fma(root, slope, root);
  }
  const A part = a < b ? root : A(1);
  return dy * part * (part / (A(1) + root * root));
}

BARACUDA_PARTIAL(Logaddexp, (share<T>(dy, a, b, false)), (share<T>(dy, b, a, false)))
BARACUDA_PARTIAL(Logaddexp2, (share<T>(dy, a, b, true)), (share<T>(dy, b, a, true)))

}  // namespace partial
}  // namespace baracuda
