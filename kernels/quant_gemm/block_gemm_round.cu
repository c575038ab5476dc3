// block_gemm_round   rows of float32 in the element that a product reads or a gradient has. A thread has 8 columns of a row.
#include <baracuda/vector.cuh>

namespace baracuda {

template <class T> BARACUDA_D void block_gemm_round(const BlockGemmRoundParams& p) {
  const i64 chunks = div_up(p.cols, i64(8)), at = static_cast<i64>(blockIdx.x) * 256 + threadIdx.x;
  const i64 row = at / chunks, col = at % chunks * 8;
  if (row >= p.rows) return;
  const auto x = load_strided<float, 8>(static_cast<const float*>(p.x) + row * p.x_pitch + col, 1, p.cols - col);
  T* const y = static_cast<T*>(p.y) + row * p.y_pitch + col * p.y_step;
  if (p.wide) store_vec<T, 8, true>(y, from_acc<T>(x), p.cols - col);
  else store_strided(y, p.y_step, from_acc<T>(x), p.cols - col);
}

}  // namespace baracuda
