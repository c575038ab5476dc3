// softmax_backward    dx = y * (dy - sum(y * dy));   LOG: dx = dy - exp(y) * sum(dy)
//
// Schedules and order of the sum as in softmax.cu, with two inputs.
#include "softmax/row_groups.cuh"

namespace baracuda {

// Sum of a chunk's terms, as a tree.
template <bool LOG, class T> BARACUDA_D acc_t<T> backward_sum(const RowChunk<T>& dy, const RowChunk<T>& y) {
  auto term = unpack_chunk(dy);
  if constexpr (!LOG) {
    const auto out = unpack_chunk(y);
#pragma unroll
    for (int k = 0; k < row_vec<T>; ++k) term[k] *= out[k];
  }
  return tree_reduce<Sum>(term);
}

template <bool LOG, class T>
BARACUDA_D RowChunk<T> backward_chunk(const RowChunk<T>& dy, const RowChunk<T>& y, acc_t<T> sum) {
  auto grad = unpack_chunk(dy);
  const auto out = unpack_chunk(y);
#pragma unroll
  for (int k = 0; k < row_vec<T>; ++k) {
    grad[k] = LOG ? math::fma(-row_exp<T>(out[k]), sum, grad[k]) : out[k] * (grad[k] - sum);
  }
  return from_acc<T>(grad);
}

template <class T, bool LOG, int G, int K, int R, int MODE>
BARACUDA_D void softmax_backward_group(const T* const (&dy)[R], const T* const (&y)[R], T* const (&dx)[R], i64 dy_step,
                                       i64 y_step, i64 dx_step, int cols, int valid) {
  using A = acc_t<T>;
  const int lane = static_cast<int>(threadIdx.x) % G;
  auto column = [&](int r, int j) { return r < valid ? (j * G + lane) * row_vec<T> : cols; };
  RowChunk<T> grad[R][K], out[R][K];
#pragma unroll
  for (int r = 0; r < R; ++r) {
#pragma unroll
    for (int j = 0; j < K; ++j) {
      read_chunk<MODE>(grad[r][j], dy[r], dy_step, column(r, j), cols, cast<T>(0.0f));
      read_chunk<MODE>(out[r][j], y[r], y_step, column(r, j), cols, cast<T>(0.0f));
    }
  }
  A sum[R];
#pragma unroll
  for (int r = 0; r < R; ++r) {
    sum[r] = 0;
#pragma unroll
    for (int j = 0; j < K; ++j) {
      if (column(r, j) < cols) sum[r] += backward_sum<LOG>(grad[r][j], out[r][j]);
    }
  }
#pragma unroll
  for (int r = 0; r < R; ++r) sum[r] = row_reduce<Sum, G>(sum[r]);
#pragma unroll
  for (int r = 0; r < R; ++r) {
#pragma unroll
    for (int j = 0; j < K; ++j) {
      forget(grad[r][j]);
      forget(out[r][j]);
      write_chunk<MODE>(dx[r], dx_step, column(r, j), cols, backward_chunk<LOG>(grad[r][j], out[r][j], sum[r]));
    }
  }
}

template <class T, bool LOG, int G, int K, int R, int MODE>
BARACUDA_D void softmax_backward_rows(const SoftmaxBackwardParams& p) {
  constexpr int THREADS = group_block(G), groups = THREADS / G;
  const int group = static_cast<int>(threadIdx.x) / G, cols = static_cast<int>(p.cols);
  const T *dy[R], *y[R];
  T* dx[R];
  if constexpr (MODE == group_tile) {
    BARACUDA_DYNAMIC_SMEM(T, grads);
    T* const outs = grads + p.tile * p.pitch;
    const TileRows rows = tile_rows(p);
    i64 at[3];
    row_offsets(p, rows.first, at);
    tile_load<THREADS>(p, static_cast<const T*>(p.dy) + at[0], p.step[0], grads, rows.count, cast<T>(0.0f));
    tile_load<THREADS>(p, static_cast<const T*>(p.y) + at[1], p.step[1], outs, rows.count, cast<T>(0.0f));
    __syncthreads();
    for (int first = 0; first < rows.count; first += groups * R) {
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const i64 shift = (first + group * R + r) * p.pitch;
        dy[r] = dx[r] = grads + shift;
        y[r] = outs + shift;
      }
      softmax_backward_group<T, LOG, G, K, R, MODE>(dy, y, dx, 1, 1, 1, cols, rows.count - first - group * R);
    }
    __syncthreads();
    tile_store<THREADS>(p, static_cast<T*>(p.dx) + at[2], p.step[2], grads, rows.count);
  } else {
    const i64 row = (static_cast<i64>(blockIdx.x) * groups + group) * R;
    const int valid = static_cast<int>(min<i64>(R, p.rows - row));
#pragma unroll
    for (int r = 0; r < R; ++r) {
      i64 at[3];
      row_offsets(p, row + r, at);
      dy[r] = static_cast<const T*>(p.dy) + at[0];
      y[r] = static_cast<const T*>(p.y) + at[1];
      dx[r] = static_cast<T*>(p.dx) + at[2];
    }
    softmax_backward_group<T, LOG, G, K, R, MODE>(dy, y, dx, p.step[0], p.step[1], p.step[2], cols, valid);
  }
}

