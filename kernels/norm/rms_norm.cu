// rms_norm    y[r, c] = x[r, c] / sqrt(mean_c(x[r, c]^2) + eps) * weight[c];   rstd[r] = 1 / sqrt(mean + eps)
//
// One block a row. Thread t owns the chunks of VEC columns t, t + THREADS, …: the order of the sum depends on
// (THREADS, VEC) alone, so neither alignment (WIDE) nor strides (DENSE) nor the number of rows change a row's bits.
#include <baracuda/reduce.cuh>
#include <baracuda/rows.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {

template <class T, int THREADS, int VEC, bool DENSE, bool WIDE>
BARACUDA_D void rms_norm(const RMSNormParams& p) {
  using A = acc_t<T>;
  const i64 row = blockIdx.x;
  i64 at[3];
  row_offsets(p, row, at);
  const T* x = static_cast<const T*>(p.x) + at[0];
  const T* weight = static_cast<const T*>(p.weight);
  T* y = static_cast<T*>(p.y) + at[2];

  auto fetch = [&](const T* base, int n, i64 col) {
    if constexpr (DENSE) return load_vec<T, VEC, WIDE>(base + col, p.cols - col);
    Vec<T, VEC> out{};
#pragma unroll
    for (int k = 0; k < VEC; ++k)
      if (col + k < p.cols) out[k] = base[column_offset<DENSE>(p, n, col + k)];
    return out;
  };

  A sum = 0;
  for (i64 col = threadIdx.x * VEC; col < p.cols; col += THREADS * VEC) {
    const auto v = to_acc(fetch(x, 0, col));
#pragma unroll
    for (int k = 0; k < VEC; ++k) sum = math::fma(v[k], v[k], sum);
  }
  sum = block_reduce<Sum, THREADS>(sum);
  const A rstd = A(1) / math::sqrt(sum / static_cast<A>(p.cols) + static_cast<A>(p.eps));
  if (p.rstd != nullptr && threadIdx.x == 0) static_cast<A*>(p.rstd)[row * p.rstd_stride] = rstd;
  for (i64 col = threadIdx.x * VEC; col < p.cols; col += THREADS * VEC) {
    auto v = to_acc(fetch(x, 0, col));
    const auto w = weight == nullptr ? Vec<A, VEC>{} : to_acc(fetch(weight, 1, col));
#pragma unroll
    for (int k = 0; k < VEC; ++k) v[k] = weight == nullptr ? v[k] * rstd : v[k] * rstd * w[k];
    const auto out = from_acc<T>(v);
    if constexpr (DENSE) {
      store_vec<T, VEC, WIDE>(y + col, out, p.cols - col);
    } else {
#pragma unroll
      for (int k = 0; k < VEC; ++k)
        if (col + k < p.cols) y[column_offset<DENSE>(p, 2, col + k)] = out[k];
    }
  }
}

}  // namespace baracuda
