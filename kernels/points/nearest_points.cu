// nearest_points   the k nearest points of each query, in one pass over the cloud
//
// A thread has a query and a sorted list of the nearest points of a part of the cloud, whose tiles are in shared memory. A
// point goes behind those that are as near and have been seen before, so the list is in the order of (distance, index), and
// merging the lists of parts in their order gives that of the whole cloud.
#include "points/clouds.cuh"

namespace baracuda {

template <class A, int LIST> struct Neighbours {
  A far[LIST];
  i32 at[LIST];

  BARACUDA_D void clear() {
#pragma unroll
    for (int n = 0; n < LIST; ++n) far[n] = numeric<A>::infinity(), at[n] = -1;
  }
  // Of a place that holds none the distance is infinite and the index -1: anything but NaN goes before it.
  BARACUDA_D bool takes(A d) const { return d < far[LIST - 1] || (at[LIST - 1] < 0 && d == d); }
  BARACUDA_D void put(A d, i32 index) {
    if (!takes(d)) return;
#pragma unroll
    for (int n = LIST - 1; n >= 0; --n) {
      const bool here = d < far[n] || at[n] < 0, above = n > 0 && (d < far[n - 1] || at[n - 1] < 0);
      if (above) far[n] = far[n - 1], at[n] = at[n - 1];
      else if (here) far[n] = d, at[n] = index;
    }
  }
};

// The place of neighbour n of a query's list of a part, in the workspace: neighbouring threads have neighbouring ones.
BARACUDA_D i64 kept_at(const NearestParams& p, i64 b, i64 query, i64 part, i64 n) {
  return ((b * p.parts + part) * p.k + n) * p.queries_count + query;
}

template <class T, int LIST, bool FEW> BARACUDA_D void nearest_lists(const NearestParams& p) {
  using A = acc_t<T>;
  __shared__ A tile[near_dims][near_tile];
  const i64 b = blockIdx.y, part = blockIdx.z, end = cloud_end(p, b, p.count);
  const i64 query = static_cast<i64>(blockIdx.x) * near_threads + threadIdx.x;
  const bool real = query < p.queries_count;
  const T* const points = static_cast<const T*>(p.points) + b * p.point_steps[0];
  const T* const own = static_cast<const T*>(p.queries) + b * p.query_steps[0] + (real ? query : 0) * p.query_steps[1];
  const int dims = static_cast<int>(p.dims);
  A at[near_dims];
#pragma unroll
  for (int d = 0; d < near_dims; ++d) at[d] = FEW && d < dims ? to_acc(own[d * p.query_steps[2]]) : A(0);
  Neighbours<A, LIST> list;
  list.clear();
  const i64 last = min<i64>(end, (part + 1) * p.share);
#pragma unroll 1
  for (i64 start = part * p.share; start < last; start += near_tile) {
    const int held = static_cast<int>(min<i64>(near_tile, last - start));
    if constexpr (FEW) {
      __syncthreads();
      for (int i = threadIdx.x; i < held * dims; i += near_threads) {
        const int point = i / dims, d = i % dims;
        tile[d][point] = to_acc(points[(start + point) * p.point_steps[1] + d * p.point_steps[2]]);
      }
      __syncthreads();
#pragma unroll 1
      for (int i = 0; i < held; ++i) {
        A sum = A(0);
#pragma unroll
        for (int d = 0; d < near_dims; ++d) {
          if (d < dims) sum = sum + (tile[d][i] - at[d]) * (tile[d][i] - at[d]);
        }
        list.put(sum, static_cast<i32>(start + i));
      }
    } else {
#pragma unroll 1
      for (int i = 0; i < held; ++i) {  // all threads read the same point
        A total = A(0);
#pragma unroll 4
        for (int d = 0; d < dims; ++d) {
          const A step =
              to_acc(points[(start + i) * p.point_steps[1] + d * p.point_steps[2]]) - to_acc(own[d * p.query_steps[2]]);
          total = total + step * step;
        }
        list.put(total, static_cast<i32>(start + i));
      }
    }
  }
  if (!real) return;
#pragma unroll
  for (int n = 0; n < LIST; ++n) {
    if (n >= p.k) break;
    const i64 to = kept_at(p, b, query, part, n);
    static_cast<A*>(p.kept)[to] = list.far[n];
    static_cast<i32*>(p.places)[to] = list.at[n];
  }
}

template <class T, int LIST> BARACUDA_D void nearest_merge(const NearestParams& p) {
  using A = acc_t<T>;
  const i64 b = blockIdx.y, query = static_cast<i64>(blockIdx.x) * near_threads + threadIdx.x;
  if (query >= p.queries_count) return;
  Neighbours<A, LIST> list;
  list.clear();
#pragma unroll 1
  for (i64 part = 0; part < p.parts; ++part) {
#pragma unroll 1
    for (i64 n = 0; n < p.k; ++n) {
      const i64 from = kept_at(p, b, query, part, n);
      const i32 index = static_cast<const i32*>(p.places)[from];
      const A far = static_cast<const A*>(p.kept)[from];
      if (index < 0 || !list.takes(far)) break;  // what follows is farther
      list.put(far, index);
    }
  }
#pragma unroll
  for (int n = 0; n < LIST; ++n) {
    if (n >= p.k) break;
    put_index(p, b * p.index_steps[0] + query * p.index_steps[1] + n * p.index_steps[2], list.at[n]);
    if (p.squares != nullptr) {
      static_cast<A*>(p.squares)[b * p.square_steps[0] + query * p.square_steps[1] + n * p.square_steps[2]] =
          list.far[n];
    }
  }
}

}  // namespace baracuda