template <class T, bool LOG, int MODE> BARACUDA_D void softmax_backward_long(const SoftmaxBackwardParams& p) {
  using A = acc_t<T>;
  constexpr int G = long_group, K = long_chunks / 2, V = row_vec<T>;  // two inputs
  BARACUDA_DYNAMIC_SMEM(RowChunk<T>, held);
  const int lane = threadIdx.x;
  const i64 cols = p.cols;
  const int slabs = static_cast<int>(div_up<i64>(cols, G * V)), stage = p.stage;
  i64 at[3];
  row_offsets(p, blockIdx.x, at);
  const T* dy = static_cast<const T*>(p.dy) + at[0];
  const T* y = static_cast<const T*>(p.y) + at[1];
  T* dx = static_cast<T*>(p.dx) + at[2];
  auto column = [&](int slab) { return (static_cast<i64>(slab) * G + lane) * V; };

  RowChunk<T> grad[K], out[K];
  A sum = 0;
  for (int start = 0; start < slabs; start += K) {
    const int first = forgotten(start);
#pragma unroll
    for (int j = 0; j < K; ++j) {
      read_chunk<MODE>(grad[j], dy, p.step[0], column(first + j), cols, cast<T>(0.0f));
      read_chunk<MODE>(out[j], y, p.step[1], column(first + j), cols, cast<T>(0.0f));
    }
#pragma unroll
    for (int j = 0; j < K; ++j) {
      if (first + j < stage) {
        copy_chunk(held[(2 * (first + j)) * G + lane], grad[j]);
        copy_chunk(held[(2 * (first + j) + 1) * G + lane], out[j]);
      }
      sum += backward_sum<LOG>(grad[j], out[j]);
    }
  }
  sum = block_reduce<Sum, G>(sum);
  for (int start = (slabs - 1) / K * K; start >= 0; start -= K) {
    const int first = forgotten(start);
#pragma unroll
    for (int j = 0; j < K; ++j) {
      if (first + j < stage) {
        copy_chunk(grad[j], held[(2 * (first + j)) * G + lane]);
        copy_chunk(out[j], held[(2 * (first + j) + 1) * G + lane]);
      } else {
        read_chunk<MODE>(grad[j], dy, p.step[0], column(first + j), cols, cast<T>(0.0f));
        read_chunk<MODE>(out[j], y, p.step[1], column(first + j), cols, cast<T>(0.0f));
      }
    }
#pragma unroll
    for (int j = 0; j < K; ++j) {
      write_chunk<MODE>(dx, p.step[2], column(first + j), cols, backward_chunk<LOG>(grad[j], out[j], sum));
    }
  }
}

}  // namespace baracuda
