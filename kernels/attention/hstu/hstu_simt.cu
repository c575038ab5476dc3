// hstu_simt    the keys that rows see, and hstu_attention without tensor cores: y[i] = sum_j silu(scale q[i] k[j]) v[j] / N.
//
// hstu_bounds: bounds of sequences, clamped to [0, total] and to the largest before. hstu_rows: RowKeys of every row. Then a
// warp has a row, or for dk and dv a key, of one head.
#include "attention/hstu/hstu.cuh"

namespace baracuda {

template <int THREADS, class P> BARACUDA_D void hstu_bounds(const P& p) {
  __shared__ i32 scratch[THREADS / warp_size], highest;
  i32 before = 0;
  for (i64 first = 0; first <= p.batch; first += THREADS) {
    const i64 n = first + threadIdx.x, at = n * p.bound_stride;
    i64 bound = 0;
    if (n <= p.batch)
      bound = p.wide_bounds ? static_cast<const i64*>(p.bounds)[at] : static_cast<const i32*>(p.bounds)[at];
    const i32 own = static_cast<i32>(max<i64>(0, min<i64>(bound, p.total)));
    const i32 settled = max(before, block_scan<Max, THREADS>(own, scratch));
    if (n <= p.batch) static_cast<i32*>(p.settled)[n] = settled;
    if (threadIdx.x == THREADS - 1) highest = settled;
    __syncthreads();
    before = highest;
  }
}

template <int THREADS, class P> BARACUDA_D void hstu_rows(const P& p) {
  using namespace attention;
  const i64 row = static_cast<i64>(blockIdx.x) * THREADS + threadIdx.x;
  if (row >= p.total) return;
  const i32* const bounds = static_cast<const i32*>(p.settled);
  i64 low = 0, high = p.batch + 1;  // the first bound behind the row
  while (low < high) {
    const i64 middle = (low + high) / 2;
    if (bounds[middle] <= row) low = middle + 1;
    else high = middle;
  }
  const i32 own = static_cast<i32>(row);
  RowKeys keys{own, own};
  if (low > 0 && low <= p.batch) {
    keys.low = static_cast<i32>(max<i64>(bounds[low - 1], row - p.left));
    keys.high = p.causal ? own + 1 : bounds[low];
  }
  static_cast<RowKeys*>(p.row_keys)[row] = keys;
}

template <class T, int D, class P> BARACUDA_D void hstu_simt(const P& p) {
  using namespace attention;
  using A = acc_t<T>;
  __shared__ A queries[select_warps][D];
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const i64 unit = static_cast<i64>(blockIdx.x) * select_warps + warp, row = unit / p.num_heads;
  if (row >= p.total) return;
  const u32 head = static_cast<u32>(unit % p.num_heads);
  load_row(queries[warp], head_row<T>(p.q, p.stride[0], row, head), p.d_k);
  __syncwarp();
  const RowKeys keys = rows_keys(p)[row];
  A acc[D / warp_size] = {};
#pragma unroll 1
  for (i64 k0 = keys.low; k0 < keys.high; k0 += warp_size) {
    const int left = static_cast<int>(min<i64>(warp_size, keys.high - k0));
    A weight = A(0);
    if (lane_id() < left) {
      const A s = product(queries[warp], head_row<T>(p.k, p.stride[1], k0 + lane_id(), head), p.d_k);
      weight = Silu<A>(s * static_cast<A>(p.scale)).value;
    }
#pragma unroll 1
    for (int j = 0; j < left; ++j) {
      add_row<D>(acc, __shfl_sync(full_warp, weight, j), head_row<T>(p.v, p.stride[2], k0 + j, head), p.d_v);
    }
  }
  put_row<D>(head_row<T>(p.y, p.stride[3], row, head), acc, static_cast<A>(p.share), p.d_v);
}

template <class T, int D, class P> BARACUDA_D void hstu_dq_simt(const P& p) {
  using namespace attention;
  using A = acc_t<T>;
  __shared__ A rows[select_warps][2][D];
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const i64 unit = static_cast<i64>(blockIdx.x) * select_warps + warp, row = unit / p.num_heads;
  if (row >= p.total) return;
  const u32 head = static_cast<u32>(unit % p.num_heads);
  load_row(rows[warp][0], head_row<T>(p.q, p.stride[0], row, head), p.d_k);
  load_row(rows[warp][1], head_row<T>(p.dy, p.stride[3], row, head), p.d_v);
  __syncwarp();
  const RowKeys keys = rows_keys(p)[row];
  A acc[D / warp_size] = {};
#pragma unroll 1
  for (i64 k0 = keys.low; k0 < keys.high; k0 += warp_size) {
    const int left = static_cast<int>(min<i64>(warp_size, keys.high - k0));
    A ds = A(0);
    if (lane_id() < left) {
      const A s = product(rows[warp][0], head_row<T>(p.k, p.stride[1], k0 + lane_id(), head), p.d_k);
      const A dp = product(rows[warp][1], head_row<T>(p.v, p.stride[2], k0 + lane_id(), head), p.d_v);
      ds = dp * Silu<A>(s * static_cast<A>(p.scale)).slope;
    }
#pragma unroll 1
    for (int j = 0; j < left; ++j) {
      add_row<D>(acc, __shfl_sync(full_warp, ds, j), head_row<T>(p.k, p.stride[1], k0 + j, head), p.d_k);
    }
  }
  put_row<D>(head_row<T>(p.dq, p.stride[4], row, head), acc, static_cast<A>(p.scale * p.share), p.d_k);
}

template <class T, int D, class P> BARACUDA_D void hstu_dkv_simt(const P& p) {
  using namespace attention;
  using A = acc_t<T>;
  __shared__ A rows[select_warps][2][D];
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const i64 unit = static_cast<i64>(blockIdx.x) * select_warps + warp, key = unit / p.num_heads;
  if (key >= p.total) return;
  const u32 head = static_cast<u32>(unit % p.num_heads);
  load_row(rows[warp][0], head_row<T>(p.k, p.stride[1], key, head), p.d_k);
  load_row(rows[warp][1], head_row<T>(p.v, p.stride[2], key, head), p.d_v);
  __syncwarp();
  const i64 begin = first_row<true>(p, key), end = first_row<false>(p, key);
  A dk[D / warp_size] = {}, dv[D / warp_size] = {};
#pragma unroll 1
  for (i64 i0 = begin; i0 < end; i0 += warp_size) {
    const i64 row = i0 + lane_id();
    A weight = A(0), ds = A(0);
    if (row < end) {
      const A s = product(rows[warp][0], head_row<T>(p.q, p.stride[0], row, head), p.d_k);
      const A dp = product(rows[warp][1], head_row<T>(p.dy, p.stride[3], row, head), p.d_v);
      const Silu<A> silu(s * static_cast<A>(p.scale));
      weight = silu.value, ds = dp * silu.slope;
    }
#pragma unroll 1
    for (int j = 0; j < warp_size && i0 + j < end; ++j) {
      add_row<D>(dk, __shfl_sync(full_warp, ds, j), head_row<T>(p.q, p.stride[0], i0 + j, head), p.d_k);
      add_row<D>(dv, __shfl_sync(full_warp, weight, j), head_row<T>(p.dy, p.stride[3], i0 + j, head), p.d_v);
    }
  }
  if (p.dk != nullptr)
    put_row<D>(head_row<T>(p.dk, p.stride[5], key, head), dk, static_cast<A>(p.scale * p.share), p.d_k);
  if (p.dv != nullptr) put_row<D>(head_row<T>(p.dv, p.stride[6], key, head), dv, static_cast<A>(p.share), p.d_v);
}

}  // namespace baracuda
