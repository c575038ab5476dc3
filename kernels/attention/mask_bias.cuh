#pragma once
// mask_bias    an element of a mask as what is added to a score: booleans hide where they are false, as -inf does.
#include <baracuda/reduce.cuh>

namespace baracuda::attention {

// Calls f(x) with an x of the C++ type of a mask's element: 0 bool (bytes), 1 f16, 2 bf16, 3 f32, 4 f64.
template <class A, class F> BARACUDA_D void with_kind(int kind, const F& f) {
  switch (kind) {
    case 0: f(u8{}); break;
    case 1: f(f16{}); break;
    case 2: f(bf16{}); break;
    case 3: f(float{}); break;
    default:
      if constexpr (is_same<A, double>) f(double{});
  }
}

template <class A, class M> BARACUDA_D A as_bias(M found) {
  if constexpr (is_same<M, u8>) return found ? A(0) : -numeric<A>::infinity();
  else return static_cast<A>(to_acc(found));
}

// x + bias; finite plus finite stays finite, so that a row of the lowest floats is not a row of hidden keys.
template <class A> BARACUDA_D A with_bias(A x, A bias) {
  const A sum = x + bias, most = numeric<A>::max();
  const bool both = math::isfinite(x) && math::isfinite(bias);
  return bias == -numeric<A>::infinity() ? bias : both ? math::minimum(math::maximum(sum, -most), most) : sum;
}

}  // namespace baracuda::attention
