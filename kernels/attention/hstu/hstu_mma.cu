// hstu_mma    hstu_attention and its gradients on tensor cores; formulas and rows as in hstu_simt.cu.
//
// A block of four warps has 64 rows of one head, a warp 16 of them, and walks tiles of 64 keys; for dk and dv it has 64 keys
// and walks tiles of 32 rows, scores transposed, so that weights and ds in registers are left operands. There is no maximum
// and no sum of weights, so nothing is scaled again. The order of every sum is fixed by D and by where tiles start.
#include "attention/dense/flash_sdpa_backward_mma.cu"
#include "attention/flash.cuh"
#include "attention/hstu/hstu.cuh"

namespace baracuda {
namespace attention {

constexpr int hstu_tile = 64, hstu_rows_of_step = 32, hstu_threads = 128;

template <int ROWS, int D, class T>
BARACUDA_D void load_tile(T* tile, const void* x, const i64 (&stride)[2], i64 row, u32 head, i64 total, int cols,
                          bool wide) {
  const int rows = static_cast<int>(min<i64>(ROWS, total - row));
  tile::copy<ROWS, D, hstu_threads>(tile, head_row<T>(x, stride, row, head), stride[0], rows, cols, wide);
}
// What a lane's two rows see.
template <class P> BARACUDA_D void keys_of_rows(RowKeys (&keys)[2], const P& p, i64 row0) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const i64 row = row0 + 8 * half + lane_id() / 4;
    keys[half] = row < p.total ? rows_keys(p)[row] : RowKeys{0, 0};
  }
}

}  // namespace attention

// BACKWARD: dq in place of y.
template <class T, int D, bool BACKWARD, class P> BARACUDA_D void hstu_mma(const P& p) {
  using namespace attention;
  constexpr int N = hstu_tile;
  BARACUDA_DYNAMIC_SMEM(T, queries);  // [N][D], at the end the outputs
  T* const keys = queries + N * D;    // [N][D]
  T* const values = keys + N * D;     // [N][D]
  T* const grads = values + N * D;    // [N][D]: dy, in the backward
  const u32 head = blockIdx.x % p.num_heads;
  const i64 first = static_cast<i64>(blockIdx.x / p.num_heads) * N, last = min<i64>(first + N, p.total) - 1;
  const int row0 = static_cast<int>(threadIdx.x) / warp_size * 16;
  load_tile<N, D>(queries, p.q, p.stride[0], first, head, p.total, p.d_k, p.wide & 1);
  if constexpr (BACKWARD) load_tile<N, D>(grads, p.dy, p.stride[3], first, head, p.total, p.d_v, p.wide & 8);
  cp_async_commit();
  RowKeys own[2];
  keys_of_rows(own, p, first + row0);
  const tile::Reader<D, false> query(queries + row0 * D), grad(grads + row0 * D), key(keys), value(values);
  const tile::Reader<D, true> key_row(keys), value_row(values);
  const float scale = static_cast<float>(p.scale);
  float acc[1][D / 8][4] = {};
  const i64 end = rows_keys(p)[last].high;
#pragma unroll 1
  for (i64 k0 = rows_keys(p)[first].low; k0 < end; k0 += N) {
    load_tile<N, D>(keys, p.k, p.stride[1], k0, head, p.total, p.d_k, p.wide & 2);
    load_tile<N, D>(values, p.v, p.stride[2], k0, head, p.total, p.d_v, p.wide & 4);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
    float s[1][N / 8][4], dp[1][N / 8][4];
    score<T, D, 1, N>(s, query, key_row, 0);
    if constexpr (BACKWARD) score<T, D, 1, N>(dp, grad, value_row, 0);
#pragma unroll
    for (int n = 0; n < N / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const Silu<float> silu(s[0][n][e] * scale);
        s[0][n][e] = BACKWARD ? dp[0][n][e] * silu.slope : silu.value;
        if (!own[e / 2].sees(k0 + 8 * n + lane_id() % 4 * 2 + e % 2)) s[0][n][e] = 0.0f;
      }
    }
    u32 x[1][N / 16][4];
    to_fragments<T>(x[0], s[0]);
    multiply<T, D, 1, N>(acc, x, BACKWARD ? key : value, 0);
    __syncthreads();  // all have read the tile
  }
  cp_async_wait<0>();
  __syncthreads();  // other threads' copies of q must not meet the outputs where no tile was visited
  const float factor = static_cast<float>(BACKWARD ? p.scale * p.share : p.share);
  T* const mine = queries + row0 * D;
