// gated_cast_transpose_backward   y = (dgate, dup) . scale as fp8, yt = y transposed, amax the larger of itself and all sizes
// of dgate = dy up act'(gate) and dup = dy act(gate).
//
// The gradients are in float. A block has a tile of 64 x 64 of both (quantize/cast_tile.cuh): one read of dy, gate and up, one
// launch. A maximum depends on no order.
#include "gated/gates.cuh"
#include "quantize/cast_tile.cuh"

namespace baracuda {

template <class F, class G, class T, bool WIDE>
BARACUDA_D void gated_cast_transpose_backward(const GatedCastBackwardParams& p) {
  using namespace transposing;
  const Coefficients<float> k(p.coefficients);
  cast_tiles<WIDE, 2>(p, [&](auto& v, i64 row, i64 column, bool there) {
    const Vec<float, each> dy = values_at<T, WIDE>(p, 1, p.dy, row, column, there);
    const Vec<float, each> gate = values_at<T, WIDE>(p, 2, p.gate, row, column, there);
    const Vec<float, each> up = values_at<T, WIDE>(p, 3, p.up, row, column, there);
#pragma unroll
    for (int n = 0; n < each; ++n) {
      v[0][n] = gate_gradient<T, G>(dy[n], up[n], gate[n], k);
      v[1][n] = up_gradient<F, G>(dy[n], gate[n], up[n], k);
    }
  });
}

}  // namespace baracuda
