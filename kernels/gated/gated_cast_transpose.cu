// gated_cast_transpose   y = act(gate) up . scale as fp8, yt = y transposed, amax the larger of itself and all |act(gate) up|.
//
// The product is in float. Tiles of 64 x 64 (quantize/cast_tile.cuh): one read of gate and up, one launch. A maximum depends
// on no order.
#include "gated/gates.cuh"
#include "quantize/cast_tile.cuh"

namespace baracuda {

template <class F, class G, class T, bool WIDE> BARACUDA_D void gated_cast_transpose(const GatedCastParams& p) {
  using namespace transposing;
  const Coefficients<float> k(p.coefficients);
  cast_tiles<WIDE, 1>(p, [&](auto& v, i64 row, i64 column, bool there) {
    const Vec<float, each> gate = values_at<T, WIDE>(p, 1, p.gate, row, column, there);
    const Vec<float, each> up = values_at<T, WIDE>(p, 2, p.up, row, column, there);
#pragma unroll
    for (int n = 0; n < each; ++n) v[0][n] = gated<F, G>(gate[n], up[n], k);
  });
}

}  // namespace baracuda
