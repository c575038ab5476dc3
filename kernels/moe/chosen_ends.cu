// chosen_ends   what stands before and after products by the chosen experts: rows of x brought together where they do not
//               lie along memory, and y[t] = Σ_j weights[t, j] z[t k + j] of the rows z that the products have made.
//               moe/decode.cuh says what fixes the order of the sum.
#include "moe/decode.cuh"

namespace baracuda {

// Dense rows of p.k numbers, of x in any strides.
template <class T> BARACUDA_D void chosen_pack(const ChosenBlockGemmParams& p) {
  const i64 e = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (e >= p.n * p.k) return;
  static_cast<T*>(p.made)[e] = static_cast<const T*>(p.x)[e / p.k * p.x_steps[1] + e % p.k * p.x_steps[2]];
}

template <class T> BARACUDA_D void chosen_sum(const ChosenBlockGemmParams& p) {
  const i64 e = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (e >= p.tokens * p.n) return;
  const int token = static_cast<int>(e / p.n);
  const i64 column = e % p.n;
  float y = 0.0f;
  for (int j = 0; j < p.choices; ++j) {
    const int slot = token * p.choices + j;
    if (moe::expert_of(p, slot) < 0) continue;
    const T z = static_cast<const T*>(p.made)[slot * p.made_steps[0] + column * p.made_steps[1]];
    y += to_acc(z) * moe::weight_of<T>(p, token, j);
  }
  static_cast<T*>(p.y)[token * p.y_steps[0] + column * p.y_steps[1]] = from_acc<T>(y);
}

}  // namespace baracuda
