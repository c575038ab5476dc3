#pragma once
// functors   what the functors of unary kinds share. Those that are near relatives have a file together, with their
// gradients (elementwise/unary/), and a unit includes the file of its kind: F<T>::value(x, k) for elements T, computed in
// A = compute_t<T>; k are the coefficients.
//
// 16-bit floats compute in float; where the accurate function would cost more time than reading and writing an element,
// they use one that is just accurate enough for 16 bits. Definitions are PyTorch's.
#include <baracuda/elements.cuh>
#include <baracuda/math.cuh>

namespace baracuda {

// What a function takes besides x, in the order of its row (baracuda_py/ops/elementwise/functions/); 0 where it has
// fewer.
template <class A> struct Coefficients {
  A a, b, c;
  BARACUDA_D Coefficients(A first = A(0), A second = A(0), A third = A(0)) : a(first), b(second), c(third) {}
  BARACUDA_D explicit Coefficients(const double (&k)[3])
      : a(static_cast<A>(k[0])), b(static_cast<A>(k[1])), c(static_cast<A>(k[2])) {}
};

BARACUDA_D float magnitude(float x) { return ::fabsf(x); }
BARACUDA_D double magnitude(double x) { return ::fabs(x); }

// NaN stays NaN.
BARACUDA_D float clamp(float x, float low, float high) { return math::minimum(math::maximum(x, low), high); }
BARACUDA_D double clamp(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

// c[0] + c[1] x + … + c[N - 1] x^(N - 1)
template <class A, int N> BARACUDA_D A polynomial(A x, const A (&c)[N]) {
  A sum = c[N - 1];
#pragma unroll
  for (int k = N - 2; k >= 0; --k) sum = math::fma(sum, x, c[k]);
  return sum;
}

// What the rounded product t = x y lacks; 0 where t has left the range.
template <class A> BARACUDA_D A product_rest(A x, A y, A t) { return math::isfinite(t) ? math::fma(x, y, -t) : A(0); }

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

// f(x) of a float, an integer itself.
template <class A, class F> BARACUDA_D A floats(A x, const F& f) {
  if constexpr (is_integer<A>) return x;
  else return f(x);
}

// The bits of x alone, without those of the type it is computed in.
template <class T, class A> BARACUDA_D u64 bits_of(A x) {
  return static_cast<u64>(x) & (~0ull >> (64 - 8 * sizeof(T)));
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

}  // namespace baracuda
