#pragma once
// gradients  gradient::F<T>::value(dy, x, alpha) = dy f'(x), for the unary kinds that have a derivative.
//
// A factor that may leave the range of A while its product with dy stays inside is applied as two square roots:
// (dy * h) * h overflows and underflows only where the result does.
#include <baracuda/math.cuh>
#include "elementwise/functors.cuh"

namespace baracuda {

// ---- slopes ---------------------------------------------------------------------------------------------------------

// 1 / cosh(x)
template <class T, class A> BARACUDA_D A sech(A x) {
  if constexpr (is_half<T>) {
    const float h = half_math::exp(-magnitude(x));
    return 2.0f * h * math::fast_rcp(math::fma(h, h, 1.0f));
  } else {
    const A h = math::exp(-magnitude(x));
    return A(2) * h * inverse(math::fma(h, h, A(1)));
  }
}

// The sigmoid of x and of -x, each with relative accuracy.
template <class A> struct Sigmoids {
  A of, complement;
};
template <class T, class A> BARACUDA_D Sigmoids<A> sigmoids(A x) {
  A e, r;
  if constexpr (is_half<T>) e = half_math::exp(-magnitude(x)), r = math::fast_rcp(1.0f + e);
  else e = math::exp(-magnitude(x)), r = inverse(A(1) + e);
  const A q = e * r;
  return x < A(0) ? Sigmoids<A>{q, r} : Sigmoids<A>{r, q};
}

// exp(-x^2 / 2), its square rounded to two words. Beyond |x| = 64 it is 0 in double too.
template <class A> BARACUDA_D A gauss(A x) {
  const A c = clamp(x, A(-64), A(64)), s = c * c, low = math::fma(c, c, -s);
  const A e = math::exp(A(-0.5) * s);
  return math::fma(e, A(-0.5) * low, e);
}

// f'(x) of kinds whose slope stays near 1, so that dy times it is safe.
template <class T, class A> BARACUDA_D A silu_slope(A x) {
  const auto s = sigmoids<T>(x);
  return s.of * math::fma(x, s.complement, A(1));
}
template <class T, class A> BARACUDA_D A gelu_slope(A x) {
  if constexpr (is_same<T, double>) {
    return math::fma(x * A(0.3989422804014327), gauss(x), A(0.5) * math::erfc(x * A(-0.7071067811865476)));
  } else {
    const Normal n = normal(x);  // also for 16 bits: near its zero, -0.75, the shorter fit is off by 2 ulp of bf16
    return math::fma(x * 0.39894228f, n.density, n.cdf(x));
  }
}
template <class T, class A> BARACUDA_D A gelu_tanh_slope(A x) {
  using C = math::GeluConstants<A>;
  const A c = clamp(x, A(-64), A(64)), s = c * c;
  const auto g = sigmoids<T>(c * math::fma(A(C::c2), s, A(C::c1)));
  return math::fma(x, g.of * g.complement * math::fma(A(3) * A(C::c2), s, A(C::c1)), g.of);
}
// With t = n / (n + 2) as in mish, 1 - t^2 = 4 (n + 1) / (n + 2)^2 and n + 1 = (1 + e)^2, which the sigmoid e / (1 + e)
// shortens by 1 + e.
template <class T, class A> BARACUDA_D A mish_slope(A x) {
  const A c = x > A(40) ? A(40) : x, e = is_half<T> ? A(half_math::exp(c)) : math::exp(c), n = e * (e + A(2));
  const A r = is_half<T> ? A(math::fast_rcp(n + A(2))) : inverse(n + A(2));
  return math::fma(x, A(4) * (e * r) * ((A(1) + e) * r), n * r);
}
template <class A> BARACUDA_D A hardswish_slope(A x) {
  return x <= A(-3) ? A(0) : x < A(3) ? math::fma(A(2), x, A(3)) / A(6) : A(1);
}

// ---- gradients ------------------------------------------------------------------------------------------------------

namespace gradient {

#define BARACUDA_GRADIENT(Name, formula)                                          \
  template <class T> struct Name {                                                \
    using A = acc_t<T>;                                                           \
    static BARACUDA_D A value(A dy, [[maybe_unused]] A x, [[maybe_unused]] A alpha) { return formula; } \
  };

BARACUDA_GRADIENT(Neg, -dy)
BARACUDA_GRADIENT(Abs, (x > A(0) ? dy : x < A(0) ? -dy : dy * A(0)))
BARACUDA_GRADIENT(Frac, dy)
BARACUDA_GRADIENT(Relu, (x <= A(0) ? A(0) : dy))
BARACUDA_GRADIENT(Relu6, (x <= A(0) || x >= A(6) ? A(0) : dy))
BARACUDA_GRADIENT(Hardtanh, (x <= A(-1) || x >= A(1) ? A(0) : dy))
BARACUDA_GRADIENT(Hardshrink, (x >= -alpha && x <= alpha ? A(0) : dy))
BARACUDA_GRADIENT(Softshrink, (x >= -alpha && x <= alpha ? A(0) : dy))
BARACUDA_GRADIENT(Hardsigmoid, (x > A(-3) && x < A(3) ? dy / A(6) : A(0)))
BARACUDA_GRADIENT(Hardswish, dy * hardswish_slope(x))
BARACUDA_GRADIENT(LeakyRelu, (x > A(0) ? dy : dy * alpha))
BARACUDA_GRADIENT(Softsign, dy / (A(1) + math::abs(x)) / (A(1) + math::abs(x)))

BARACUDA_GRADIENT(Reciprocal, -(dy / x / x))
BARACUDA_GRADIENT(Square, A(2) * (dy * x))
BARACUDA_GRADIENT(Cube, A(3) * (dy * x * x))
BARACUDA_GRADIENT(Sqrt, A(0.5) * (dy / math::sqrt(x)))
BARACUDA_GRADIENT(Rsqrt, A(-0.5) * (dy * math::rsqrt(x) / x))

// dy / (3 cbrt(x)^2)
template <class T> struct Cbrt {
  using A = acc_t<T>;
  static BARACUDA_D A value(A dy, A x, A) {
    const A r = math::cbrt(x);
    return dy / r / r / A(3);
  }
};

template <class A> BARACUDA_D A twice(A dy, A h) { return dy * h * h; }

BARACUDA_GRADIENT(Exp, twice(dy, math::exp(A(0.5) * x)))
BARACUDA_GRADIENT(Exp2, twice(dy * A(0.6931471805599453), math::exp2(A(0.5) * x)))
BARACUDA_GRADIENT(Expm1, twice(dy, math::exp(A(0.5) * x)))
BARACUDA_GRADIENT(Log, dy / x)
BARACUDA_GRADIENT(Log2, dy * A(1.4426950408889634) / x)
BARACUDA_GRADIENT(Log10, dy * A(0.4342944819032518) / x)
BARACUDA_GRADIENT(Log1p, dy / (A(1) + x))
BARACUDA_GRADIENT(Logit, dy / x / (A(1) - x))

template <class T> BARACUDA_D acc_t<T> sine(acc_t<T> x) {
  if constexpr (is_half<T>) return half_math::sin<T>(x);
  else return math::sin(x);
}
template <class T> BARACUDA_D acc_t<T> cosine(acc_t<T> x) {
  if constexpr (is_half<T>) return half_math::cos<T>(x);
  else return math::cos(x);
}
template <class T> BARACUDA_D acc_t<T> tangent(acc_t<T> x) {
  if constexpr (is_half<T>) return half_math::tan<T>(x);
  else return math::tan(x);
}
BARACUDA_GRADIENT(Sin, dy * cosine<T>(x))
BARACUDA_GRADIENT(Cos, -dy * sine<T>(x))
template <class T> struct Tan {
  using A = acc_t<T>;
  static BARACUDA_D A value(A dy, A x, A) {
    const A t = tangent<T>(x);
    return dy * math::fma(t, t, A(1));
  }
};
BARACUDA_GRADIENT(Asin, dy / math::sqrt((A(1) - x) * (A(1) + x)))
BARACUDA_GRADIENT(Acos, -dy / math::sqrt((A(1) - x) * (A(1) + x)))
BARACUDA_GRADIENT(Atan, (math::abs(x) > A(1e10) ? dy / x / x : dy / math::fma(x, x, A(1))))
BARACUDA_GRADIENT(Sinh, dy * math::cosh(x))
BARACUDA_GRADIENT(Cosh, dy * math::sinh(x))
BARACUDA_GRADIENT(Tanh, twice(dy, sech<T>(x)))
BARACUDA_GRADIENT(Asinh, (math::abs(x) > A(1e10) ? dy / math::abs(x) : dy / math::sqrt(math::fma(x, x, A(1)))))
BARACUDA_GRADIENT(Acosh, dy / math::sqrt(x - A(1)) / math::sqrt(x + A(1)))
BARACUDA_GRADIENT(Atanh, dy / (A(1) - x) / (A(1) + x))
BARACUDA_GRADIENT(Erf, A(1.1283791670955126) * twice(dy, gauss(x)))
BARACUDA_GRADIENT(Erfc, A(-1.1283791670955126) * twice(dy, gauss(x)))

BARACUDA_GRADIENT(Sigmoid, A(0.25) * twice(dy, sech<T>(A(0.5) * x)))
BARACUDA_GRADIENT(LogSigmoid, dy * sigmoids<T>(x).complement)
BARACUDA_GRADIENT(Softplus, dy * sigmoids<T>(x).of)
BARACUDA_GRADIENT(Silu, dy * silu_slope<T>(x))
BARACUDA_GRADIENT(Gelu, dy * gelu_slope<T>(x))
BARACUDA_GRADIENT(GeluTanh, dy * gelu_tanh_slope<T>(x))
BARACUDA_GRADIENT(Mish, dy * mish_slope<T>(x))
BARACUDA_GRADIENT(Elu, (x <= A(0) ? alpha * twice(dy, math::exp(A(0.5) * x)) : dy))
BARACUDA_GRADIENT(Selu, (x <= A(0) ? A(1.7580993408473768) * twice(dy, math::exp(A(0.5) * x)) : A(1.0507009873554805) * dy))

#undef BARACUDA_GRADIENT

}  // namespace gradient
}  // namespace baracuda
