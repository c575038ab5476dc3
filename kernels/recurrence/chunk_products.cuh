#pragma once
// chunk_products    what the kernels share that take linear attention apart into chunks of 64 steps: where a chunk lies,
//                   its decays, and products of tiles by eight warps.
//
// Chunks of all sequences have places in the workspace one after another. A packed sequence n that begins at row b has
// those from b / 64 + n on: sequences before it have no more chunks than that. With four warps to the rows of a matrix of
// 64 and two to its columns, a thread has (row, column) = (16 (warp % 4) + lane / 4 + 8 (e / 2), first + 8 c +
// 2 (lane % 4) + e % 2) of acc[c][e]. Every sum is a chain over k in steps of 16.
#include <baracuda/mma_tile.cuh>
#include "recurrence/recurrence.cuh"

namespace baracuda {
namespace recurrence {
namespace chunked {

constexpr int chunk = 64, width = 64, crew = 256, area = chunk * width, solved_rows = 16;
constexpr float least_log = -110.0f;

// Bound n, clamped to [0, total] and to the largest bound before it. Each warp finds it for itself.
template <class P> BARACUDA_D i64 bound_of(const P& p, i64 n) {
  i64 most = 0;
  for (i64 i = lane_id(); i <= n; i += warp_size) {
    const i64 at = i * p.bound_stride;
    const i64 bound = p.wide_bounds ? static_cast<const i64*>(p.bounds)[at] : static_cast<const i32*>(p.bounds)[at];
    most = max<i64>(most, min<i64>(bound, p.seq_len));
  }
#pragma unroll
  for (int lane = 1; lane < warp_size; lane *= 2) most = max<i64>(most, __shfl_xor_sync(full_warp, most, lane));
  return most;
}

struct Sequence {
  i64 begin, end, place;  // place: of its first chunk
};
template <class P> BARACUDA_D Sequence sequence_of(const P& p, i64 n) {
  if (p.bounds == nullptr) return {0, p.seq_len, n * p.chunks_each};
  const i64 begin = bound_of(p, n);
  return {begin, bound_of(p, n + 1), begin / chunk + n};
}

struct Chunk {
  i64 batch, start;
  int steps;  // 0: the place is nobody's
};
template <class P> BARACUDA_D Chunk chunk_of(const P& p, i64 place) {
  i64 n = place / max<i64>(1, p.chunks_each);
  if (p.bounds != nullptr) {
    i64 end = p.num_states;
    n = 0;
    while (end - n > 1) {
      const i64 middle = (n + end) / 2;
      if (bound_of(p, middle) / chunk + middle <= place) n = middle;
      else end = middle;
    }
  }
  const Sequence own = sequence_of(p, n);
  const i64 start = own.begin + (place - own.place) * chunk;
  const bool there = place >= own.place && start < own.end;
  return {p.bounds == nullptr ? n : 0, start, there ? static_cast<int>(min<i64>(chunk, own.end - start)) : 0};
}

// Logs of decays of a chunk's steps: a lane has those of steps lane and lane + 32. One warp calls it, and what follows.
struct Logs {
  float of[chunk / warp_size];

