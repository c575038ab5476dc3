// aqlm_dequantize   y[n, k] = scale of the row's group · the sum of its vectors. A thread has 16 bytes of a row; the order
//                   of the sum is aqlm.cuh's.
#include "quantize/aqlm.cuh"

namespace baracuda {

template <class T, int N> BARACUDA_D void aqlm_dequantize(const AqlmDequantizeParams& p) {
  u64 chunk;
  const u64 thread = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x;
  const i64 row = static_cast<i64>(divmod(thread, static_cast<u64>(p.k / N), chunk));
  if (row >= p.n) return;
  auto values = aqlm_values<T, N>(p, row, chunk * N);
  const float scale = aqlm_scale<T>(p, row);
#pragma unroll
  for (int i = 0; i < N; ++i) values[i] *= scale;
  store(static_cast<T*>(p.y) + row * p.y_step + chunk * N, cast_vec<T>(values));
}

}  // namespace baracuda
