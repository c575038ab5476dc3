// quantize_rows  rows of numbers as int8, for the product that follows:
//
//   u = x[r, k] / smooth[k]     scales[r] = max |u[r, :]| / 127, at least 2^-126, or x_scale for all
//   codes[r, k] = u / scales[r], to nearest even, saturating; NaN is 0
//
// in float, every operation rounded once. Codes lie in rows of `pitch` bytes. Rows up to `short` columns have a warp each,
// longer ones a block of 256 threads; the second pass finds the row in the cache. A maximum is the same in every order.
#include <baracuda/index.cuh>
#include <baracuda/quantize.cuh>

namespace baracuda {

template <class T> struct RowToQuantize {
  static constexpr int N = 16 / static_cast<int>(sizeof(T));
  const QuantizeRowsParams& p;
  const T* from;
  u8* to;
  int first, step;  // of the chunks of this thread

  BARACUDA_D i64 chunks() const { return div_up(p.cols, N); }
  BARACUDA_D Vec<float, N> chunk(i64 c) const {
    const i64 at = c * N, left = p.cols - at;
    auto u = to_acc(p.wide ? load_vec<T, N, true>(from + at, left)
                           : load_strided<T, N>(from + at * p.x_step, p.x_step, left));
    if (p.smooth != nullptr) {
      const i64 along = p.smooth_step;
      const auto by = load_strided<float, N>(static_cast<const float*>(p.smooth) + at * along, along, left, 1.0f);
#pragma unroll
      for (int k = 0; k < N; ++k) u[k] = u[k] / by[k];
    }
    return u;
  }
  BARACUDA_D float most() const {
    float found = 0.0f;
#pragma unroll 2
    for (i64 c = first; c < chunks(); c += step)
      found = math::maximum(found, quantize::most_of(chunk(c), p.cols - c * N));
    return found;
  }
  BARACUDA_D void put(float scale) const {
    const quantize::Divisor by(scale);
    const quantize::Coder coder(quantize::to_int8);
#pragma unroll 2
    for (i64 c = first; c < chunks(); c += step) {
      const auto codes = quantize::codes_of(chunk(c), by, coder);
      if (p.whole) store_vec<u8, N, true>(to + c * N, codes, p.cols - c * N);
      else store_vec<u8, N, false>(to + c * N, codes, p.cols - c * N);
    }
  }
};

template <class T> BARACUDA_D void quantize_rows(const QuantizeRowsParams& p) {
  __shared__ float maxima[8];
  const bool alone = p.cols <= p.short_cols;  // a warp has a row
  const int thread = static_cast<int>(threadIdx.x), lane = lane_id(), warp = thread / warp_size;
  const i64 stride = static_cast<i64>(gridDim.x) * (alone ? 8 : 1);
  for (i64 r = alone ? static_cast<i64>(blockIdx.x) * 8 + warp : blockIdx.x; r < p.rows; r += stride) {
    i64 begin[1];
    offsets<i64, 1>(r, p.outer_rank, p.outer_shape, p.outer, begin);
    const RowToQuantize<T> row{p, static_cast<const T*>(p.x) + begin[0], static_cast<u8*>(p.codes) + r * p.pitch,
                               alone ? lane : thread, alone ? warp_size : 256};
    float scale = static_cast<float>(p.x_scale());
    if (!p.is_static) {
      float most = warp_reduce<Max>(row.most());
      if (!alone) {
        if (lane == 0) maxima[warp] = most;
        __syncthreads();
        most = maxima[0];
#pragma unroll
        for (int w = 1; w < 8; ++w) most = math::maximum(most, maxima[w]);
        __syncthreads();  // before the next row's
      }
      scale = quantize::scale_of(most, 127.0f);
    }
    row.put(scale);
    if (row.first == 0) static_cast<float*>(p.scales)[r] = scale;
  }
}

}  // namespace baracuda
