// filter     the gradient of a convolution's filter, dw[o, c, k] = Σ_rows dy[row, o] x̂[row, c, k], and that of its bias.
//
// Rows are cut into splits of p.split_rows, a number that the extents fix. A split's sums, in the accumulator, go to `parts`
// [split][group][output][k = (the window's axes, channels)], and conv_merge adds the splits in their order. conv_filter_mma: on
// tensor cores, x channels last, dy as [row][group][output]. conv_filter_simt: any strides, one chain of fused
// multiply-adds in the order of rows. conv_bias: of dy alone, chains of every eighth row (where channels are neighbours), or
// of every 32nd, added in order. Groups of few channels: conv/pairs.cu.
#include "conv/filter_task.cuh"
#include "conv/tile.cuh"

namespace baracuda {

template <class T, int SIZE> BARACUDA_D void conv_filter_mma(const ConvParams& p) {
  using Tile = ConvTile<T, false, SIZE>;
  BARACUDA_DYNAMIC_SMEM(T, ring);
  const FilterTask task(p, SIZE, SIZE);
  Tile tile;
  {
    const T* const dy = static_cast<const T*>(p.y) + task.first * p.y_steps[0][5] + task.group * p.y_steps[0][1];
    typename Tile::Base::Left a(dy, 1, p.y_steps[0][5], task.n0, p.cols, true);
    WindowColumns<T, SIZE, Tile::depth> b(p, task.group, task.k0, task.first);
    tile.add(ring, a, b, task.last - task.first);
  }
  const i64 width = p.taps * p.channels;
  tile.finish(ring, [&](int row, int col, const auto& sum, const auto&) {
    const i64 n = task.n0 + row, k = task.k0 + col;
    if (n < p.cols) store_strided(task.line<float>(p, n) + k, 1, sum, width - k);
  });
}

template <class T> BARACUDA_D void conv_filter_simt(const ConvParams& p) {
  using A = acc_t<T>;
  constexpr int tile = 64, depth = 16, each = 4;
  __shared__ A sa[depth][tile + 1], sb[depth][tile + 1];
  const FilterTask task(p, tile, tile);
  const i64 width = p.taps * p.channels;
  const int own = threadIdx.x % depth, first = threadIdx.x / depth, tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  A acc[each][each] = {};
  for (i64 start = task.first; start < task.last; start += depth) {
    const bool exists = start + own < task.last;
    const ConvRow row(p, exists ? start + own : task.first);
    const T* const dy = static_cast<const T*>(p.y) + row.offset(p.y_steps[0]) + task.group * p.y_steps[0][1];
    const T* const x = static_cast<const T*>(p.x) + row.batch * p.x_steps[0] + task.group * p.x_steps[1];
#pragma unroll
    for (int i = 0; i < each; ++i) {
      const int place = first + 16 * i;
      const i64 n = task.n0 + place, k = task.k0 + place;
      sa[own][place] = exists && n < p.cols ? to_acc(dy[n * p.y_steps[0][2]]) : A(0);
      u64 c;
      const ConvTap tap(p, static_cast<i64>(divmod(static_cast<u64>(k), static_cast<u64>(p.channels), c)));
      i64 offset;
      const bool there = exists && k < width && conv_find(p, row, tap, offset);
      sb[own][place] = there ? to_acc(x[offset + static_cast<i64>(c) * p.x_steps[2]]) : A(0);
    }
    __syncthreads();
    const int count = static_cast<int>(min<i64>(depth, task.last - start));
    for (int k = 0; k < count; ++k) {
      A ra[each], rb[each];
#pragma unroll
      for (int i = 0; i < each; ++i) ra[i] = sa[k][ty + 16 * i], rb[i] = sb[k][tx + 16 * i];
#pragma unroll
      for (int i = 0; i < each; ++i)
#pragma unroll
        for (int j = 0; j < each; ++j) acc[i][j] = math::fma(ra[i], rb[j], acc[i][j]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < each; ++i)
#pragma unroll
    for (int j = 0; j < each; ++j) {
      const i64 n = task.n0 + ty + 16 * i, k = task.k0 + tx + 16 * j;
      if (n < p.cols && k < width) task.line<A>(p, n)[k] = acc[i][j];
    }
}

template <class T> BARACUDA_D void conv_bias(const ConvParams& p) {
  using A = acc_t<T>;
  constexpr int lanes = 32, lines = 8;
  __shared__ A shared[lines][lanes];
  const bool inner = p.channels_inner != 0;
  const i64 outputs = p.groups * p.cols;
  const int lane = threadIdx.x % lanes, line = threadIdx.x / lanes;
  u64 chunk, n;
  const i64 each = inner ? lanes : lines;
  const i64 split =
      static_cast<i64>(divmod(static_cast<u64>(blockIdx.x), static_cast<u64>(div_up(outputs, each)), chunk));
  const i64 output = static_cast<i64>(chunk) * each + (inner ? lane : line);
  const i64 first = split * p.split_rows, last = min<i64>(p.rows, first + p.split_rows);
  A sum = A(0);
  if (output < outputs) {
    const i64 group = static_cast<i64>(divmod(static_cast<u64>(output), static_cast<u64>(p.cols), n));
    const T* const dy = static_cast<const T*>(p.y) + group * p.y_steps[0][1] + static_cast<i64>(n) * p.y_steps[0][2];
#pragma unroll 4
    for (i64 m = first + (inner ? line : lane); m < last; m += inner ? lines : lanes) {
      sum += to_acc(dy[ConvRow(p, m).offset(p.y_steps[0])]);
    }
  }
  shared[line][lane] = sum;
  __syncthreads();
  if ((inner ? line : lane) != 0 || output >= outputs) return;
  for (int k = 1; k < (inner ? lines : lanes); ++k) sum += inner ? shared[k][lane] : shared[line][k];
  static_cast<A*>(p.parts)[split * outputs + output] = sum;
}

}  // namespace baracuda
