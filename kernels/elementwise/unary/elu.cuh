#pragma once
// elu  x above 0, an exponential less 1 below.
#include "elementwise/gradients.cuh"
#include "elementwise/half_math.cuh"

namespace baracuda {

template <class T> BARACUDA_D acc_t<T> expm1(acc_t<T> x) {
  if constexpr (is_half<T>) return half_math::expm1(x);
  else return math::expm1(x);
}

// scale x above 0, alpha scale (exp(input_scale x) - 1) below.
template <class T> struct Elu {
  using A = compute_t<T>;
  static BARACUDA_D A value(A x, const Coefficients<A>& k = {A(1), A(1), A(1)}) {
    return x > A(0) ? x * k.b : k.a * k.b * expm1<T>(x * k.c);
  }
};

template <class T> struct Celu {
  using A = compute_t<T>;
  static BARACUDA_D A value(A x, const Coefficients<A>& k = {A(1)}) { return x > A(0) ? x : k.a * expm1<T>(x / k.a); }
};

BARACUDA_UNARY2(Selu, (x > A(0) ? A(1.0507009873554805) * x : A(1.7580993408473768) * math::expm1(x)),
                (x > A(0) ? 1.0507009873554805f * x : 1.7580993408473768f * half_math::expm1(x)))

namespace gradient {

// dy factor exp(x), x <= 0 the sum of two numbers, the second much the smaller.
template <class A> BARACUDA_D A exponential_below(A dy, A x, A low, A factor) {
  const A e = math::exp(A(0.5) * x), h = math::fma(e, A(0.5) * low, e);
  return dy * h * (factor * h);
}

template <class T> struct Elu {
  using A = acc_t<T>;
  static BARACUDA_D A value(A dy, A x, const Coefficients<A>& k = {A(1), A(1), A(1)}) {
    const A t = x * k.c;
    return x <= A(0) ? exponential_below(dy, t, product_rest(x, k.c, t), k.a * k.b * k.c) : dy * k.b;
  }
};

template <class T> struct Celu {
  using A = acc_t<T>;
  static BARACUDA_D A value(A dy, A x, const Coefficients<A>& k = {A(1)}) {
    const A t = x / k.a;
    return x <= A(0) ? exponential_below(dy, t, math::isfinite(t) ? math::fma(-t, k.a, x) / k.a : A(0), A(1)) : dy;
  }
};

BARACUDA_GRADIENT(Selu,
                  (x <= A(0) ? exponential_below(dy, x, A(0), A(1.7580993408473768)) : A(1.0507009873554805) * dy))

}  // namespace gradient
}  // namespace baracuda
