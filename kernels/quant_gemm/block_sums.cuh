#pragma once
// block_sums   what is done with neighbouring sums of a product by stored weights.
//
// P has n, bias and its step, y, its steps along item, m and n, `wide`: whether y's rows lie along memory and start
// 16-byte aligned, and `wide_out`: whether y is of floats, else of T.
#include <baracuda/vector.cuh>

namespace baracuda {

template <class U, class P> BARACUDA_D void put_eight(const P& p, i64 at, i64 left, const Vec<U, 8>& x) {
  U* const to = static_cast<U*>(p.y) + at;
  if (p.wide) store_vec<U, 8, true>(to, x, left);
  else store_strided(to, p.y_steps[2], x, left);
}

// Writes sum + bias to columns n … n + 7 of row m, rounded once; n is a multiple of 8.
template <class T, class P> BARACUDA_D void put_sums(const P& p, i64 item, i64 m, i64 n, Vec<float, 8> sums) {
  const i64 left = p.n - n;
  if (p.bias != nullptr) {
    const auto bias = to_acc(load_strided<T, 8>(static_cast<const T*>(p.bias) + n * p.bias_step, p.bias_step, left));
#pragma unroll
    for (int j = 0; j < 8; ++j) sums[j] += bias[j];
  }
  const i64 at = item * p.y_steps[0] + m * p.y_steps[1] + n * p.y_steps[2];
  if (p.wide_out) put_eight(p, at, left, sums);
  else put_eight(p, at, left, from_acc<T>(sums));
}

}  // namespace baracuda