  template <class P> BARACUDA_D void read(const P& p, i64 batch, i64 start, i64 head, int steps) {
#pragma unroll
    for (int half = 0; half < chunk / warp_size; ++half) {
      const int step = half * warp_size + lane_id();
      of[half] = 0.0f;
      if (p.g != nullptr && step < steps) of[half] = *row_at<float>(p.g, p.stride[7], batch, start + step, head);
    }
  }
  // Their sums from the chunk's first step on; 0 without decays.
  BARACUDA_D void sum(float* sums) const {
    float before = 0.0f;
#pragma unroll
    for (int half = 0; half < chunk / warp_size; ++half) {
      float x = math::maximum(of[half], least_log);
#pragma unroll
      for (int lane = 1; lane < warp_size; lane *= 2) {
        const float left = __shfl_up_sync(full_warp, x, lane);
        if (lane_id() >= lane) x += left;
      }
      x += before;
      sums[half * warp_size + lane_id()] = x;
      before = __shfl_sync(full_warp, x, warp_size - 1);
    }
  }
};
template <class P> BARACUDA_D void sum_logs(float* sums, const P& p, i64 batch, i64 start, i64 head, int steps) {
  Logs logs;
  logs.read(p, batch, start, head, steps);
  logs.sum(sums);
}
// exp of a log of no more than 0, to about 2^-21 where it is above -8; 0 below 2^-126.
BARACUDA_D float fade(float log) { return math::fast_exp2(log * 1.44269504f); }
// Of a sum of logs; 1 without decays, whose sums are 0.
template <class P> BARACUDA_D float fade_of(const P&, float log) { return fade(log); }

template <class P> BARACUDA_D float beta_of(const P& p, i64 batch, i64 start, i64 head, int step, int steps) {
  return step < steps ? *row_at<float>(p.beta, p.stride[8], batch, start + step, head) : 0.0f;
}
// The rows of an operand from `start` on that a state head reads.
template <class T, class P>
BARACUDA_D const T* rows_for(const P& p, const void* x, const i64 (&stride)[3], i64 heads, i64 batch, i64 start,
                             i64 head) {
  return row_at<T>(x, stride, batch, start, head / (p.num_heads / heads));
}

// 1 / sqrt(sum x^2 + eps) of a row of a tile.
template <int D, class T> BARACUDA_D float norm_factor(const T* tile, int row, float eps) {
  float squares = 0.0f;
#pragma unroll 4
  for (int piece = 0; piece < D / 8; ++piece) {
    const auto x = load<8>(tile + tile::at<D>(row, piece));
#pragma unroll
    for (int e = 0; e < 8; ++e) squares = math::fma(to_acc(x[e]), to_acc(x[e]), squares);
  }
  return 1.0f / math::sqrt(squares + eps);
}
template <int D, class T, class P> BARACUDA_D float norm_of(const P& p, const T* tile, int row) {
  return p.normalised ? norm_factor<D>(tile, row, static_cast<float>(p.eps)) : 1.0f;
}

template <int D, class T> BARACUDA_D float element_of(const T* tile, int row, int col) {
  return to_acc(tile[tile::at<D>(row, col / 8) + col % 8]);
}

// The same tile from another place on.
template <int D, bool ALONG> BARACUDA_D tile::Reader<D, ALONG> moved(tile::Reader<D, ALONG> from, int row, int col) {
  from.address = from.block(row, col);
  return from;
}
template <int N> BARACUDA_D void clear(float (&acc)[N][4]) {
#pragma unroll
  for (int n = 0; n < N; ++n) acc[n][0] = acc[n][1] = acc[n][2] = acc[n][3] = 0.0f;
}

// acc[16][8 N] += x y over k < K. x: 16 rows of a tile, or with ALONG 16 columns of it, transposed; y: columns of a tile
// of K rows, or with ALONG rows of one of K columns, transposed.
template <class T, int K, int N, int DX, bool XT, int DY, bool YT>
BARACUDA_D void multiply(float (&acc)[N][4], const tile::Reader<DX, XT>& x, const tile::Reader<DY, YT>& y) {
#pragma unroll
  for (int k = 0; k < K; k += 16) {
    u32 a[4];
    if constexpr (XT) x.read_transposed(a, k, 0);
    else x.read(a, 0, k);
#pragma unroll
    for (int n = 0; n < N; n += 2) {
      u32 b[4];
      if constexpr (YT) y.read(b, 8 * n, k);
      else y.read_transposed(b, k, 8 * n);
      mma_m16n8k16<T>(acc[n], a, {b[0], b[1]});
      mma_m16n8k16<T>(acc[n + 1], a, {b[2], b[3]});
    }
  }
}
// visit(element, row, column) of a warp's part of a matrix.
template <int N, class F> BARACUDA_D void each(float (&acc)[N][4], int row, int col, F&& visit) {
#pragma unroll
  for (int c = 0; c < N; ++c) {
#pragma unroll
    for (int e = 0; e < 4; ++e)
      visit(acc[c][e], row + lane_id() / 4 + e / 2 * 8, col + 8 * c + lane_id() % 4 * 2 + e % 2);
  }
}
template <int D, class T, int N> BARACUDA_D void put_all(T* to, int row, int col, const float (&acc)[N][4]) {
#pragma unroll
  for (int c = 0; c < N; ++c) tile::put<D>(to, row, col + 8 * c, acc[c], 1.0f, 1.0f);
}

// to[row][col] = from[row][col] factor(row), tiles of 64 columns. All threads of the block call it.
template <class T, class F> BARACUDA_D void scale_rows(T* to, const T* from, F&& factor) {
  for (int i = static_cast<int>(threadIdx.x); i < area / 8; i += crew) {
    const int row = i / 8, at = tile::at<64>(row, i % 8);
    auto x = load<8>(from + at);
    const float by = factor(row);
#pragma unroll
    for (int e = 0; e < 8; ++e) x[e] = from_acc<T>(to_acc(x[e]) * by);
    store(to + at, x);
  }
}

// A warp's part of a state: 16 rows, of 128 all columns, of 64 half of them.
template <int DK> struct Part {
  static constexpr int N = DK / 16;
  float x[N][4];
  static BARACUDA_D int warp() { return static_cast<int>(threadIdx.x) / warp_size; }
  static BARACUDA_D int row() { return 16 * (warp() % (DK / 16)); }
  static BARACUDA_D int col() { return 32 * (warp() / (DK / 16)); }

  BARACUDA_D void read(const float* from, i64 stride, int rows, int cols) {
    each(x, row(), col(),
         [&](float& x, int r, int c) { x = from != nullptr && r < rows && c < cols ? from[r * stride + c] : 0.0f; });
  }
  BARACUDA_D void write(float* to, i64 stride, int rows, int cols) {
    each(x, row(), col(), [&](float& x, int r, int c) {
      if (r < rows && c < cols) to[r * stride + c] = x;
    });
  }
  BARACUDA_D void scale(float by) {
#pragma unroll
    for (int n = 0; n < N; ++n) x[n][0] *= by, x[n][1] *= by, x[n][2] *= by, x[n][3] *= by;
  }
};

}  // namespace chunked
}  // namespace recurrence
}  // namespace baracuda
