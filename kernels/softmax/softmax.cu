// softmax    y = exp(x - max) / sum(exp(x - max));   LOG: y = (x - max) - log(sum(exp(x - max)))
//
// softmax_rows: a group of G threads holds a row in registers, K chunks a thread, R rows at once: one read.
// softmax_long: a block for each row, an online softmax, then the row again: its first slabs from shared memory, the
// others from L2, the newest first. Sums are a tree within a chunk, in order over a thread's chunks, then a tree over
// the threads.
#include "softmax/row_groups.cuh"

namespace baracuda {

// R rows of one group, the first `valid` of which exist.
template <class T, bool LOG, int G, int K, int R, int MODE>
BARACUDA_D void softmax_group(const T* const (&x)[R], i64 x_step, T* const (&y)[R], i64 y_step, int cols, int valid) {
  using A = acc_t<T>;
  constexpr int V = row_vec<T>;
  const int lane = static_cast<int>(threadIdx.x) % G;
  const T low = cast<T>(-numeric<A>::infinity());
  RowChunk<T> raw[R][K];
#pragma unroll
  for (int r = 0; r < R; ++r) {
#pragma unroll
    for (int j = 0; j < K; ++j) {
      read_chunk<MODE>(raw[r][j], x[r], x_step, r < valid ? (j * G + lane) * V : cols, cols, low);
    }
  }
  Vec<A, V> v[R][K];
  A scale[R];
#pragma unroll
  for (int r = 0; r < R; ++r) {
    scale[r] = row_reduce<Max, G>(chunk_max<T>(raw[r], [&](int j) { return (j * G + lane) * V < cols; }));
  }
#pragma unroll
  for (int r = 0; r < R; ++r) {
    A sum = 0;
#pragma unroll
    for (int j = 0; j < K; ++j) {
      if ((j * G + lane) * V >= cols) continue;
      v[r][j] = unpack_chunk(raw[r][j]);
      Vec<A, V> e;
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const A z = v[r][j][k] - scale[r];
        e[k] = row_exp<T>(z);
        v[r][j][k] = LOG ? z : e[k];
      }
      sum += tree_reduce<Sum>(e);
    }
    sum = row_reduce<Sum, G>(sum);
    scale[r] = LOG ? math::log(sum) : A(1) / sum;
  }
#pragma unroll
  for (int r = 0; r < R; ++r) {
#pragma unroll
    for (int j = 0; j < K; ++j) {
#pragma unroll
      for (int k = 0; k < V; ++k) v[r][j][k] = LOG ? v[r][j][k] - scale[r] : v[r][j][k] * scale[r];
      write_chunk<MODE>(y[r], y_step, r < valid ? (j * G + lane) * V : cols, cols, from_acc<T>(v[r][j]));
    }
  }
}

template <class T, bool LOG, int G, int K, int R, int MODE> BARACUDA_D void softmax_rows(const SoftmaxParams& p) {
  constexpr int THREADS = group_block(G), groups = THREADS / G;
  const int group = static_cast<int>(threadIdx.x) / G, cols = static_cast<int>(p.cols);
  const T* x[R];
  T* y[R];
  if constexpr (MODE == group_tile) {
    BARACUDA_DYNAMIC_SMEM(T, tile);
    const TileRows rows = tile_rows(p);
    i64 at[2];
    row_offsets(p, rows.first, at);
    const T low = cast<T>(-numeric<acc_t<T>>::infinity());
    tile_load<THREADS>(p, static_cast<const T*>(p.x) + at[0], p.step[0], tile, rows.count, low);
    __syncthreads();
    for (int first = 0; first < rows.count; first += groups * R) {
#pragma unroll
      for (int r = 0; r < R; ++r) x[r] = y[r] = tile + (first + group * R + r) * p.pitch;
      softmax_group<T, LOG, G, K, R, MODE>(x, 1, y, 1, cols, rows.count - first - group * R);
    }
    __syncthreads();
    tile_store<THREADS>(p, static_cast<T*>(p.y) + at[1], p.step[1], tile, rows.count);
  } else {
    const i64 row = (static_cast<i64>(blockIdx.x) * groups + group) * R;
    const int valid = static_cast<int>(min<i64>(R, p.rows - row));
#pragma unroll
    for (int r = 0; r < R; ++r) {
      i64 at[2];
      row_offsets(p, row + r, at);
      x[r] = static_cast<const T*>(p.x) + at[0];
      y[r] = static_cast<T*>(p.y) + at[1];
    }
    softmax_group<T, LOG, G, K, R, MODE>(x, p.step[0], y, p.step[1], cols, valid);
  }
}

template <class T, bool LOG, int MODE> BARACUDA_D void softmax_long(const SoftmaxParams& p) {
  using A = acc_t<T>;
  constexpr int G = long_group, K = long_chunks, V = row_vec<T>;
  BARACUDA_DYNAMIC_SMEM(RowChunk<T>, held);
  const int lane = threadIdx.x;
  const i64 cols = p.cols;
  const int slabs = static_cast<int>(div_up<i64>(cols, G * V)), stage = p.stage;
  i64 at[2];
  row_offsets(p, blockIdx.x, at);
  const T* x = static_cast<const T*>(p.x) + at[0];
  T* y = static_cast<T*>(p.y) + at[1];
  const T low = cast<T>(-numeric<A>::infinity());
  auto column = [&](int slab) { return (static_cast<i64>(slab) * G + lane) * V; };

  OnlineRow<T> online;
  for (int start = 0; start < slabs; start += K) {
    const int first = forgotten(start);
    RowChunk<T> v[K];
#pragma unroll
    for (int j = 0; j < K; ++j) read_chunk<MODE>(v[j], x, p.step[0], column(first + j), cols, low);
#pragma unroll
    for (int j = 0; j < K; ++j) {
      if (first + j < stage) copy_chunk(held[(first + j) * G + lane], v[j]);
    }
    online.add(v, [&](int j) { return column(first + j) < cols; });
  }
  const MaxSum<A> row = online.finish();
  const A scale = LOG ? math::log(row.sum) : A(1) / row.sum;
  for (int start = (slabs - 1) / K * K; start >= 0; start -= K) {
    const int first = forgotten(start);
    RowChunk<T> v[K];
#pragma unroll
    for (int j = 0; j < K; ++j) {
      if (first + j < stage) copy_chunk(v[j], held[(first + j) * G + lane]);
      else read_chunk<MODE>(v[j], x, p.step[0], column(first + j), cols, low);
    }
#pragma unroll
    for (int j = 0; j < K; ++j) {
      auto out = unpack_chunk(v[j]);
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const A z = out[k] - row.max;
        out[k] = LOG ? z - scale : row_exp<T>(z) * scale;
      }
      write_chunk<MODE>(y, p.step[1], column(first + j), cols, from_acc<T>(out));
    }
  }
}

}  // namespace baracuda
