#pragma once
// packed_out results of products of packed integers: y = sum, or round(sum · scale_a[m] · scale_b[n] + bias[n]).
//
// An int32 y is the sum. Else it goes through float32, in which each of the three operations is rounded, in this order.
#include <baracuda/vector.cuh>

namespace baracuda::quant {

// Factors and addends that are absent are null.
template <class U, class P> BARACUDA_D U packed_result(const P& p, i64 m, i64 n, int sum) {
  if constexpr (is_same<U, int>) {
    return sum;
  } else {
    float x = static_cast<float>(sum);
    if (p.scale_a != nullptr) x *= static_cast<const float*>(p.scale_a)[m * p.vectors[0]];
    if (p.scale_b != nullptr) x *= static_cast<const float*>(p.scale_b)[n * p.vectors[1]];
    if (p.bias != nullptr) x += static_cast<const float*>(p.bias)[n * p.vectors[2]];
    return from_acc<U>(x);
  }
}

// Eight columns of a row, from n on.
template <class U, class P> BARACUDA_D void put_packed(const P& p, i64 m, i64 n, const Vec<int, 8>& sums) {
  if (m >= p.m || n >= p.n) return;
  const i64 left = p.n - n;
  Vec<U, 8> y;
#pragma unroll
  for (int k = 0; k < 8; ++k) y[k] = k < left ? packed_result<U>(p, m, n + k, sums[k]) : U(0);
  U* const to = static_cast<U*>(p.y) + m * p.y_strides[0] + n * p.y_strides[1];
  if (p.wide & 4 && left >= 8) store(to, y);
  else store_strided(to, p.y_strides[1], y, left);
}

}  // namespace baracuda::quant
