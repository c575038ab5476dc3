// implicit   a convolution as a product of its windows, never stored, and the filter (conv/window.cuh has the formula).
//
// k runs over (the window's axes, channels), in that order, each sum one chain: its bits depend on neither the batch nor
// the tile. conv_mma: x channels last in pieces of 16 bytes, the filter as [group][output][k], on tensor cores. conv_simt: any
// strides, fused multiply-adds in a tile of 64 x 64; conv_direct: the same sums where a group has few outputs, a thread
// each. conv_depthwise: those
// where a group is one channel.
#include "conv/tile.cuh"
#include "gemm/raster.cuh"

namespace baracuda {

template <class T, int SIZE, bool BLOCKS, class E = ConvEpilogue<T>> BARACUDA_D void conv_mma(const ConvParams& p) {
  using Tile = ConvTile<T, true, SIZE>;
  BARACUDA_DYNAMIC_SMEM(T, ring);
  const Raster task(static_cast<i64>(blockIdx.x), div_up(p.rows, static_cast<i64>(SIZE)),
                    div_up(p.cols, static_cast<i64>(SIZE)));
  Tile tile;
  {
    const i64 k = p.taps * p.channels;
    WindowRows<T, SIZE, Tile::depth> a(p, task.batch, task.m * SIZE);
    const T* const w = static_cast<const T*>(p.w) + task.batch * p.w_steps[0];
    typename Tile::Base::Right b(w, p.w_steps[1], 1, task.n * SIZE, p.cols, true);
    tile.add(ring, a, b, k);
  }
  const auto put = [&](int row, int col, const Vec<float, 8>& sum) {
    const i64 m = task.m * SIZE + row, n = task.n * SIZE + col;
    if (m >= p.rows || n >= p.cols) return;
    if constexpr (BLOCKS) conv_put_block<E, 8>(p, task.batch, m, n, p.cols - n, sum);
    else conv_put<E, 8>(p, task.batch, m, n, p.cols - n, sum);
  };
  if (p.channels_inner) tile.finish(ring, [&](int row, int col, const auto& sum, const auto&) { put(row, col, sum); });
  else tile.finish_down(ring, put);
}

template <class T, class E = ConvEpilogue<T>> BARACUDA_D void conv_simt(const ConvParams& p) {
  using A = acc_t<T>;
  constexpr int tile = 64, depth = 16, threads = 256, each = tile * depth / threads;
  __shared__ A sa[depth][tile + 1], sb[depth][tile + 1];
  const Raster task(static_cast<i64>(blockIdx.x), div_up(p.rows, static_cast<i64>(tile)),
                    div_up(p.cols, static_cast<i64>(tile)));
  const i64 m0 = task.m * tile, n0 = task.n * tile, group = task.batch;
  const int own = threadIdx.x % tile, first = threadIdx.x / tile, tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  const ConvRow row(p, min<i64>(m0 + own, p.rows - 1));
  const T* const x = static_cast<const T*>(p.x) + row.batch * p.x_steps[0] + group * p.x_steps[1];
  const T* const w = static_cast<const T*>(p.w) + p.w_start + group * p.w_steps[0];
  A acc[4][4] = {};
  ConvTap tap(p, 0);
  for (i64 t = 0; t < p.taps; ++t, tap.next(p)) {
    i64 offset;
    const bool there = conv_find(p, row, tap, offset) && m0 + own < p.rows;
    const T* const filter = w + tap.offset(p.w_steps) + (n0 + own) * p.w_steps[1];
    for (i64 c = 0; c < p.channels; c += depth) {
#pragma unroll
      for (int i = 0; i < each; ++i) {
        const int k = first + i * (threads / tile);
        const bool exists = c + k < p.channels;
        sa[k][own] = there && exists ? to_acc(x[offset + (c + k) * p.x_steps[2]]) : A(0);
        sb[k][own] = exists && n0 + own < p.cols ? to_acc(filter[(c + k) * p.w_steps[2]]) : A(0);
      }
      __syncthreads();
      const int count = static_cast<int>(min<i64>(depth, p.channels - c));
      for (int k = 0; k < count; ++k) {
        A ra[4], rb[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) ra[i] = sa[k][tx + 16 * i], rb[i] = sb[k][ty + 16 * i];
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int j = 0; j < 4; ++j) acc[i][j] = math::fma(ra[i], rb[j], acc[i][j]);
      }
      __syncthreads();
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const i64 m = m0 + tx + 16 * i, n = n0 + ty + 16 * j;
      const Vec<A, 1> sum{{acc[i][j]}};
      if (m < p.rows && n < p.cols) conv_put<E, 1>(p, group, m, n, 1, sum);
    }
}

template <class T, class E = ConvEpilogue<T>> BARACUDA_D void conv_direct(const ConvParams& p) {
  using A = acc_t<T>;
  const i64 index = thread_index(), outputs = p.groups * p.cols;
  if (index >= p.rows * outputs) return;
  u64 rest;
  const i64 quotient =
      static_cast<i64>(divmod(static_cast<u64>(index), static_cast<u64>(p.channels_inner ? outputs : p.rows), rest));
  const i64 m = p.channels_inner ? quotient : static_cast<i64>(rest);
  u64 n;
  const i64 output = p.channels_inner ? static_cast<i64>(rest) : quotient;
  const i64 group = static_cast<i64>(divmod(static_cast<u64>(output), static_cast<u64>(p.cols), n));
  const ConvRow row(p, m);
  const T* const x = static_cast<const T*>(p.x) + row.batch * p.x_steps[0] + group * p.x_steps[1];
  const T* const w = static_cast<const T*>(p.w) + p.w_start + group * p.w_steps[0] + static_cast<i64>(n) * p.w_steps[1];
  A sum = A(0);
  ConvTap tap(p, 0);
  for (i64 t = 0; t < p.taps; ++t, tap.next(p)) {
    i64 offset;
    const bool there = conv_find(p, row, tap, offset);
    const T* const filter = w + tap.offset(p.w_steps);
    for (i64 c = 0; c < p.channels; ++c) {
      sum = math::fma(there ? to_acc(x[offset + c * p.x_steps[2]]) : A(0), to_acc(filter[c * p.w_steps[2]]), sum);
    }
  }
  conv_put<E, 1>(p, group, m, static_cast<i64>(n), 1, Vec<A, 1>{{sum}});
}

// Groups of one channel and one output: a thread has N neighbouring groups, where these lie together, and some places in a row
// of the result. K: the window's last extent, where windows are neighbours: then each element is read once for a row.
template <class T, int N, int K, class E = ConvEpilogue<T>> BARACUDA_D void conv_depthwise(const ConvParams& p) {
  using A = acc_t<T>;
  constexpr int W = N == 1 ? conv_places_alone : conv_places_together;
  const i64 index = thread_index(), vectors = p.groups / N, chunks = div_up(p.out_extent[2], static_cast<i64>(W));
  const i64 lines = p.rows / p.out_extent[2] * chunks;
  if (index >= lines * vectors) return;
  u64 rest, chunk, place;
  const i64 quotient =
      static_cast<i64>(divmod(static_cast<u64>(index), static_cast<u64>(p.channels_inner ? vectors : lines), rest));
  const i64 line = p.channels_inner ? quotient : static_cast<i64>(rest);
  const i64 group = (p.channels_inner ? static_cast<i64>(rest) : quotient) * N;
  const i64 row = static_cast<i64>(divmod(static_cast<u64>(line), static_cast<u64>(chunks), chunk));
  const int first = static_cast<int>(chunk) * W;
  u64 outer = divmod(static_cast<u64>(row), static_cast<u64>(p.out_extent[1]), place);
  const i64 at1 = static_cast<i64>(place) * p.stride[1] - p.padding[1];
  outer = divmod(outer, static_cast<u64>(p.out_extent[0]), place);
  const i64 at0 = static_cast<i64>(place) * p.stride[0] - p.padding[0];
  const T* const x = static_cast<const T*>(p.x) + static_cast<i64>(outer) * p.x_steps[0] + group * p.x_steps[1];
  const T* const w = static_cast<const T*>(p.w) + p.w_start + group * p.w_steps[0];
  const i64 step = p.x_steps[5], extent = p.in_extent[2], at2 = first * p.stride[2] - p.padding[2];
  const int low = static_cast<int>(max<i64>(0, min<i64>(-at2, W + K)));
  const int high = static_cast<int>(max<i64>(0, min<i64>(extent - at2, W + K)));
  Vec<A, N> acc[W] = {};
  for (int k0 = 0; k0 < p.kernel[0]; ++k0) {
    const i64 in0 = at0 + k0 * p.dilation[0];
    for (int k1 = 0; k1 < p.kernel[1]; ++k1) {
      const i64 in1 = at1 + k1 * p.dilation[1];
      const bool there = in0 >= 0 && in0 < p.in_extent[0] && in1 >= 0 && in1 < p.in_extent[1];
      const T* const from = x + in0 * p.x_steps[3] + in1 * p.x_steps[4];
      const T* const filter = w + k0 * p.w_steps[3] + k1 * p.w_steps[4];
      const auto read = [&](i64 at) {
        return to_acc(there && at >= 0 && at < extent ? load<N>(from + at * step) : Vec<T, N>{});
      };
      const auto add = [&](Vec<A, N>& to, const Vec<A, N>& a, const Vec<A, N>& b) {
#pragma unroll
        for (int c = 0; c < N; ++c) to[c] = math::fma(a[c], b[c], to[c]);
      };
      if constexpr (K == 0) {
        for (int k = 0; k < p.kernel[2]; ++k) {
          const auto by = to_acc(load<N>(filter + k * p.w_steps[5]));
#pragma unroll
          for (int o = 0; o < W; ++o) add(acc[o], read(at2 + o * p.stride[2] + k * p.dilation[2]), by);
        }
      } else {
        Vec<T, N> by[K];
        Vec<A, N> seen[W + K - 1];
        const T* at = filter;
#pragma unroll
        for (int k = 0; k < K; ++k, at += p.w_steps[5]) by[k] = load<N>(at);
        at = from + at2 * step;
#pragma unroll
        for (int q = 0; q < W + K - 1; ++q, at += step) {
          seen[q] = to_acc(there && q >= low && q < high ? load<N>(at) : Vec<T, N>{});
        }
#pragma unroll
        for (int k = 0; k < K; ++k) {
          const auto one = to_acc(by[k]);
#pragma unroll
          for (int o = 0; o < W; ++o) add(acc[o], seen[o + k], one);
        }
      }
    }
  }
#pragma unroll
  for (int o = 0; o < W; ++o) {
    if (first + o < p.out_extent[2]) conv_put<E, N>(p, group, row * p.out_extent[2] + first + o, 0, N, acc[o]);
  }
}

}  // namespace baracuda
