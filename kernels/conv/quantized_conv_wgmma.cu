// quantized_conv_wgmma   the problem of quantized_conv_mma (conv/quantized_conv.cu) on sm_90a.
// scaled_conv_wgmma      the problem of scaled_conv_mma (conv/scaled_conv.cu) on sm_90a: the tensor cores keep some 13 bits
//                        below the largest term, so the products of 128 of k are a chain of their own.
#include "conv/codes.cuh"
#include "conv/wgmma.cuh"
#include <baracuda/wgmma_int8.cuh>
#include <baracuda/wgmma_wide.cuh>

namespace baracuda {

template <class TX, class TW> struct ConvInt8 {
  using Sum = int;
  static constexpr bool apart = false;
  template <int N> static BARACUDA_D void multiply(int (&acc)[N][4], u64 a, u64 b, int adds) {
    wgmma_int8<TX, TW>(acc, a, b, adds);
  }
  template <int N> static BARACUDA_D void hold(int (&acc)[N][4]) { baracuda::hold(acc); }
};
template <class TX, class TW> struct ConvFp8 {
  using Sum = float;
  static constexpr bool apart = true;
  template <int N> static BARACUDA_D void multiply(float (&acc)[N][4], u64 a, u64 b, int adds) {
    wgmma_along<TX, TW>(acc, a, b, adds);
  }
  template <int N> static BARACUDA_D void hold(float (&acc)[N][4]) { baracuda::hold(acc); }
};

// Calls put(row, output, outputs that are left, sums) for what a tile of the products of MMA has of a group.
template <class MMA, int COLS, class Put> BARACUDA_D void conv_codes_wgmma(const ConvParams& p, const Put& put) {
  using Tile = ConvWarpgroups<u8, COLS, false, MMA>;
  BARACUDA_DYNAMIC_SMEM(u8, ring);
  const Raster task(static_cast<i64>(blockIdx.x), div_up(p.rows, static_cast<i64>(Tile::rows)),
                    div_up(p.cols, static_cast<i64>(COLS)));
  Tile tile;
  {
    WindowRows<u8, Tile::rows, Tile::depth, Tile::threads, ZeroPoints> a(p, task.batch, task.m * Tile::rows);
    const u8* const w = static_cast<const u8*>(p.w) + task.batch * p.w_steps[0];
    Slices<u8, true, COLS, Tile::depth, Tile::threads> b(w, p.w_steps[1], 1, task.n * COLS, p.cols, true);
    tile.add(ring, a, b, p.taps * p.channels);
  }
  tile.finish(ring, !p.channels_inner, [&](int row, int col, const auto& sum) {
    const i64 m = task.m * Tile::rows + row, n = task.n * COLS + col;
    if (m < p.rows && n < p.cols) put(task.batch, m, n, p.cols - n, sum);
  });
}

template <class TX, class TW, int COLS> BARACUDA_D void quantized_conv_wgmma(const ConvParams& p) {
  conv_codes_wgmma<ConvInt8<TX, TW>, COLS>(p, [&](i64 group, i64 m, i64 n, i64 left, const auto& sum) {
    conv_integers_put(p, group, ConvRow(p, m), n, left, sum);
  });
}

template <class TX, class TW, int COLS> BARACUDA_D void scaled_conv_wgmma(const ConvParams& p) {
  conv_codes_wgmma<ConvFp8<TX, TW>, COLS>(p, [&](i64 group, i64 m, i64 n, i64 left, const auto& sum) {
    ConvCodes<float>::put(p, group, ConvRow(p, m), n, left, sum);
  });
}

}  // namespace baracuda
