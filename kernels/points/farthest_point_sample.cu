// farthest_point_sample   points of a cloud, each the farthest from its nearest among those chosen before it
//
// A block for each cloud: a pass lowers every point's distance by the point chosen last and finds the largest, of equal
// ones that of the lowest index. farthest_held keeps coordinates and distances in registers, farthest of any number of
// points and coordinates the distances in the workspace.
#include "points/clouds.cuh"

namespace baracuda {

template <class A> struct Far {
  A value;
  i32 index;
};

// The distance of a point whose own to the last chosen one is d; -1 of a point that is no number.
template <class A> BARACUDA_D A nearer(A far, A d) { return d != d ? A(-1) : d < far ? d : far; }

BARACUDA_D i64 farthest_start(const FarthestParams& p, i64 b, i64 end) {
  const i64 start = p.starts == nullptr ? p.start() : read_index(p.starts, p.wide_starts, b);
  return start >= 0 && start < end ? start : 0;
}

template <class T, int DIMS, int EACH> BARACUDA_D void farthest_held(const FarthestParams& p) {
  using A = acc_t<T>;
  constexpr int warps = far_threads / warp_size;
  __shared__ Far<A> bests[2][warps];  // in turns, so that one barrier a pass is enough
  const i64 b = blockIdx.x, end = cloud_end(p, b, p.count);
  const T* const points = static_cast<const T*>(p.points) + b * p.steps[0];
  A own[EACH][DIMS], far[EACH];
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    const i64 i = threadIdx.x + k * far_threads;
    far[k] = numeric<A>::infinity();
#pragma unroll
    for (int d = 0; d < DIMS; ++d) own[k][d] = i < end ? to_acc(points[i * p.steps[1] + d * p.steps[2]]) : A(0);
  }
  i64 last = end == 0 ? -1 : farthest_start(p, b, end);
#pragma unroll 1
  for (i64 n = 0; n < p.samples; ++n) {
    if (threadIdx.x == 0) put_index(p, b * p.index_steps[0] + n * p.index_steps[1], last);
    if (end == 0) continue;
    A at[DIMS];
#pragma unroll
    for (int d = 0; d < DIMS; ++d) at[d] = to_acc(points[last * p.steps[1] + d * p.steps[2]]);
    Far<A> best{A(-2), numeric<i32>::top()};
#pragma unroll
    for (int k = 0; k < EACH; ++k) {
      const i32 i = static_cast<i32>(threadIdx.x) + k * far_threads;
      A sum = A(0);
#pragma unroll
      for (int d = 0; d < DIMS; ++d) sum = sum + (own[k][d] - at[d]) * (own[k][d] - at[d]);
      far[k] = nearer(far[k], sum);
      if (i < end) best = ArgMax::apply(best, Far<A>{far[k], i});
    }
    best = warp_reduce<ArgMax>(best);
    Far<A>* const turn = bests[n & 1];
    if (lane_id() == 0) turn[threadIdx.x / warp_size] = best;
    __syncthreads();
    last = group_reduce<ArgMax, warps>(Far<A>(turn[lane_id() % warps])).index;
  }
}

template <class T> BARACUDA_D void farthest(const FarthestParams& p) {
  using A = acc_t<T>;
  const i64 b = blockIdx.x, end = cloud_end(p, b, p.count);
  const T* const points = static_cast<const T*>(p.points) + b * p.steps[0];
  A* const far = static_cast<A*>(p.far) + b * p.count;
  for (i64 i = threadIdx.x; i < end; i += far_threads) far[i] = numeric<A>::infinity();
  i64 last = end == 0 ? -1 : farthest_start(p, b, end);
#pragma unroll 1
  for (i64 n = 0; n < p.samples; ++n) {
    if (threadIdx.x == 0) put_index(p, b * p.index_steps[0] + n * p.index_steps[1], last);
    if (end == 0) continue;
    Indexed<A> best{A(-2), numeric<i64>::top()};
#pragma unroll 1
    for (i64 i = threadIdx.x; i < end; i += far_threads) {
      A sum = A(0);
#pragma unroll 1
      for (i64 d = 0; d < p.dims; ++d) {
        const A step =
            to_acc(points[i * p.steps[1] + d * p.steps[2]]) - to_acc(points[last * p.steps[1] + d * p.steps[2]]);
        sum = sum + step * step;
      }
      far[i] = nearer(far[i], sum);
      best = ArgMax::apply(best, Indexed<A>{far[i], i});
    }
    last = block_reduce<ArgMax, far_threads>(best).index;
    __syncthreads();  // the scratch of the reduction is used again
  }
}

}  // namespace baracuda
