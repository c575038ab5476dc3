#pragma once
// binary_gradients  the gradients of the binary kinds: G<T>::da(dy, a, b) = dy ∂f/∂a and G<T>::db(dy, a, b) = dy ∂f/∂b.
//
// Products of several factors are taken where none of them can overflow or vanish on the way: those of float and of
// 16-bit floats in double, those of double as mantissas and exponents. Kinks are PyTorch's.
#include "elementwise/binary_functors.cuh"

namespace baracuda {
namespace partial {

// ---- products of any range ------------------------------------------------------------------------------------------

// m 2^e, with m between 1/2 and 1 when made; a few products and quotients leave it near.
struct Scaled {
  double m;
  int e;
  Scaled() = default;
  BARACUDA_D Scaled(double x) { m = ::frexp(x, &e); }
  BARACUDA_D Scaled(double mantissa, int exponent) : m(mantissa), e(exponent) {}
  BARACUDA_D Scaled operator-() const { return {-m, e}; }
  friend BARACUDA_D Scaled operator*(const Scaled& x, const Scaled& y) { return {x.m * y.m, x.e + y.e}; }
  friend BARACUDA_D Scaled operator/(const Scaled& x, const Scaled& y) { return {x.m / y.m, x.e - y.e}; }
};
template <class T> using Wide = conditional<is_same<T, double>, Scaled, double>;
template <class A> BARACUDA_D A narrow(double x) { return static_cast<A>(x); }
template <class A> BARACUDA_D A narrow(const Scaled& x) { return math::ldexp(x.m, x.e); }

// The distance from the origin, also where its square or itself leaves the range.
BARACUDA_D double wide_hypot(float a, float b) {
  return math::sqrt(math::fma(static_cast<double>(a), static_cast<double>(a), static_cast<double>(b) * b));
}
BARACUDA_D Scaled wide_hypot(double a, double b) {
  const bool large = magnitude(a) > 1.0 || magnitude(b) > 1.0;
  const double scale = large ? 0.25 : 0x1p512;
  return Scaled(math::hypot(a * scale, b * scale)) / Scaled(scale);
}

// a^b, of which double has the fourth power of a root, and the sign of the power itself.
BARACUDA_D double wide_pow(float a, float b) { return math::pow(static_cast<double>(a), static_cast<double>(b)); }
BARACUDA_D Scaled wide_pow(double a, double b) {
  const double power = math::pow(a, b);
  if (power != power) return {power, 0};
  const Scaled root(math::pow(magnitude(a), 0.25 * b)), square = root * root;
  const Scaled size = square * square;
  return {math::copysign(size.m, power), size.e};
}
// a^(b - 1) as a^b / a, since b - 1 may be rounded, and a^b be no number where a^(b - 1) then is one. Of 0 and infinity
// it is the power itself; from 2^53 on b is even, and b - 1 as good as b, but odd.
template <class A> BARACUDA_D Wide<A> wide_pow_below(A a, A b) {
  if (a != A(0) && !math::isinf(a)) return wide_pow(a, b) / Wide<A>(a);
  if (magnitude(b) < A(9007199254740992.0)) return math::pow(static_cast<double>(a), static_cast<double>(b) - 1.0);
  return math::copysign(math::pow(magnitude(static_cast<double>(a)), static_cast<double>(b)), static_cast<double>(a));
}

// ---- sums, products, quotients --------------------------------------------------------------------------------------

// A is the type of operands and results, W that of products on the way.
#define BARACUDA_PARTIAL(Name, of_a, of_b)                                  \
  template <class T> struct Name {                                          \
    using A = compute_t<T>;                                                 \
    using W = Wide<T>;                                                      \
    static BARACUDA_D A da(A dy, A a, A b, A alpha = A(1)) { return of_a; } \
    static BARACUDA_D A db(A dy, A a, A b, A alpha = A(1)) { return of_b; } \
  };

// 2 dy (a - b); a difference of doubles that overflows is taken of halves.
template <class T, class A> BARACUDA_D A twice_difference(A dy, A a, A b) {
  if constexpr (!is_same<T, double>) return static_cast<A>(2.0 * dy * (static_cast<double>(a) - b));
  const A d = a - b;
  const bool halves = math::isinf(d) && math::isfinite(a) && math::isfinite(b);
  return narrow<A>(Wide<T>(dy) * Wide<T>(halves ? A(0.5) * a - A(0.5) * b : d) * Wide<T>(halves ? A(4) : A(2)));
}
// The quotient of doubles rounded down, or to zero. Not inlined: a remainder is much code, and there is one for each
// element of a chunk.
static __device__ __noinline__ double whole_quotient(double a, double b, bool down) {
  return down ? floor_division(a, b).quotient : trunc_quotient(a, b);
}
// -dy times that quotient. One that has more than 53 bits is no other than a / b.
template <class T, class A> BARACUDA_D A times_quotient(A dy, A a, A b, bool down) {
  if constexpr (!is_same<T, double>) {
    return static_cast<A>(-static_cast<double>(dy) * whole_quotient(a, b, down));
  } else {
    const bool large = math::isfinite(a) && b != A(0) && magnitude(a / b) > A(9007199254740992.0);
    return narrow<A>(-Wide<T>(dy) * (large ? Wide<T>(a) / Wide<T>(b) : Wide<T>(whole_quotient(a, b, down))));
  }
}
template <class A> BARACUDA_D A signed_by(A dy, A a, A b) { return a > b ? dy : a < b ? -dy : dy * A(0); }

// clang-format off
BARACUDA_PARTIAL(Add, dy, dy)
BARACUDA_PARTIAL(AddScaled, dy, dy * alpha)
BARACUDA_PARTIAL(Sub, dy, -dy)
BARACUDA_PARTIAL(Mul, dy * b, dy * a)
BARACUDA_PARTIAL(Div, dy / b, narrow<A>(-W(dy) * W(a) / W(b) / W(b)))
BARACUDA_PARTIAL(Remainder, dy, times_quotient<T>(dy, a, b, true))
BARACUDA_PARTIAL(Fmod, dy, times_quotient<T>(dy, a, b, false))
BARACUDA_PARTIAL(SquaredDifference, (twice_difference<T>(dy, a, b)), (twice_difference<T>(dy, b, a)))
BARACUDA_PARTIAL(AbsoluteDifference, signed_by(dy, a, b), signed_by(dy, b, a))

// ---- powers, exponentials, angles -----------------------------------------------------------------------------------

BARACUDA_PARTIAL(Pow, (b == A(0) ? A(0) : narrow<A>(W(dy) * W(b) * wide_pow_below(a, b))),
                 (a == A(0) && b >= A(0) ? A(0) : narrow<A>(W(dy) * wide_pow(a, b) * W(math::log(a)))))
// clang-format on

// dy a 2^b log(2).
BARACUDA_D float times_power_of_2(float dy, float a, float b) {
  return static_cast<float>(scaled_by(static_cast<double>(dy) * a * 0.6931471805599453, static_cast<double>(b)));
}
BARACUDA_D double times_power_of_2(double dy, double a, double b) {
  if (b != b) return b;
  const Scaled x = Scaled(dy) * Scaled(a) * Scaled(0.6931471805599453);
  const double near = clamp(b, -10000.0, 10000.0), whole = math::rint(near);
  return math::ldexp(x.m * math::exp2(near - whole), x.e + static_cast<int>(whole));
}
BARACUDA_PARTIAL(Ldexp, scaled_by(dy, b), times_power_of_2(dy, a, b))

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
// clang-format off
BARACUDA_PARTIAL(Logaddexp, (share<T>(dy, a, b, false)), (share<T>(dy, b, a, false)))
BARACUDA_PARTIAL(Logaddexp2, (share<T>(dy, a, b, true)), (share<T>(dy, b, a, true)))
BARACUDA_PARTIAL(Xlogy, (a == A(0) && b <= A(0) ? A(0) : times_log(dy, b, math::log(b))),
                 narrow<A>(W(dy) * W(a) / W(b)))
BARACUDA_PARTIAL(Xlog1py, (a == A(0) && b <= A(-1) ? A(0) : times_log(dy, b, math::log1p(b))),
                 narrow<A>(W(dy) * W(a) / W(1.0 + b)))
// clang-format on

// dy other / (a² + b²), and 0 at the origin.
template <class T, class A> BARACUDA_D A over_square(A dy, A other, A a, A b) {
  if (a == A(0) && b == A(0)) return dy * A(0);
  const Wide<T> h = wide_hypot(a, b);
  return narrow<A>(Wide<T>(dy) * (Wide<T>(other) / h) / h);
}
BARACUDA_PARTIAL(Atan2, (over_square<T>(dy, b, a, b)), (over_square<T>(dy, -a, a, b)))
BARACUDA_PARTIAL(Hypot, narrow<A>(W(dy) * (W(a) / wide_hypot(a, b))), narrow<A>(W(dy) * (W(b) / wide_hypot(a, b))))

// ---- choices --------------------------------------------------------------------------------------------------------

BARACUDA_PARTIAL(Maximum, a == b ? dy / A(2) : b > a ? A(0) : dy, a == b ? dy / A(2) : a > b ? A(0) : dy)
BARACUDA_PARTIAL(Minimum, a == b ? dy / A(2) : b < a ? A(0) : dy, a == b ? dy / A(2) : a < b ? A(0) : dy)
BARACUDA_PARTIAL(Fmax, a >= b || b != b ? dy : A(0), a >= b || b != b ? A(0) : dy)
BARACUDA_PARTIAL(Fmin, a <= b || b != b ? dy : A(0), a <= b || b != b ? A(0) : dy)
BARACUDA_PARTIAL(Copysign, a == A(0) ? A(0) : dy * (math::copysign(a, b) / a), A(0))
BARACUDA_PARTIAL(Nextafter, dy, A(0))
BARACUDA_PARTIAL(Prelu, a > A(0) ? dy : dy * b, a > A(0) ? A(0) : dy * a)

#undef BARACUDA_PARTIAL

}  // namespace partial
}  // namespace baracuda
