// fp8_cast_transpose   y = x . scale as fp8, yt = y transposed, amax the larger of itself and all |x|: one read of x, whose
// codes change threads in shared memory. A maximum depends on no order.
#include "quantize/amax.cuh"
#include "quantize/transpose_tile.cuh"

namespace baracuda {

template <class T, bool WIDE> BARACUDA_D void fp8_cast_transpose(const Fp8TransposeParams& p) {
  using namespace transposing;
  __shared__ u8 tile[side][side + 4];
  const i64 block = static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x, across = div_up(p.cols, side);
  const i64 top = block / across * side, left = block % across * side;
  if (top >= p.rows) return;
  const int line = static_cast<int>(threadIdx.x) / 4, from = static_cast<int>(threadIdx.x) % 4 * each;
  const quantize::Coder coder(p.code);
  const float scale = static_cast<float>(p.scale());

  const bool there = top + line < p.rows && left + from < p.cols;
  Vec<float, each> v = values_of<T, WIDE>(p, top + line, left + from, there);
  const float most = quantize::most_of(v, each);
#pragma unroll
  for (int k = 0; k < each; ++k) v[k] *= scale;
  Vec<u8, each> codes = quantize::codes_of(v, coder, math::isfinite(most) && math::isfinite(scale));
#pragma unroll
  for (int k = 0; k < each; ++k) tile[line][from + k] = codes[k];
  if (there) put_row<WIDE>(p, top + line, left + from, codes);
  quantize::raise<threads>(static_cast<float*>(p.amax), most);
  __syncthreads();

#pragma unroll
  for (int k = 0; k < each; ++k) codes[k] = tile[from + k][line];
  if (top + from < p.rows && left + line < p.cols) put_column<WIDE>(p, top + from, left + line, codes);
}

}  // namespace baracuda
