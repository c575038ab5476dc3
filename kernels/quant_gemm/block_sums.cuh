#pragma once
// block_sums   where neighbouring sums of a product by stored weights go.
//
// P has n, y, its steps along the batch, m and n, `wide`: whether rows of y lie along memory and start 16-byte aligned, and
// `wide_out`: whether y is of floats, else of T.
#include <baracuda/vector.cuh>

namespace baracuda {

template <class U, class P> BARACUDA_D void put_eight(const P& p, i64 at, i64 left, const Vec<U, 8>& x) {
  U* const to = static_cast<U*>(p.y) + at;
  if (p.wide) store_vec<U, 8, true>(to, x, left);
  else store_strided(to, p.y_steps[2], x, left);
}

// Writes columns n … n + 7 of row m, rounded once; n is a multiple of 8.
template <class T, class P> BARACUDA_D void put_sums(const P& p, i64 batch, i64 m, i64 n, const Vec<float, 8>& sums) {
  const i64 at = batch * p.y_steps[0] + m * p.y_steps[1] + n * p.y_steps[2], left = p.n - n;
  if (p.wide_out) put_eight(p, at, left, sums);
  else put_eight(p, at, left, from_acc<T>(sums));
}

}  // namespace baracuda
