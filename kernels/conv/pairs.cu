// pairs      the gradient of a filter whose groups have few channels, dw[g, o, c, k] = Σ_rows dy[row, g, o] x̂[row, g, c, k].
//
// A thread has N pairs (g, o, c) and a run of K taps along the window's last axis, and adds up lines: W places behind one another
// on the last axis, for which it reads each element of dy and x once. Lines, in the order (batch, axis 0, chunk of axis 2,
// axis 1), are cut into splits of p.split_lines, a number that the extents fix. In a block p.lanes threads share a pair and take
// a split's lines in turn, and their sums are added as a tree, the upper half to the lower one. Sums go to `parts`
// [split][tap][pair], and conv_merge adds the splits in their order.
#include <baracuda/math.cuh>
#include "conv/tap.cuh"

namespace baracuda {

// The batch index, the place on axes 0 and 1 and the first one on axis 2 of a line.
template <int W> struct PairLine {
  i64 at[3], batch;
  BARACUDA_D PairLine(const ConvPairsParams& p, i64 line) {
    if (p.narrow) {
      u32 rest = static_cast<u32>(line), place;
      rest = divmod(rest, p.dividers[0], 0, place), at[1] = static_cast<i64>(place);
      rest = divmod(rest, p.dividers[1], 0, place), at[2] = static_cast<i64>(place) * W;
      rest = divmod(rest, p.dividers[2], 0, place), at[0] = static_cast<i64>(place);
      batch = static_cast<i64>(rest);
      return;
    }
    u64 rest = static_cast<u64>(line), place;
    rest = divmod(rest, static_cast<u64>(p.out_extent[1]), place), at[1] = static_cast<i64>(place);
    rest = divmod(rest, static_cast<u64>(p.chunks), place), at[2] = static_cast<i64>(place) * W;
    rest = divmod(rest, static_cast<u64>(p.out_extent[0]), place), at[0] = static_cast<i64>(place);
    batch = static_cast<i64>(rest);
  }
};

template <class T, int N, int K> BARACUDA_D void conv_filter_pairs(const ConvPairsParams& p) {
  using A = acc_t<T>;
  constexpr int W = conv_pair_places, SEEN = K == 1 ? W : W + K - 1, half = conv_pair_threads / 2;
  __shared__ A shared[K * N][half];
  const int width = p.width, lanes = p.lanes;
  u64 rest = blockIdx.x, place;
  rest = divmod(rest, static_cast<u64>(div_up(p.pairs, static_cast<i64>(width) * N)), place);
  const i64 pair = (static_cast<i64>(place) * width + static_cast<int>(threadIdx.x) % width) * N;
  const i64 split =
      static_cast<i64>(divmod(rest, static_cast<u64>(div_up(p.runs, static_cast<i64>(p.block_runs))), place));
  const int own = static_cast<int>(threadIdx.x) / width, lane = own % lanes;
  const i64 run = static_cast<i64>(place) * p.block_runs + own / lanes;
  const bool exists = own / lanes < p.block_runs && pair < p.pairs && run < p.runs;
  Vec<A, N> sums[K] = {};
  if (exists) {
    u64 c, o;
    rest = divmod(static_cast<u64>(pair), static_cast<u64>(p.channels), c);
    const i64 group = static_cast<i64>(divmod(rest, static_cast<u64>(p.cols), o));
    const T* const x = static_cast<const T*>(p.x) + group * p.x_steps[1] + static_cast<i64>(c) * p.x_steps[2];
    const T* const y = static_cast<const T*>(p.y) + group * p.y_steps[1] + static_cast<i64>(o) * p.y_steps[2];
    const ConvTap tap(p, run * K);
    const i64 x_step = p.x_steps[5], y_step = p.y_steps[5], stride = K == 1 ? p.stride[2] : 1;
    const i64 last = min<i64>(p.lines, (split + 1) * p.split_lines);
    for (i64 n = split * p.split_lines + lane; n < last; n += lanes) {
      const PairLine<W> line(p, n);
      const i64 in0 = line.at[0] * p.stride[0] - p.padding[0] + tap.at[0] * p.dilation[0];
      const i64 in1 = line.at[1] * p.stride[1] - p.padding[1] + tap.at[1] * p.dilation[1];
      const i64 in2 = line.at[2] * stride - p.padding[2] + tap.at[2] * p.dilation[2];
      const bool there = in0 >= 0 && in0 < p.in_extent[0] && in1 >= 0 && in1 < p.in_extent[1];
      const int left = static_cast<int>(min<i64>(W, p.out_extent[2] - line.at[2]));
      const i64 end = there ? p.in_extent[2] : 0;
      const int low = static_cast<int>(max<i64>(0, min<i64>(-in2, SEEN)));
      const int high = static_cast<int>(max<i64>(0, min<i64>(end - in2, SEEN)));
      const T* from =
          y + line.batch * p.y_steps[0] + line.at[0] * p.y_steps[3] + line.at[1] * p.y_steps[4] + line.at[2] * y_step;
      Vec<T, N> by[W], seen[SEEN];
#pragma unroll
      for (int q = 0; q < W; ++q, from += y_step) by[q] = q < left ? load<N>(from) : Vec<T, N>{};
      from = x + line.batch * p.x_steps[0] + in0 * p.x_steps[3] + in1 * p.x_steps[4] + in2 * x_step;
#pragma unroll
      for (int q = 0; q < SEEN; ++q, from += stride * x_step) {
        const i64 at = in2 + q * stride;
        const bool inside = K == 1 ? at >= 0 && at < end : q >= low && q < high;
        seen[q] = inside ? load<N>(from) : Vec<T, N>{};
      }
      Vec<A, N> wide[SEEN];
#pragma unroll
      for (int q = 0; q < SEEN; ++q) wide[q] = to_acc(seen[q]);
#pragma unroll
      for (int q = 0; q < W; ++q) {
        if (q >= left) break;  // a place that is none may see x, infinite too
        const auto slope = to_acc(by[q]);
#pragma unroll
        for (int k = 0; k < K; ++k)
#pragma unroll
          for (int i = 0; i < N; ++i) sums[k][i] = math::fma(slope[i], wide[q + k][i], sums[k][i]);
      }
    }
  }
  // The upper half of the lanes leave their sums to the lower one.
  const int slot = (own / lanes * lanes / 2 + lane) * width + static_cast<int>(threadIdx.x) % width;
  for (int upper = lanes / 2; upper > 0; upper /= 2) {
    __syncthreads();
    if (exists && lane >= upper && lane < 2 * upper) {
#pragma unroll
      for (int k = 0; k < K; ++k)
#pragma unroll
        for (int i = 0; i < N; ++i) shared[k * N + i][slot - upper * width] = sums[k][i];
    }
    __syncthreads();
    if (exists && lane < upper) {
#pragma unroll
      for (int k = 0; k < K; ++k)
#pragma unroll
        for (int i = 0; i < N; ++i) sums[k][i] += shared[k * N + i][slot];
    }
  }
  if (!exists || lane != 0) return;
#pragma unroll
  for (int k = 0; k < K; ++k) {
    store(static_cast<A*>(p.parts) + (split * p.taps + run * K + k) * p.pairs + pair, sums[k]);
  }
}

}  // namespace baracuda
