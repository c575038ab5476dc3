#pragma once
// functors   the unary kinds: F<T>::value(x, k) for elements T, computed in A = compute_t<T>; k are the coefficients.
//
// 16-bit floats compute in float; where the accurate function would cost more time than reading and writing an element,
// they use one that is just accurate enough for 16 bits (activations.cuh). Definitions are PyTorch's.
#include <baracuda/map.cuh>
#include <baracuda/math.cuh>
#include "elementwise/activations.cuh"

namespace baracuda {

// What a function takes besides x, in the order of its row (baracuda_py/ops/elementwise/functions/); 0 where it has
// fewer.
template <class A> struct Coefficients {
  A a, b, c;
  BARACUDA_D Coefficients(A first = A(0), A second = A(0), A third = A(0)) : a(first), b(second), c(third) {}
  BARACUDA_D explicit Coefficients(const double (&k)[3])
      : a(static_cast<A>(k[0])), b(static_cast<A>(k[1])), c(static_cast<A>(k[2])) {}
};

template <class A> BARACUDA_D A negate(A x) {
  // the lowest integer is its own negative
  if constexpr (is_same<A, i32>) return static_cast<i32>(0u - static_cast<u32>(x));
  else if constexpr (is_same<A, i64>) return static_cast<i64>(0ull - static_cast<u64>(x));
  else return -x;
}
template <class A, class = enable_if<is_integer<A>>> BARACUDA_D A magnitude(A x) { return x < A(0) ? negate(x) : x; }
template <class A> BARACUDA_D A plus(A a, A b) {  // signed overflow is undefined
  if constexpr (is_same<A, i32>) return static_cast<i32>(static_cast<u32>(a) + static_cast<u32>(b));
  else if constexpr (is_same<A, i64>) return static_cast<i64>(static_cast<u64>(a) + static_cast<u64>(b));
  else return a + b;
}
template <class A> BARACUDA_D A times(A x, A y) {
  if constexpr (is_same<A, i32>) return static_cast<i32>(static_cast<u32>(x) * static_cast<u32>(y));
  else if constexpr (is_same<A, i64>) return static_cast<i64>(static_cast<u64>(x) * static_cast<u64>(y));
  else return x * y;
}

// BARACUDA_UNARY2(Name, wide, narrow): the formula in A = float or double, and in float for 16-bit floats.
#define BARACUDA_UNARY2(Name, wide, narrow)                                          \
  template <class T> struct Name {                                                   \
    using A = compute_t<T>;                                                          \
    static BARACUDA_D A value(A x, [[maybe_unused]] const Coefficients<A>& k = {}) { \
      if constexpr (is_half<T>) return narrow;                                       \
      else return wide;                                                              \
    }                                                                                \
  };
#define BARACUDA_UNARY(Name, formula) BARACUDA_UNARY2(Name, formula, formula)

// Kinds that gate have the form f(x) times `by`: the product keeps its digits also where f(x) alone would be subnormal.
#define BARACUDA_GATE(Name, function)                                                                  \
  template <class T> struct Name {                                                                     \
    using A = compute_t<T>;                                                                            \
    static BARACUDA_D A value(A x, const Coefficients<A>& = {}) { return function<T, true>(x, A(1)); } \
    static BARACUDA_D A by(A x, A factor) { return function<T>(x, factor); }                           \
  };

// ---- exact, or rounded once -----------------------------------------------------------------------------------------

// clang-format off
BARACUDA_UNARY(Neg, negate(x))
BARACUDA_UNARY(Abs, magnitude(x))
BARACUDA_UNARY(Sign, static_cast<A>((x > A(0)) - (x < A(0))))  // NaN gives 0, as in PyTorch
BARACUDA_UNARY(Square, times(x, x))
BARACUDA_UNARY(Cube, x * x * x)
BARACUDA_UNARY(Reciprocal, A(1) / x)
BARACUDA_UNARY(Sqrt, math::sqrt(x))
BARACUDA_UNARY(Floor, math::floor(x))
BARACUDA_UNARY(Ceil, math::ceil(x))
BARACUDA_UNARY(Round, math::rint(x))
BARACUDA_UNARY(Trunc, math::trunc(x))
BARACUDA_UNARY(Frac, x - math::trunc(x))
template <class T> struct Relu {
  using A = compute_t<T>;
  static BARACUDA_D A value(A x, const Coefficients<A>& = {}) { return math::maximum(x, A(0)); }
  static BARACUDA_D A by(A x, A factor) { return value(x) * factor; }
};
BARACUDA_UNARY(Relu6, clamp(x, A(0), A(6)))
BARACUDA_UNARY(Hardtanh, clamp(x, k.a, k.b))
BARACUDA_UNARY(Threshold, (x <= k.a ? k.b : x))
BARACUDA_UNARY(Hardshrink, (x >= -k.a && x <= k.a ? A(0) : x))
BARACUDA_UNARY(Softshrink, (x > k.a ? x - k.a : x < -k.a ? x + k.a : x * A(0)))
BARACUDA_UNARY2(Hardsigmoid, clamp(x + A(3), A(0), A(6)) / A(6), clamp(x + 3.0f, 0.0f, 6.0f) * (1.0f / 6.0f))
BARACUDA_UNARY2(Hardswish, x * (clamp(x + A(3), A(0), A(6)) / A(6)), x * (clamp(x + 3.0f, 0.0f, 6.0f) * (1.0f / 6.0f)))
BARACUDA_UNARY(LeakyRelu, (x > A(0) ? x : x * k.a))
BARACUDA_UNARY(Softsign, x / (A(1) + math::abs(x)))

// ---- exponentials and logarithms ------------------------------------------------------------------------------------

BARACUDA_UNARY(Rsqrt, math::rsqrt(x))
BARACUDA_UNARY(Cbrt, math::cbrt(x))
BARACUDA_UNARY2(Exp, precise_exp(x), math::exp(x))
BARACUDA_UNARY(Exp2, math::exp2(x))
BARACUDA_UNARY2(Expm1, math::expm1(x), half_math::expm1(x))
BARACUDA_UNARY2(Log, math::log(x), half_math::log(x))
BARACUDA_UNARY2(Log2, math::log2(x), half_math::log2(x))
BARACUDA_UNARY2(Log10, math::log10(x), half_math::log10(x))
BARACUDA_UNARY2(Log1p, math::log1p(x), half_math::log1p(x))

// 2 atanh(2x - 1) near 1/2: there the quotient x / (1 - x) is near 1, and its rounding would dominate the logarithm.
template <class A> BARACUDA_D A logit(A x) {
  const A u = math::fma(A(2), x, A(-1));
  return magnitude(u) < A(0.5) ? A(2) * math::atanh(u) : math::log(x / (A(1) - x));
}
template <class T> struct Logit {
  using A = compute_t<T>;
  static BARACUDA_D A plain(A x) {
    if constexpr (is_half<T>) return half_math::logit(x);
    else return logit(x);
  }
  // eps < 0: x is not kept away from 0 and 1. 1 - x is exact above 1/2.
  static BARACUDA_D A value(A x, const Coefficients<A>& k = {A(-1)}) {
    const A eps = k.a;
    if (x < eps) return plain(eps);
    return A(1) - x < eps ? -plain(eps) : plain(x);
  }
};

// ---- trigonometric and hyperbolic -----------------------------------------------------------------------------------

BARACUDA_UNARY2(Sin, math::sin(x), half_math::sin<T>(x))
BARACUDA_UNARY2(Cos, math::cos(x), half_math::cos<T>(x))
BARACUDA_UNARY2(Tan, math::tan(x), half_math::tan<T>(x))
BARACUDA_UNARY(Asin, math::asin(x))
BARACUDA_UNARY(Acos, math::acos(x))
BARACUDA_UNARY(Atan, math::atan(x))
BARACUDA_UNARY(Sinh, math::sinh(x))
BARACUDA_UNARY(Cosh, math::cosh(x))
BARACUDA_UNARY(Asinh, math::asinh(x))
BARACUDA_UNARY(Acosh, math::acosh(x))
BARACUDA_UNARY(Atanh, math::atanh(x))
BARACUDA_UNARY(Tanh, math::tanh(x))
BARACUDA_UNARY(Erf, math::erf(x))
BARACUDA_UNARY2(Erfc, math::erfc(x), half_math::erfc<T>(x))

// ---- activations ----------------------------------------------------------------------------------------------------

BARACUDA_GATE(Sigmoid, sigmoid)
BARACUDA_UNARY2(LogSigmoid, math::log_sigmoid(x), half_math::log_sigmoid(x))
BARACUDA_GATE(Silu, silu)
BARACUDA_GATE(Gelu, gelu)
BARACUDA_GATE(GeluTanh, gelu_tanh)
BARACUDA_UNARY2(Mish, mish(x), half_math::mish(x))
BARACUDA_UNARY2(Selu, (x > A(0) ? A(1.0507009873554805) * x : A(1.7580993408473768) * math::expm1(x)),
                (x > A(0) ? 1.0507009873554805f * x : 1.7580993408473768f * half_math::expm1(x)))
// clang-format on

// log(1 + exp(beta x)) / beta, x where beta x is above the threshold. The exponential multiplies the rounding of the
// product, so that it is two numbers.
template <class T> struct Softplus {
  using A = compute_t<T>;
  static BARACUDA_D A value(A x, const Coefficients<A>& k = {A(1), A(20)}) {
    const A beta = k.a, t = x * beta;
    if (t > k.b) return x;
    if constexpr (is_half<T>) {
      return half_math::softplus(t) / beta;
    } else {
      const A low = math::fma(x, beta, -t), e = math::exp(-magnitude(t));
      const A tail = math::log1p(math::fma(e, t < A(0) ? low : -low, e));
      return ((t > A(0) ? t : A(0)) + (t == t ? tail : t)) / beta;
    }
  }
};

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

#undef BARACUDA_GATE
#undef BARACUDA_UNARY
#undef BARACUDA_UNARY2

}  // namespace baracuda
