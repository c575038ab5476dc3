// ball_query   the first k points of a cloud within a radius of each query
//
// A warp for each query looks at 32 points at a time; those within the radius follow one another in the order of their
// lanes, and it ends when k are found.
#include "points/clouds.cuh"

namespace baracuda {

template <class T> BARACUDA_D void ball_query(const BallParams& p) {
  using A = acc_t<T>;
  const i64 b = blockIdx.y, query = static_cast<i64>(blockIdx.x) * ball_warps + threadIdx.x / warp_size;
  if (query >= p.queries_count) return;
  const int lane = lane_id();
  const i64 end = cloud_end(p, b, p.count);
  const A radius = static_cast<A>(p.radius()), most = radius * radius;
  const T* const points = static_cast<const T*>(p.points) + b * p.point_steps[0];
  const T* const own = static_cast<const T*>(p.queries) + b * p.query_steps[0] + query * p.query_steps[1];
  const i64 to = b * p.index_steps[0] + query * p.index_steps[1];
  i64 found = 0;
  for (i64 start = 0; start < end && found < p.k; start += warp_size) {
    const i64 i = start + lane;
    A sum = A(0);
#pragma unroll 1
    for (i64 d = 0; d < p.dims; ++d) {
      const A x = i < end ? to_acc(points[i * p.point_steps[1] + d * p.point_steps[2]]) : A(0);
      const A step = x - to_acc(own[d * p.query_steps[2]]);
      sum = sum + step * step;
    }
    const bool near = i < end && sum <= most;
    const u32 all = __ballot_sync(full_warp, near);
    const i64 place = found + __popc(all & ((1u << lane) - 1));
    if (near && place < p.k) put_index(p, to + place * p.index_steps[2], i);
    found = min<i64>(p.k, found + __popc(all));
  }
  for (i64 n = found + lane; n < p.k; n += warp_size) put_index(p, to + n * p.index_steps[2], -1);
  if (lane == 0 && p.counts != nullptr) {
    static_cast<i32*>(p.counts)[b * p.counts_steps[0] + query * p.counts_steps[1]] = static_cast<i32>(found);
  }
}

}  // namespace baracuda
