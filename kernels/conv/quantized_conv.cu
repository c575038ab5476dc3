// quantized_conv   convolutions of integers of 8 bits with zero points and scales: conv/codes.cuh.
//
// Sums are exact: of 32 bits on tensor cores, of 64 where a thread has an output. On tensor cores elements outside of x are
// zero points, and zero_x Σ w is taken off: conv_filter_sums has made Σ w of each output, and 16 bytes of zero_x.
#include "conv/codes.cuh"
#include <baracuda/mma_int8.cuh>

namespace baracuda {

// Products of integers of 8 bits, as gemm/byte_tile.cuh takes an instruction.
template <class TX, class TW> struct ConvIntegers {
  using Sum = int;
  template <int NT> struct Right {
    const u32 (&fragments)[NT][2];
    BARACUDA_D explicit Right(const u32 (&fragments)[NT][2]) : fragments(fragments) {}
    BARACUDA_D void multiply(int (&acc)[NT][4], const u32 (&rows)[4]) const {
#pragma unroll
      for (int n = 0; n < NT; ++n) mma_int8<TX, TW>(acc[n], rows, fragments[n]);
    }
  };
};

// A warp for each output, whose filter is k in a row.
template <class TW> BARACUDA_D void conv_filter_sums(const ConvParams& p) {
  const i64 output = thread_index() / warp_size, outputs = p.groups * p.cols, terms = p.taps * p.channels;
  if (blockIdx.x == 0 && threadIdx.x < 16) {
    static_cast<u8*>(p.none)[threadIdx.x] = *static_cast<const u8*>(p.zero_x);
  }
  if (output >= outputs) return;
  u64 n;
  const i64 group = static_cast<i64>(divmod(static_cast<u64>(output), static_cast<u64>(p.cols), n));
  const TW* const w = static_cast<const TW*>(p.w) + group * p.w_steps[0] + static_cast<i64>(n) * p.w_steps[1];
  int sum = 0;
  for (i64 k = lane_id(); k < terms; k += warp_size) sum += static_cast<int>(w[k]);
  sum = warp_reduce<Sum>(sum);
  if (lane_id() == 0) static_cast<int*>(p.w_sums)[output] = sum;
}

template <class TX, class TW, int SIZE> BARACUDA_D void quantized_conv_mma(const ConvParams& p) {
  using Tile = ConvBytes<ConvIntegers<TX, TW>, SIZE>;
  BARACUDA_DYNAMIC_SMEM(u8, ring);
  const Raster task(static_cast<i64>(blockIdx.x), div_up(p.rows, static_cast<i64>(SIZE)),
                    div_up(p.cols, static_cast<i64>(SIZE)));
  typename Tile::Accumulator acc;
  clear_accumulators(acc);
  Tile::each(ring, p, task, [&](const auto& slice) {
#pragma unroll
    for (int step = 0; step < Tile::steps; ++step) slice.multiply(acc, step);
  });
  Tile::out(ring, p, task, acc, [&](i64 m, i64 n, i64 left, const auto& sum) {
    conv_integers_put(p, task.batch, ConvRow(p, m), n, left, sum);
  });
}

template <class TX, class TW> BARACUDA_D void quantized_conv_each(const ConvParams& p) {
  conv_codes_each<double, i64, TX, TW>(p, [](i64& sum, TX x, TW w, int zero_x, int zero_w) {
    sum += (static_cast<int>(x) - zero_x) * (static_cast<int>(w) - zero_w);
  });
}

}  // namespace baracuda