#pragma unroll
  for (int n = 0; n < D / 8; ++n) tile::put<D>(mine, 0, 8 * n, acc[0][n], factor, factor);
  __syncwarp();
  const int rows = static_cast<int>(last - first) + 1 - row0, cols = BACKWARD ? p.d_k : p.d_v;
  const i64(&stride)[2] = p.stride[BACKWARD ? 4 : 3];
  void* const out = [&] {
    if constexpr (BACKWARD) return p.dq;
    else return p.y;
  }();
  T* const to = head_row<T>(out, stride, first + row0, head);
  tile::copy_out<16, D, warp_size>(to, stride[0], mine, lane_id(), rows, cols, p.wide & (BACKWARD ? 16 : 8));
}

template <class T, int D, class P> BARACUDA_D void hstu_dkv(const P& p) {
  using namespace attention;
  constexpr int N = hstu_tile, ROWS = hstu_rows_of_step;
  constexpr u32 SIZE = sizeof(T);
  BARACUDA_DYNAMIC_SMEM(T, keys);       // [N][D]
  T* const values = keys + N * D;       // [N][D]
  T* const queries = values + N * D;    // [ROWS][D]
  T* const grads = queries + ROWS * D;  // [ROWS][D]: dy
  __shared__ RowKeys row_keys[ROWS];
  const u32 head = blockIdx.x % p.num_heads;
  const i64 first = static_cast<i64>(blockIdx.x / p.num_heads) * N, last = min<i64>(first + N, p.total) - 1;
  const int key0 = static_cast<int>(threadIdx.x) / warp_size * 16;
  load_tile<N, D>(keys, p.k, p.stride[1], first, head, p.total, p.d_k, p.wide & 2);
  load_tile<N, D>(values, p.v, p.stride[2], first, head, p.total, p.d_v, p.wide & 4);
  cp_async_commit();
  const tile::Reader<D, false> mine(keys + key0 * D), query(queries);
  const tile::Reader<D, true> query_row(queries);
  constexpr u32 to_values = SIZE * N * D, to_grads = SIZE * ROWS * D;
  const float scale = static_cast<float>(p.scale);
  float dk[1][D / 8][4] = {}, dv[1][D / 8][4] = {};
  const i64 end = first_row<false>(p, last);
#pragma unroll 1
  for (i64 i0 = first_row<true>(p, first); i0 < end; i0 += ROWS) {
    load_tile<ROWS, D>(queries, p.q, p.stride[0], i0, head, p.total, p.d_k, p.wide & 1);
    load_tile<ROWS, D>(grads, p.dy, p.stride[3], i0, head, p.total, p.d_v, p.wide & 8);
    cp_async_commit();
    if (threadIdx.x < ROWS) {
      const i64 row = i0 + threadIdx.x;
      row_keys[threadIdx.x] = row < p.total ? rows_keys(p)[row] : RowKeys{0, 0};
    }
    cp_async_wait<0>();
    __syncthreads();
    float s[1][ROWS / 8][4], ds[1][ROWS / 8][4];
    multiply_rows<T>(s, mine, 0, query_row, 0, 0);
    multiply_rows<T>(ds, mine, to_values, query_row, 0, to_grads);
#pragma unroll
    for (int n = 0; n < ROWS / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const Silu<float> silu(s[0][n][e] * scale);
        s[0][n][e] = silu.value, ds[0][n][e] *= silu.slope;
        const RowKeys row = row_keys[8 * n + lane_id() % 4 * 2 + e % 2];
        if (!row.sees(first + key0 + e / 2 * 8 + lane_id() / 4)) s[0][n][e] = ds[0][n][e] = 0.0f;
      }
    }
    u32 p16[1][ROWS / 16][4], ds16[1][ROWS / 16][4];
    to_fragments<T>(p16[0], s[0]);
    to_fragments<T>(ds16[0], ds[0]);
    add_slab<T>(dv, p16, query, 0, to_grads);
    add_slab<T>(dk, ds16, query, 0, 0);
    __syncthreads();  // all have read the rows
  }
  cp_async_wait<0>();
  const int rows = static_cast<int>(last - first) + 1 - key0;
  const auto store = [&](void* out, const i64(&stride)[2], const float(&x)[D / 8][4], float factor, int cols) {
    if (out == nullptr) return;
    T* const to = head_row<T>(out, stride, first + key0, head);
    put_rows<false>({to, to + 8 * stride[0]}, stride[0], rows, cols, x, {factor, factor});
  };
  store(p.dk, p.stride[5], dk[0], static_cast<float>(p.scale * p.share), p.d_k);
  store(p.dv, p.stride[6], dv[0], static_cast<float>(p.share), p.d_v);
}

}  // namespace baracuda
