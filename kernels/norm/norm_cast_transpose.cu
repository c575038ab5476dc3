// norm_cast_transpose   u = rms_norm or layer_norm of x in float, y = u . scale as fp8, yt = y transposed, amax the larger of
// itself and all |u|.
//
// Two launches. LANES threads find the statistics of a row in double: a thread adds its chunks of 16 bytes in order, then the
// lanes as a tree, so that LANES, which follows from the number of columns, alone fixes the order. Then tiles of 64 x 64
// (quantize/cast_tile.cuh) read x again. WIDE: all rows are dense, of whole aligned pieces.
#include "norm/channel.cuh"
#include "quantize/cast_tile.cuh"

namespace baracuda {

namespace norm {

enum CastOperand { AT_CODES, AT_VALUES, AT_WEIGHT, AT_BIAS };

template <int LANES> BARACUDA_D double over_lanes(double x) {
  if constexpr (LANES <= warp_size) return group_reduce<Sum, LANES>(x);
  else return block_reduce<Sum, LANES>(x);
}

// The thread's piece of weight or bias, of T or of float beside it.
template <class T, bool WIDE, class P>
BARACUDA_D Vec<float, transposing::each> affine_piece(const P& p, int n, const void* from, i64 column) {
  if constexpr (is_half<T>) {
    if (p.wide) return transposing::values_at<float, WIDE>(p, n, from, 0, column, true);
  }
  return transposing::values_at<T, WIDE>(p, n, from, 0, column, true);
}

}  // namespace norm

template <class T, bool CENTER, int LANES, bool WIDE> BARACUDA_D void norm_cast_statistics(const NormCastParams& p) {
  using namespace norm;
  constexpr int V = vec_elems<T>, ROWS = LANES < 128 ? 128 / LANES : 1, UNROLL = WIDE ? 4 : 1;
  const int lane = static_cast<int>(threadIdx.x) % LANES;
  const i64 block = static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x, row = block * ROWS + threadIdx.x / LANES;
  if (row >= p.rows) return;  // whole groups
  const T* const x = static_cast<const T*>(p.x) + RowAt<WIDE>(p, row).offset(p, AT_VALUES);
  const double count = static_cast<double>(max<i64>(p.cols, 1));
  const auto each = [&](const auto& f) {
#pragma unroll UNROLL
    for (i64 col = lane * V; col < p.cols; col += LANES * V)
      f(to_acc(unpack<T>(load_chunk<T, WIDE>(p, AT_VALUES, x, col, p.cols - col))), p.cols - col);
  };
  double mean = 0, squares = 0;
  if constexpr (CENTER) {
    each([&](const Vec<float, V>& v, i64) {  // beyond the row v is 0
#pragma unroll
      for (int k = 0; k < V; ++k) mean += static_cast<double>(v[k]);
    });
    mean = over_lanes<LANES>(mean) / count;
  }
  each([&](const Vec<float, V>& v, i64 left) {
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const double d = !CENTER || WIDE || k < left ? static_cast<double>(v[k]) - mean : 0.0;
      squares = math::fma(d, d, squares);
    }
  });
  squares = over_lanes<LANES>(squares);
  if (lane != 0) return;
  const double rstd = 1.0 / math::sqrt(squares / count + p.eps);
  static_cast<Centre<float>*>(p.centres)[row] = centre_of<float>(mean, 0.0, rstd);
  if (p.rstd != nullptr) static_cast<float*>(p.rstd)[row] = static_cast<float>(rstd);
  if (p.mean != nullptr) static_cast<float*>(p.mean)[row] = static_cast<float>(mean);
}

template <class T, bool CENTER, bool WIDE> BARACUDA_D void norm_cast_transpose(const NormCastParams& p) {
  using namespace norm;
  using namespace transposing;
  cast_tiles<WIDE, 1>(p, [&](auto& v, i64 row, i64 column, bool there) {
    v[0] = values_at<T, WIDE>(p, norm::AT_VALUES, p.x, row, column, there);
    if (!there) return;
    const Centre<float> s = static_cast<const Centre<float>*>(p.centres)[row];
#pragma unroll
    for (int k = 0; k < each; ++k) {
      if constexpr (CENTER) v[0][k] = (math::fma(v[0][k], s.scale, -s.mean) - s.low) * s.rstd;
      else v[0][k] = v[0][k] * s.scale * s.rstd;
    }
    if (p.weight != nullptr) {
      const Vec<float, each> weight = affine_piece<T, WIDE>(p, AT_WEIGHT, p.weight, column);
#pragma unroll
      for (int k = 0; k < each; ++k) v[0][k] *= weight[k] + p.weight_offset;
    }
    if (CENTER && p.bias != nullptr) {
      const Vec<float, each> bias = affine_piece<T, WIDE>(p, AT_BIAS, p.bias, column);
#pragma unroll
      for (int k = 0; k < each; ++k) v[0][k] += bias[k];
    }
  });
}

}  // namespace baracuda
