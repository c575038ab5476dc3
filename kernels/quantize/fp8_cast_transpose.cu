// fp8_cast_transpose   y = x . scale as fp8, yt = y transposed, amax the larger of itself and all |x|: one read of x, whose
// codes change threads in shared memory. A maximum depends on no order.
#include "quantize/cast_tile.cuh"

namespace baracuda {

template <class T, bool WIDE> BARACUDA_D void fp8_cast_transpose(const Fp8TransposeParams& p) {
  transposing::cast_tiles<WIDE, 1>(p, [&](auto& v, i64 row, i64 column, bool there) {
    v[0] = transposing::values_of<T, WIDE>(p, row, column, there);
  });
}

}  // namespace baracuda
