#pragma once
// directions  dy x / |x|, of numbers that are real or complex: what gradients of norms are made of.
#include "reduce/gradients.cuh"

namespace baracuda {

template <class A> BARACUDA_D A sign_of(A x) { return A(x > A(0)) - A(x < A(0)); }  // of NaN 0, as in PyTorch

// dy x / y for y > 0: the quotient may be subnormal, or 0, where the product is not; 2^1080 makes it normal.
BARACUDA_D double times_share(double dy, double x, double y) {
  const double ratio = x / y;
  if (!(math::abs(ratio) < 0x1p-1022) || x == 0 || math::isinf(y)) return dy * ratio;
  if (math::isinf(dy)) return x < 0 ? -dy : dy;
  return dy * 0x1p-540 * ((x * 0x1p540) / (y * 0x1p-540)) * 0x1p-540;
}

// dy z / |z|, 0 at 0, and NaN in both parts where z is not finite. Powers of 2 keep |z| from where it has few digits or
// none.
BARACUDA_D complex<double> directed(complex<double> z, double dy) {
  if (!math::isfinite(z)) return {numeric<double>::nan(), numeric<double>::nan()};
  const double top = max(math::abs(z.re), math::abs(z.im));
  if (top == 0) return {dy * z.re, dy * z.im};
  if (top > 0x1p1000) {
    const double size = math::hypot(0.25 * z.re, 0.25 * z.im);
    return {times_share(0.25 * dy, z.re, size), times_share(0.25 * dy, z.im, size)};
  }
  const double by = top < 0x1p-900 ? 0x1p200 : 1.0, size = math::hypot(z.re * by, z.im * by);
  return {times_share(dy, z.re * by, size), times_share(dy, z.im * by, size)};
}

}  // namespace baracuda
