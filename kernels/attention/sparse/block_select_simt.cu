// block_select_simt    block_select_mma without tensor cores: a warp has one query head of one query, and takes the keys of
//                      its blocks 32 at a time.
#include "attention/sparse/block_select_simt.cuh"

namespace baracuda {

template <class T, int D, class P> BARACUDA_D void block_select_simt(const P& p) {
  using namespace attention;
  using A = acc_t<T>;
  __shared__ A queries[select_warps][D];
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const i64 unit = static_cast<i64>(blockIdx.x) * select_warps + warp;
  if (unit >= p.units) return;
  const Choice choice = Choice::of<1>(p, unit);
  const T* const k = static_cast<const T*>(p.k) + choice.b * p.stride[1][0] + choice.kv * p.stride[1][1];
  const T* const v = static_cast<const T*>(p.v) + choice.b * p.stride[2][0] + choice.kv * p.stride[2][1];
  load_row(queries[warp], choice.row<T>(p.q, p.stride[0]), p.d_k);
  __syncwarp();
  const A c = static_cast<A>(p.scale * 1.4426950408889634), none = -numeric<A>::infinity();
  A acc[D / warp_size] = {}, top = none, total = A(0);
  BlockWalk walk = choice.walk(p);
#pragma unroll 1
  for (bool more = walk.enter(); more; more = walk.step(warp_size)) {
    const int left = min(walk.left(), warp_size), key = walk.at + lane_id();
    const bool mine = lane_id() < left;
    A x = none;
    if (mine) x = product(queries[warp], k + key * p.stride[1][2], p.d_k) * static_cast<A>(p.sign);
    const A high = math::maximum(top, warp_reduce<Max>(x)), base = high == none ? A(0) : high;
    const A factor = exp2_fast((top - base) * c), weight = mine ? exp2_fast((x - base) * c) : A(0);
    top = high;
    total = math::fma(total, factor, warp_reduce<Sum>(weight));
#pragma unroll
    for (int n = 0; n < D / warp_size; ++n) acc[n] *= factor;
#pragma unroll 1
    for (int j = 0; j < left; ++j) {
      add_row<D>(acc, __shfl_sync(full_warp, weight, j), v + (walk.at + j) * p.stride[2][2], p.d_v);
    }
  }
  put_row<D>(choice.row<T>(p.y, p.stride[3]), acc, total == A(0) ? A(0) : A(1) / total, p.d_v);
  if (p.lse != nullptr && lane_id() == 0) {
    const A lse = math::fma(top, static_cast<A>(p.scale), math::log(total));
    static_cast<A*>(p.lse)[choice.state(p)] = total == A(0) ? none : lse;
  }
}

}  // namespace baracuda
