#pragma once
// channel_chunks    chunks of 64 steps whose decays are of every channel: their sums, and operands times their exp.
#include "recurrence/chunk_products.cuh"

namespace baracuda {
namespace recurrence {
namespace chunked {

// logs[64][DK]: sums of logs of decays from the chunk's first step on, of pieces of steps and then of pieces. All threads
// of the block call it; the caller synchronises.
template <int DK, class P>
BARACUDA_D void sum_channels(float* logs, const P& p, i64 batch, i64 start, i64 head, int steps) {
  constexpr int pieces = crew / DK, length = chunk / pieces;
  const int d = static_cast<int>(threadIdx.x) % DK, piece = static_cast<int>(threadIdx.x) / DK;
  const float* const from = row_at<float>(p.g_channel, p.stride[3], batch, start, head) + d;
  float sum = 0.0f, before = 0.0f;
#pragma unroll 8
  for (int i = 0; i < length; ++i) {
    const int step = piece * length + i;
    if (d < p.d_k && step < steps) sum += math::maximum(from[step * p.stride[3][1]], least_log);
    logs[step * DK + d] = sum;
  }
  __syncthreads();
#pragma unroll
  for (int n = 0; n < pieces - 1; ++n) {
    if (n < piece) before += logs[((n + 1) * length - 1) * DK + d];
  }
  __syncthreads();
#pragma unroll 8
  for (int i = 0; i < length; ++i) logs[(piece * length + i) * DK + d] += before;
}

// to[row][d] = from[row][d] factor(row, d) for rows first ... end - 1 of tiles of DK channels. All threads call it.
template <int DK, class T, class F>
BARACUDA_D void scale_channels(T* to, const T* from, int first, int end, F&& factor) {
  constexpr int pieces = DK / 8;
  for (int i = first * pieces + static_cast<int>(threadIdx.x); i < end * pieces; i += crew) {
    const int row = i / pieces, piece = i % pieces, at = tile::at<DK>(row, piece);
    auto x = load<8>(from + at);
#pragma unroll
    for (int e = 0; e < 8; ++e) x[e] = from_acc<T>(to_acc(x[e]) * factor(row, 8 * piece + e));
    store(to + at, x);
  }
}

}  // namespace chunked
}  // namespace recurrence
}  // namespace baracuda
