#pragma once
// functors   the unary kinds: F<T>::value(x, alpha) for elements T, computed in A = compute_t<T>.
//
// Floats of 16 bits compute in float; where the accurate function would cost more than reading and writing an element
// takes, they use one that is just accurate enough for 16 bits (half_math.cuh). Definitions are PyTorch's.
#include <baracuda/map.cuh>
#include <baracuda/math.cuh>
#include "elementwise/half_math.cuh"

namespace baracuda {

template <class A> BARACUDA_D A negate(A x) {
  if constexpr (is_same<A, i32>) return static_cast<i32>(0u - static_cast<u32>(x));  // the lowest integer stays itself
  else if constexpr (is_same<A, i64>) return static_cast<i64>(0ull - static_cast<u64>(x));
  else return -x;
}
template <class A> BARACUDA_D A plus(A a, A b) {  // signed overflow is not defined
  if constexpr (is_same<A, i32>) return static_cast<i32>(static_cast<u32>(a) + static_cast<u32>(b));
  else if constexpr (is_same<A, i64>) return static_cast<i64>(static_cast<u64>(a) + static_cast<u64>(b));
  else return a + b;
}
template <class A> BARACUDA_D A times(A x, A y) {
  if constexpr (is_same<A, i32>) return static_cast<i32>(static_cast<u32>(x) * static_cast<u32>(y));
  else if constexpr (is_same<A, i64>) return static_cast<i64>(static_cast<u64>(x) * static_cast<u64>(y));
  else return x * y;
}
template <class A> BARACUDA_D A clamp(A x, A low, A high) { return x < low ? low : x > high ? high : x; }  // keeps NaN

// SIMPLE(Name, float, half): the formula in A = float or double, and in float for 16-bit floats.
#define BARACUDA_UNARY2(Name, wide, narrow)                                \
  template <class T> struct Name {                                         \
    using A = compute_t<T>;                                                \
    static BARACUDA_D A value(A x, [[maybe_unused]] A alpha) {             \
      if constexpr (is_half<T>) return narrow;                             \
      else return wide;                                                    \
    }                                                                      \
  };
#define BARACUDA_UNARY(Name, formula) BARACUDA_UNARY2(Name, formula, formula)

// ---- exact, or rounded once -----------------------------------------------------------------------------------------

BARACUDA_UNARY(Neg, negate(x))
BARACUDA_UNARY(Abs, (is_integer<A> ? (x < A(0) ? negate(x) : x) : magnitude(x)))
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
BARACUDA_UNARY(Relu, math::maximum(x, A(0)))
BARACUDA_UNARY(Relu6, clamp(x, A(0), A(6)))
BARACUDA_UNARY(Hardtanh, clamp(x, A(-1), A(1)))
BARACUDA_UNARY(Hardshrink, (x >= -alpha && x <= alpha ? A(0) : x))
BARACUDA_UNARY(Softshrink, (x > alpha ? x - alpha : x < -alpha ? x + alpha : x * A(0)))
BARACUDA_UNARY(Hardsigmoid, clamp(x + A(3), A(0), A(6)) / A(6))
BARACUDA_UNARY(Hardswish, x * clamp(x + A(3), A(0), A(6)) / A(6))
BARACUDA_UNARY(LeakyRelu, (x > A(0) ? x : x * alpha))
BARACUDA_UNARY(Softsign, x / (A(1) + math::abs(x)))

// ---- exponentials and logarithms ------------------------------------------------------------------------------------

BARACUDA_UNARY(Rsqrt, math::rsqrt(x))
BARACUDA_UNARY(Cbrt, math::cbrt(x))
BARACUDA_UNARY(Exp, math::exp(x))
BARACUDA_UNARY(Exp2, math::exp2(x))
BARACUDA_UNARY(Expm1, math::expm1(x))
BARACUDA_UNARY(Log, math::log(x))
BARACUDA_UNARY(Log2, math::log2(x))
BARACUDA_UNARY(Log10, math::log10(x))
BARACUDA_UNARY(Log1p, math::log1p(x))

// log(x / (1 - x)). Near 1/2 the quotient is near 1, where its rounding would be all of the logarithm.
template <class T> struct Logit {
  using A = compute_t<T>;
  static BARACUDA_D A value(A x, A) {
    const A y = A(1) - x;
    return x > A(0.25) && x < A(0.75) ? math::log1p((x - y) / y) : math::log(x / y);
  }
};

// ---- trigonometric and hyperbolic -----------------------------------------------------------------------------------

BARACUDA_UNARY(Sin, math::sin(x))
BARACUDA_UNARY(Cos, math::cos(x))
BARACUDA_UNARY(Tan, math::tan(x))
BARACUDA_UNARY(Asin, math::asin(x))
BARACUDA_UNARY(Acos, math::acos(x))
BARACUDA_UNARY(Atan, math::atan(x))
BARACUDA_UNARY(Sinh, math::sinh(x))
BARACUDA_UNARY(Cosh, math::cosh(x))
BARACUDA_UNARY(Asinh, math::asinh(x))
BARACUDA_UNARY(Acosh, math::acosh(x))
BARACUDA_UNARY(Atanh, math::atanh(x))
BARACUDA_UNARY2(Tanh, math::tanh(x), half_math::tanh(x))
BARACUDA_UNARY(Erf, math::erf(x))
BARACUDA_UNARY(Erfc, math::erfc(x))

// ---- activations ----------------------------------------------------------------------------------------------------

BARACUDA_UNARY2(Sigmoid, math::sigmoid(x), math::fast_sigmoid(x))
BARACUDA_UNARY2(Silu, math::silu(x), math::fast_silu(x))
BARACUDA_UNARY2(Gelu, math::gelu(x), half_math::gelu(x))
BARACUDA_UNARY2(GeluTanh, math::gelu_tanh(x), half_math::gelu_tanh(x))
BARACUDA_UNARY(Softplus, math::softplus(x))
BARACUDA_UNARY(LogSigmoid, math::log_sigmoid(x))
BARACUDA_UNARY(Elu, (x > A(0) ? x : alpha * math::expm1(x)))
BARACUDA_UNARY(Selu, (x > A(0) ? A(1.0507009873554805) * x : A(1.7580993408473768) * math::expm1(x)))

// x tanh(log(1 + exp(x))) = x n / (n + 2) with n = e (e + 2), e = exp(x). Beyond x = 40 the quotient is 1 in double too.
// Far down the quotient is e, which may be subnormal where the product is not: there e is applied as two halves.
template <class T> struct Mish {
  using A = compute_t<T>;
  static BARACUDA_D A value(A x, A) {
    if (x < (is_same<A, float> ? A(-80) : A(-700))) {
      const A half = math::exp(x * A(0.5));
      return x * half * half;
    }
    const A e = math::exp(x > A(40) ? A(40) : x), n = e * (e + A(2));
    return x * (n / (n + A(2)));
  }
};

#undef BARACUDA_UNARY
#undef BARACUDA_UNARY2

}  // namespace baracuda
