// mxfp8_cast_transpose   y and yt as fp8 with a power of two for every 32 numbers of a row, of x and of x transposed, as OCP
// Microscaling Formats 1.0 has them: one read of x, whose numbers change threads in shared memory.
#include "quantize/transpose_tile.cuh"

namespace baracuda {

namespace transposing {

// The 32 numbers of which two neighbouring threads have 16 each: the largest size, and the scale.
struct Pair {
  float most;
  quantize::BlockScale scale;
  BARACUDA_D Pair(const Vec<float, each>& v, float largest)
      : most(quantize::block_most(quantize::most_of(v, each), 2)),
        scale(quantize::block_scale(most, largest, quantize::scale_e8m0, 1.0f)) {}
  BARACUDA_D Vec<u8, each> codes(const Vec<float, each>& v, const quantize::Coder& coder) const {
    return quantize::codes_over(v, scale.value, coder, most);
  }
};

}  // namespace transposing

template <class T, bool WIDE> BARACUDA_D void mxfp8_cast_transpose(const Mxfp8TransposeParams& p) {
  using namespace transposing;
  __shared__ float tile[side][side + 1];
  const i64 block = static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x, across = div_up(p.cols, side);
  const i64 top = block / across * side, left = block % across * side;
  if (top >= p.rows) return;
  const int line = static_cast<int>(threadIdx.x) / 4, from = static_cast<int>(threadIdx.x) % 4 * each;
  const quantize::Coder coder(p.code);

  const bool there = top + line < p.rows && left + from < p.cols;
  Vec<float, each> v = values_of<T, WIDE>(p, top + line, left + from, there);
#pragma unroll
  for (int k = 0; k < each; ++k) tile[line][from + k] = v[k];
  const Pair along(v, p.largest);
  if (there) {
    put_row<WIDE>(p, top + line, left + from, along.codes(v, coder));
    if (from % 32 == 0)
      static_cast<u8*>(p.scales)[(top + line) * (p.cols / 32) + (left + from) / 32] = along.scale.code;
  }
  __syncthreads();

#pragma unroll
  for (int k = 0; k < each; ++k) v[k] = tile[from + k][line];
  const Pair down(v, p.largest);
  if (top + from < p.rows && left + line < p.cols) {
    put_column<WIDE>(p, top + from, left + line, down.codes(v, coder));
    if (from % 32 == 0)
      static_cast<u8*>(p.scales_t)[(left + line) * (p.rows / 32) + (top + from) / 32] = down.scale.code;
  }
}

}  // namespace baracuda
