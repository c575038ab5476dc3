#pragma once
// range      rows whose squares leave the range of the accumulator.
//
// Such a row is multiplied, where it is held, by a power of two that brings its largest element near 1, and its statistics
// are done again; y is the same at any scale. No bit of another row changes.
#include "sums.cuh"

namespace baracuda::norm {

template <class T> constexpr bool leaves_range = !is_same<T, f16>;  // the squares of float16 fit a float

// Whether no sum has overflowed, and no square that vanished would have counted beside spread = variance + eps.
template <class A> BARACUDA_D bool in_range(A spread) {
  return spread >= A(is_same<A, double> ? 0x1p-900 : 0x1p-100) && spread < numeric<A>::infinity();
}

// The power of two for a row whose largest element is `top`; eps, which is multiplied by its square, keeps its range, too.
BARACUDA_D float range_scale(float top, double eps) {
  const int exponent = __float_as_int(math::maximum(top, static_cast<float>(math::sqrt(eps)))) >> 23;
  return __int_as_float(max(254 - exponent, 1) << 23);
}
BARACUDA_D double range_scale(double top, double eps) {
  const i64 exponent = __double_as_longlong(math::maximum(top, math::sqrt(eps))) >> 52;
  return __longlong_as_double(max<i64>(2046 - exponent, 1) << 52);
}

template <class T> BARACUDA_D void scale_chunk(Chunk& c, acc_t<T> scale) {
  auto x = widen_chunk<T>(c);
#pragma unroll
  for (int k = 0; k < x.size; ++k) x[k] *= scale;
  c = pack<T>(from_acc<T>(x));
}

// The largest |x| of a chunk.
template <class T> BARACUDA_D acc_t<T> chunk_top(const Chunk& c) {
  auto x = widen_chunk<T>(c);
#pragma unroll
  for (int k = 0; k < x.size; ++k) x[k] = math::abs(x[k]);
  return tree_reduce<Max>(x);
}

}  // namespace baracuda::norm
