#pragma once
// logarithm   logarithms of z, and of 1 + z.
#include "elementwise/complex_gradients.cuh"

namespace baracuda::math {

template <class R> constexpr R inverse_ln2 = R(1.44269504088896340735992468100);
template <class R> constexpr R inverse_ln10 = R(0.434294481903251827651128918917);

// log |z|. Near the unit circle from |z|² - 1, whose squares keep their rounding errors; the ends of the range scaled.
template <class R> BARACUDA_D R log_abs(complex<R> z) {
  const R m = larger_part(z), n = abs(z.re) > abs(z.im) ? abs(z.im) : abs(z.re);
  if (m > R(0.5) && m < R(1.5) && n < R(1.5)) {
    const R mm = m * m, nn = n * n, low = fma(m, m, -mm) + fma(n, n, -nn);
    const R most = mm - R(1);  // exact in [1/2, 2]
    const R sum = most + nn, big = abs(most) > nn ? most : nn, rest = abs(most) > nn ? nn : most;
    const R t = sum + ((rest - (sum - big)) + low);
    if (t > R(-0.5)) return R(0.5) * log1p(t);
  }
  const int e = exponent(m), end = max_exponent<R> - 30;
  if ((e > end || e < -end) && isfinite(z)) {
    return log(abs(scaled(z, -e))) + static_cast<R>(e) * ln2<R>;
  }
  return log(abs(z));
}
template <class R> BARACUDA_D complex<R> log(complex<R> z) { return {log_abs(z), angle(z)}; }

template <class R> BARACUDA_D complex<R> log1p(complex<R> z) {
  const R x = z.re, y = z.im, t = x * (R(2) + x) + y * y;  // |1 + z|² - 1
  const bool near = abs(x) < R(3) && abs(y) < R(3) && t > R(-0.5);
  const complex<R> moved = {R(1) + x, y};
  return {near ? R(0.5) * log1p(t) : log_abs(moved), angle(moved)};
}

}  // namespace baracuda::math

namespace baracuda {
namespace of_complex {

BARACUDA_COMPLEX(Log, math::log(z))
BARACUDA_COMPLEX(Log2, math::log(z) * math::inverse_ln2<R>)
BARACUDA_COMPLEX(Log10, math::log(z) * math::inverse_ln10<R>)
BARACUDA_COMPLEX(Log1p, math::log1p(z))

}  // namespace of_complex

namespace gradient {

// 1 / (z log b): z is made normal first, so that the product keeps its digits.
template <class R> BARACUDA_D Slope<R> log_in(complex<R> z, R log_of_base) {
  const int e = exponent_of(z);
  return over(math::isfinite(z) ? math::scaled(z, -e) * log_of_base : z, e);
}

namespace of_complex {

BARACUDA_SLOPE(Log, over(z))
BARACUDA_SLOPE(Log2, log_in(z, math::ln2<R>))
BARACUDA_SLOPE(Log10, log_in(z, R(2.30258509299404568401799145468)))
BARACUDA_SLOPE(Log1p, over(complex<R>(R(1) + z.re, z.im)))

}  // namespace of_complex
}  // namespace gradient
}  // namespace baracuda
