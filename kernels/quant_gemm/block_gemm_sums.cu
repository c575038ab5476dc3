// block_gemm_sums   y = Σ partials + bias, of partial sums over splits of k that lie as [batch, split, m, pitch]. A thread
//                   has 8 columns of a row, and adds the splits in order.
#include "quant_gemm/block_sums.cuh"

namespace baracuda {

template <class T> BARACUDA_D void block_gemm_sums(const BlockGemmSumsParams& p) {
  const i64 octets = div_up(p.n, i64(8)), at = static_cast<i64>(blockIdx.x) * 256 + threadIdx.x;
  const i64 row = at / octets, n = at % octets * 8, batch = row / p.m, m = row % p.m;
  if (batch >= p.batch) return;
  const float* const from = static_cast<const float*>(p.sums) + (batch * p.parts * p.m + m) * p.pitch + n;
  auto acc = load_vec<float, 8, true>(from, p.n - n);
#pragma unroll 4
  for (i64 i = 1; i < p.parts; ++i) {
    const auto more = load_vec<float, 8, true>(from + i * p.m * p.pitch, p.n - n);
#pragma unroll
    for (int j = 0; j < 8; ++j) acc[j] += more[j];
  }
  if (p.bias != nullptr) {
    const auto bias = to_acc(load_strided<T, 8>(static_cast<const T*>(p.bias) + n * p.bias_step, p.bias_step, p.n - n));
#pragma unroll
    for (int j = 0; j < 8; ++j) acc[j] += bias[j];
  }
  put_sums<T>(p, batch, m, n, acc);
}

}  // namespace baracuda
