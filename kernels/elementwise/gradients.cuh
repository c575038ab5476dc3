#pragma once
// gradients  gradient::F<T>::value(dy, x, k) = dy f'(x), for the unary kinds that have a derivative.
//
// f'(x) may leave the range of A while its product with dy does not. So factors are applied one by one, in an order in
// which nothing overflows unless the result does, and nothing becomes subnormal, and so loses digits, unless the result
// is: shrinking factors as two square roots, growing ones as one number near the end of the range, which brings dy well
// into it, and then the rest. Outside the domain of f, where f is NaN, so is the gradient.
#include <baracuda/math.cuh>
#include "elementwise/functors.cuh"

namespace baracuda {

template <class A> BARACUDA_D A twice(A y, A h) { return y * h * h; }

template <class A> BARACUDA_D A where_defined(bool inside, A y) { return inside ? y : numeric<A>::nan(); }

// ---- exponentials that may be beyond the range ----------------------------------------------------------------------

// exp(x), and 0.5 and 0.69 of it, are normal numbers for |x| <= far_exp; exp2(x) for |x| <= far_exp2.
template <class A> constexpr A far_exp = is_same<A, float> ? A(86) : A(706);
template <class A> constexpr A far_exp2 = is_same<A, float> ? A(125) : A(1021);

// y exp(rest), where `rest` is the part of an argument beyond `far`; f is exp or exp2. For f16 the float range
// suffices.
template <class T, class A, class F> BARACUDA_D A times_rest(A y, A rest, A far, const F& f) {
  if (!is_same<T, f16> && rest != A(0)) y = twice(y, f(A(0.5) * clamp(rest, A(-2) * far, A(2) * far)));
  return y;
}
// dy scale 2^(x k) of a 16-bit float, as three cube roots, which overflow only where the product does. A subnormal dy
// has 16 bits more in float than in bf16.
BARACUDA_D float times_power(float dy, float x, float k, float scale) {
  const float h = math::fast_exp2(math::minimum(x * (k / 3.0f), 127.0f));
  return dy * (scale * h) * h * h;
}
template <class T, class A> BARACUDA_D A times_exp(A dy, A x) {
  if constexpr (is_half<T>) return times_power(dy, x, 1.44269504f, 1.0f);
  const A near = clamp(x, -far_exp<A>, far_exp<A>);
  return times_rest<T>(dy * math::exp(near), x - near, far_exp<A>, [](A v) { return math::exp(v); });
}
template <class T, class A> BARACUDA_D A times_exp2(A dy, A x) {
  if constexpr (is_half<T>) return times_power(dy, x, 1.0f, 0.69314718f);
  const A near = clamp(x, -far_exp2<A>, far_exp2<A>);
  const A y = dy * (A(0.6931471805599453) * math::exp2(near));
  return times_rest<T>(y, x - near, far_exp2<A>, [](A v) { return math::exp2(v); });
}
template <class T, class A> BARACUDA_D A times_exp10(A dy, A x) {
  constexpr A far = is_same<A, float> ? A(37) : A(306);
  const A near = clamp(x, -far, far), y = dy * (A(2.302585092994046) * math::exp10(near));
  return times_rest<T>(y, x - near, far, [](A v) { return math::exp10(v); });
}
// dy cosh(x) or dy sinh(x): for large |x| both are exp(|x|) / 2 up to the sign.
template <class T, class A, class F> BARACUDA_D A times_hyperbolic(A dy, A x, const F& f) {
  const A near = clamp(x, -far_exp<A>, far_exp<A>);
  return times_rest<T>(dy * f(near), magnitude(x - near), far_exp<A>, [](A v) { return math::exp(v); });
}

// ---- activations ----------------------------------------------------------------------------------------------------

// dy / (1 + exp(-x)), x the sum of two numbers, the second much the smaller.
template <class T, class A> BARACUDA_D A softplus_gradient(A dy, A x, A low = A(0)) {
  auto [h, r] = logistic<T>(x);
  if constexpr (!is_half<T>) h = math::fma(h, (x < A(0) ? A(0.5) : A(-0.5)) * low, h);
  const A half = x < A(0) ? h : A(1);
  return dy * half * (half * r);
}
// dy (s + x s (1 - s) slope), s the sigmoid; below 0 it is dy h h r (1 + x r slope).
template <class A> BARACUDA_D A logistic_gradient(A dy, A x, bool negative, const Logistic<A>& s, A slope) {
  const A outer = negative ? s.h : A(1), other = negative ? s.r : s.h * s.h * s.r;
  return dy * outer * (s.r * math::fma(x, other * slope, A(1))) * outer;
}
template <class T, class A> BARACUDA_D A silu_gradient(A dy, A x) {
  return logistic_gradient(dy, x, x < A(0), logistic<T>(x), A(1));
}
template <class T, class A> BARACUDA_D A gelu_tanh_gradient(A dy, A x) {
  using C = GeluConstants<A>;
  const A c = clamp(x, A(-64), A(64)), slope = math::fma(A(3) * A(C::c2), c * c, A(C::c1));
  return logistic_gradient(dy, c, x < A(0), cubic_logistic<T>(x), slope) + (x - x);  // NaN at the infinities
}
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
// With t = n / (n + 2) as in mish, 1 - t^2 = 4 (n + 1) / (n + 2)^2 and n + 1 = (1 + e)^2, where the sigmoid e / (1 + e)
// cancels a factor 1 + e; every term has the factor e.
template <class T, class A> BARACUDA_D A mish_gradient(A dy, A x) {
  const A h = scaled_exp<T>(x, A(0.5)), e = h * h, r = inverse<T>(math::fma(e, e + A(2), A(2)));
  const A rest = math::fma(x, A(4) * r * ((A(1) + e) * r), (e + A(2)) * r);
  const A y = x < A(0) ? dy * h * (rest * h) : dy * (rest * e);
  return x > A(40) ? dy : y;  // there the slope is 1, and e will overflow
}
template <class A> BARACUDA_D A hardswish_slope(A x) {
  return x <= A(-3) ? A(0) : x < A(3) ? math::fma(A(2), x, A(3)) / A(6) : A(1);
}

// ---- gradients ------------------------------------------------------------------------------------------------------

namespace gradient {

#define BARACUDA_GRADIENT(Name, formula)                                                                    \
  template <class T> struct Name {                                                                          \
    using A = acc_t<T>;                                                                                     \
    static BARACUDA_D A value(A dy, [[maybe_unused]] A x, [[maybe_unused]] const Coefficients<A>& k = {}) { \
      return formula;                                                                                       \
    }                                                                                                       \
  };

// clang-format off
BARACUDA_GRADIENT(Positive, dy)
BARACUDA_GRADIENT(Deg2rad, dy * A(0.017453292519943295))
BARACUDA_GRADIENT(Rad2deg, dy * A(57.29577951308232))
BARACUDA_GRADIENT(NanToNum, dy * A(math::isfinite(x) ? 1 : 0))
BARACUDA_GRADIENT(Neg, -dy)
BARACUDA_GRADIENT(Abs, (x > A(0) ? dy : x < A(0) ? -dy : dy * A(0)))
BARACUDA_GRADIENT(Frac, dy)
BARACUDA_GRADIENT(Relu, (x <= A(0) ? A(0) : dy))
BARACUDA_GRADIENT(Relu6, (x <= A(0) || x >= A(6) ? A(0) : dy))
BARACUDA_GRADIENT(Hardtanh, (x <= k.a || x >= k.b ? A(0) : dy))
BARACUDA_GRADIENT(Threshold, (x <= k.a ? A(0) : dy))
BARACUDA_GRADIENT(Hardshrink, (x >= -k.a && x <= k.a ? A(0) : dy))
BARACUDA_GRADIENT(Softshrink, (x >= -k.a && x <= k.a ? A(0) : dy))
BARACUDA_GRADIENT(Hardsigmoid, (x > A(-3) && x < A(3) ? dy / A(6) : A(0)))
BARACUDA_GRADIENT(Hardswish, dy * hardswish_slope(x))
BARACUDA_GRADIENT(LeakyRelu, (x > A(0) ? dy : dy * k.a))
BARACUDA_GRADIENT(Tanhshrink, twice(dy, math::tanh(x)))
BARACUDA_GRADIENT(Softsign, dy / (A(1) + math::abs(x)) / (A(1) + math::abs(x)))

BARACUDA_GRADIENT(Square, A(2) * (dy * x))
BARACUDA_GRADIENT(Sqrt, dy / (A(2) * math::sqrt(x)))
// clang-format on

// Whether x^2, 1 / x^2 and sqrt(x) / x are normal numbers. Then they are multiplied first: a subnormal dy would lose
// digits in a product that is subnormal again. Else dy is multiplied first, and either leaves the subnormals at once or
// only shrinks.
template <class A> BARACUDA_D bool has_square(A x) {
  constexpr A end = is_same<A, float> ? A(9.223372036854775808e18) : A(6.703903964971299e153);  // 2^63, 2^511
  return magnitude(x) < end && magnitude(x) > A(1) / end;
}
template <class T> struct Reciprocal {
  using A = acc_t<T>;
  static BARACUDA_D A value(A dy, A x, const Coefficients<A>& = {}) {
    return -(has_square(x) ? dy / (x * x) : dy / x / x);
  }
};
template <class T> struct Rsqrt {
  using A = acc_t<T>;
  static BARACUDA_D A value(A dy, A x, const Coefficients<A>& = {}) {
    const A r = A(-0.5) * math::rsqrt(x);
    return has_square(x) ? dy * (r / x) : dy * r / x;
  }
};
template <class T> struct Cube {
  using A = acc_t<T>;
  static BARACUDA_D A value(A dy, A x, const Coefficients<A>& = {}) {
    return has_square(x) ? dy * (A(3) * (x * x)) : A(3) * (dy * x * x);
  }
};

// dy / (3 cbrt(x)^2)
template <class T> struct Cbrt {
  using A = acc_t<T>;
  static BARACUDA_D A value(A dy, A x, const Coefficients<A>& = {}) {
    const A r = math::cbrt(x);
    return dy / (A(3) * (r * r));
  }
};

BARACUDA_GRADIENT(Exp, times_exp<T>(dy, x))
BARACUDA_GRADIENT(Exp2, times_exp2<T>(dy, x))
BARACUDA_GRADIENT(Exp10, times_exp10<T>(dy, x))
BARACUDA_GRADIENT(Expm1, times_exp<T>(dy, x))
BARACUDA_GRADIENT(Log, where_defined(!(x < A(0)), dy / x))
BARACUDA_GRADIENT(Log2, where_defined(!(x < A(0)), dy / x * A(1.4426950408889634)))
BARACUDA_GRADIENT(Entr, where_defined(!(x < A(0)), -dy*(A(1) + math::log(x))))
BARACUDA_GRADIENT(Log1p, where_defined(!(x < A(-1)), dy / (A(1) + x)))
// eps < 0: x is not kept away from 0 and 1.
template <class T> struct Logit {
  using A = acc_t<T>;
  static BARACUDA_D A value(A dy, A x, const Coefficients<A>& k = {A(-1)}) {
    const A eps = k.a, y = dy / (x * (A(1) - x));
    if (eps < A(0)) return where_defined(!(x < A(0) || x > A(1)), y);
    return x < eps || A(1) - x < eps ? A(0) : y;
  }
};

// dy / (x log 10): a small dy is divided first, so that it keeps its digits, a large one last, so that nothing
// overflows.
template <class T> struct Log10 {
  using A = acc_t<T>;
  static BARACUDA_D A value(A dy, A x, const Coefficients<A>& = {}) {
    const A scale = A(0.4342944819032518), first = magnitude(dy) < A(1e-20) ? A(1) : scale;
    return where_defined(!(x < A(0)), dy * first / x * (first == A(1) ? scale : A(1)));
  }
};

template <class T> BARACUDA_D acc_t<T> sine(acc_t<T> x) {
  if constexpr (is_half<T>) return half_math::sin<T>(x);
  else return math::sin(x);
}
template <class T> BARACUDA_D acc_t<T> cosine(acc_t<T> x) {
  if constexpr (is_half<T>) return half_math::cos<T>(x);
  else return math::cos(x);
}
// clang-format off
BARACUDA_GRADIENT(Sin, dy * cosine<T>(x))
BARACUDA_GRADIENT(Cos, -dy * sine<T>(x))
// clang-format on
template <class T> struct Tan {
  using A = acc_t<T>;
  static BARACUDA_D A value(A dy, A x, const Coefficients<A>& = {}) {
    const A c = cosine<T>(x);
    if constexpr (is_half<T>) return twice(dy, math::fast_rcp(c));
    else return dy / (c * c);
  }
};
BARACUDA_GRADIENT(Asin, dy / math::sqrt((A(1) - x) * (A(1) + x)))
BARACUDA_GRADIENT(Acos, -dy / math::sqrt((A(1) - x) * (A(1) + x)))
BARACUDA_GRADIENT(Atan, (math::abs(x) > A(1e10) ? dy / x / x : dy / math::fma(x, x, A(1))))
BARACUDA_GRADIENT(Sinh, times_hyperbolic<T>(dy, x, [](A v) { return math::cosh(v); }))
BARACUDA_GRADIENT(Cosh, times_hyperbolic<T>(dy, x, [](A v) { return math::sinh(v); }))
BARACUDA_GRADIENT(Asinh, (math::abs(x) > A(1e10) ? dy / math::abs(x) : dy / math::sqrt(math::fma(x, x, A(1)))))
BARACUDA_GRADIENT(Acosh, dy / (math::sqrt(x - A(1)) * math::sqrt(x + A(1))))
BARACUDA_GRADIENT(Atanh, where_defined(!(math::abs(x) > A(1)), dy / ((A(1) - x) * (A(1) + x))))
BARACUDA_GRADIENT(Erf, A(1.1283791670955126) * twice(dy, bell(x, A(0.5))))
BARACUDA_GRADIENT(Erfc, A(-1.1283791670955126) * twice(dy, bell(x, A(0.5))))

// s (1 - s) = (h r)^2, and 1 / cosh(x)^2 = (2 h r)^2 at 2 x.
template <class T> struct Sigmoid {
  using A = acc_t<T>;
  static BARACUDA_D A value(A dy, A x, const Coefficients<A>& = {}) {
    const auto [h, r] = logistic<T>(x);
    return twice(dy, h * r);
  }
};
template <class T> struct Tanh {
  using A = acc_t<T>;
  static BARACUDA_D A value(A dy, A x, const Coefficients<A>& = {}) {
    const auto [h, r] = logistic<T>(A(2) * x);
    return twice(dy, A(2) * h * r);
  }
};
template <class T> struct Softplus {
  using A = acc_t<T>;
  static BARACUDA_D A value(A dy, A x, const Coefficients<A>& k = {A(1), A(20)}) {
    const A t = x * k.a;
    return t > k.b ? dy : softplus_gradient<T>(dy, t, product_rest(x, k.a, t));
  }
};
BARACUDA_GRADIENT(LogSigmoid, softplus_gradient<T>(dy, -x))
BARACUDA_GRADIENT(Silu, silu_gradient<T>(dy, x))
BARACUDA_GRADIENT(Gelu, gelu_gradient<T>(dy, x))
BARACUDA_GRADIENT(GeluTanh, gelu_tanh_gradient<T>(dy, x))
BARACUDA_GRADIENT(Mish, mish_gradient<T>(dy, x))

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

#undef BARACUDA_GRADIENT

}  // namespace gradient
}  // namespace baracuda
