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
template <class A, class = enable_if<is_integer<A>>> BARACUDA_D A clamp(A x, A low, A high) {
  return x < low ? low : x > high ? high : x;
}
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

// f(x) of a float, an integer itself.
template <class A, class F> BARACUDA_D A floats(A x, const F& f) {
  if constexpr (is_integer<A>) return x;
  else return f(x);
}

// x, its NaN and infinities replaced.
template <class A> BARACUDA_D A finite(A x, const Coefficients<A>& k) {
  return x != x ? k.a : x == numeric<A>::infinity() ? k.b : x == -numeric<A>::infinity() ? k.c : x;
}

// The multiple of 10^-decimals nearest to x, of two equally near the even one; |decimals| <= 22, so that the power is
// exact. A product that rounds to a tie lies on the side that its residue says.
BARACUDA_D double round_decimals(double x, double decimals) {
  double p = 1.0;
  for (int k = static_cast<int>(magnitude(decimals)); k > 0; --k) p *= 10.0;
  const bool finer = decimals > 0.0;
  const double t = finer ? x * p : x / p;
  if (!(magnitude(t) < 9007199254740992.0)) return x;  // 2^53: nothing to round, or NaN
  const double side = finer ? math::fma(x, p, -t) : math::fma(-t, p, x);
  double y = math::rint(t);
  if (magnitude(t - math::trunc(t)) == 0.5 && side != 0.0) y = side > 0.0 ? math::ceil(t) : math::floor(t);
  return finer ? y / p : y * p;
}

// ---- exact, or rounded once -----------------------------------------------------------------------------------------

// clang-format off
BARACUDA_UNARY(Positive, x)
BARACUDA_UNARY(Neg, negate(x))
BARACUDA_UNARY(Abs, magnitude(x))
BARACUDA_UNARY(Sign, static_cast<A>((x > A(0)) - (x < A(0))))  // NaN gives 0, as in PyTorch
BARACUDA_UNARY(Square, times(x, x))
BARACUDA_UNARY(Cube, x * x * x)
BARACUDA_UNARY(Reciprocal, A(1) / x)
BARACUDA_UNARY(Sqrt, math::sqrt(x))
BARACUDA_UNARY(Floor, floats(x, [](auto v) { return math::floor(v); }))
BARACUDA_UNARY(Ceil, floats(x, [](auto v) { return math::ceil(v); }))
BARACUDA_UNARY(Trunc, floats(x, [](auto v) { return math::trunc(v); }))
BARACUDA_UNARY(Round, floats(x, [&](auto v) { return k.a == A(0) ? math::rint(v) : A(round_decimals(v, k.a)); }))
BARACUDA_UNARY(Frac, x - math::trunc(x))
BARACUDA_UNARY(Deg2rad, x * A(0.017453292519943295))
BARACUDA_UNARY(Rad2deg, x * A(57.29577951308232))
BARACUDA_UNARY(NanToNum, floats(x, [&](auto v) { return finite(v, k); }))
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
BARACUDA_UNARY(Exp10, math::exp10(x))
BARACUDA_UNARY2(Expm1, math::expm1(x), half_math::expm1(x))
BARACUDA_UNARY2(Log, math::log(x), half_math::log(x))
BARACUDA_UNARY2(Log2, math::log2(x), half_math::log2(x))
BARACUDA_UNARY2(Log10, math::log10(x), half_math::log10(x))
BARACUDA_UNARY2(Log1p, math::log1p(x), half_math::log1p(x))

BARACUDA_UNARY2(Entr, (x == A(0) ? A(0) : x < A(0) ? -numeric<A>::infinity() : -x * math::log(x)),
                (x == A(0) ? A(0) : x < A(0) ? -numeric<A>::infinity() : -x * half_math::log(x)))

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
      const A low = product_rest(x, beta, t), e = math::exp(-magnitude(t));
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

// x - tanh(x); near 0, where both are nearly equal, by a polynomial.
BARACUDA_D float tanhshrink(float x) {
  const float c[10] = {0.333333326f,    -0.133332663f,  0.0539581928f,    -0.0218097198f,  0.00867812675f,
                       -0.00325015566f, 0.00104759112f, -0.000256002093f, 4.00715197e-05f, -2.92121805e-06f};
  return magnitude(x) < 1.5f ? x * (x * x) * polynomial(x * x, c) : x - math::tanh(x);
}
BARACUDA_D double tanhshrink(double x) {
  const double c[20] = {
      0.33333333333333326,    -0.13333333333330277,    0.053968253966437923,   -0.02186948849309326,
      0.0088632349870708775,  -0.0035921238314744444,  0.0014558125560378134,  -0.00058994703138609181,
      0.00023891046484082675, -9.6463560971616843e-05, 3.8553164899013899e-05, -1.4999273209932054e-05,
      5.5167209317452906e-06, -1.8421677955480219e-06, 5.3275434715498352e-07, -1.2677284589433398e-07,
      2.3421639163882416e-08, -3.1135470996267353e-09, 2.6285185546171461e-10, -1.0527802008950281e-11};
  return magnitude(x) < 1.5 ? x * (x * x) * polynomial(x * x, c) : x - math::tanh(x);
}
BARACUDA_UNARY(Tanhshrink, tanhshrink(x))

// ---- bits of integers -----------------------------------------------------------------------------------------------

// The bits of x alone, without those of the type it is computed in.
template <class T, class A> BARACUDA_D u64 bits_of(A x) {
  return static_cast<u64>(x) & (~0ull >> (64 - 8 * sizeof(T)));
}
BARACUDA_UNARY(BitwiseNot, (is_same<T, bool> ? A(x == A(0)) : A(~x)))
BARACUDA_UNARY(Popcount, static_cast<A>(__popcll(bits_of<T>(x))))
BARACUDA_UNARY(Clz, static_cast<A>(__clzll(bits_of<T>(x)) - (64 - 8 * static_cast<int>(sizeof(T)))))
// The zeros below the lowest bit are the ones of x - 1 that x has not; 0 has as many as bits.
BARACUDA_UNARY(Ctz, static_cast<A>(__popcll(bits_of<T>(~x&(x - A(1))))))

#undef BARACUDA_GATE
#undef BARACUDA_UNARY
#undef BARACUDA_UNARY2

}  // namespace baracuda
