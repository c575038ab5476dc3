// conv_wgmma         a convolution as a product of its windows and the filter on sm_90a: the problem of conv_mma
//                    (conv/implicit.cu).
// conv_filter_wgmma  the gradient of a filter, the problem of conv_filter_mma (conv/filter.cu), likewise.
#include "conv/filter_task.cuh"
#include "conv/wgmma.cuh"
#include "gemm/raster.cuh"

namespace baracuda {

template <class T, int COLS, bool BLOCKS, class E = ConvEpilogue<T>> BARACUDA_D void conv_wgmma(const ConvParams& p) {
  using Tile = ConvWarpgroups<T, COLS, false>;
  BARACUDA_DYNAMIC_SMEM(T, ring);
  const Raster task(static_cast<i64>(blockIdx.x), div_up(p.rows, static_cast<i64>(Tile::rows)),
                    div_up(p.cols, static_cast<i64>(COLS)));
  Tile tile;
  {
    WindowRows<T, Tile::rows, Tile::depth, Tile::threads> a(p, task.batch, task.m * Tile::rows);
    const T* const w = static_cast<const T*>(p.w) + task.batch * p.w_steps[0];
    Slices<T, true, COLS, Tile::depth, Tile::threads> b(w, p.w_steps[1], 1, task.n * COLS, p.cols, true);
    tile.add(ring, a, b, p.taps * p.channels);
  }
  tile.finish(ring, !p.channels_inner, [&](int row, int col, const Vec<float, 8>& sum) {
    const i64 m = task.m * Tile::rows + row, n = task.n * COLS + col;
    if (m >= p.rows || n >= p.cols) return;
    if constexpr (BLOCKS) conv_put_block<E, 8>(p, task.batch, m, n, p.cols - n, sum);
    else conv_put<E, 8>(p, task.batch, m, n, p.cols - n, sum);
  });
}

template <class T, int COLS> BARACUDA_D void conv_filter_wgmma(const ConvParams& p) {
  using Tile = ConvWarpgroups<T, COLS, true>;
  BARACUDA_DYNAMIC_SMEM(T, ring);
  const FilterTask task(p, Tile::rows, COLS);
  Tile tile;
  {
    const T* const dy = static_cast<const T*>(p.y) + task.first * p.y_steps[0][5] + task.group * p.y_steps[0][1];
    PanelSlices<T, Tile::depth, Tile::threads> a(dy, p.y_steps[0][5], task.n0, p.cols);
    WindowColumns<T, COLS, Tile::depth, Tile::threads, true> b(p, task.group, task.k0, task.first);
    tile.add(ring, a, b, task.last - task.first);
  }
  const i64 width = p.taps * p.channels;
  tile.finish(ring, false, [&](int row, int col, const Vec<float, 8>& sum) {
    const i64 n = task.n0 + row, k = task.k0 + col;
    if (n < p.cols) store_strided(task.line<float>(p, n) + k, 1, sum, width - k);
  });
}

}  // namespace baracuda
