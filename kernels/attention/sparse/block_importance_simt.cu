// block_importance_simt    block_importance.cuh without tensor cores: a lane has a compressed key, and takes head after head.
#include "attention/sparse/block_importance.cuh"

namespace baracuda {

template <class T, class P> BARACUDA_D void block_importance_simt(const P& p) {
  using namespace attention;
  using A = acc_t<T>;
  __shared__ A sums[warp_size];
  const Choice choice = Choice::of<every_head>(p, blockIdx.x);
  const BlockRow<A, P> blocks(p, choice);
  const T* const k = static_cast<const T*>(p.k) + choice.b * p.stride[1][0] + choice.kv * p.stride[1][1];
  const A scale = static_cast<A>(p.scale);
  const int seen = blocks.seen();
#pragma unroll 1
  for (int c0 = 0; c0 < seen; c0 += warp_size) {
    const int count = min(warp_size, seen - c0), c = c0 + min(lane_id(), count - 1);
    A sum = A(0);
#pragma unroll 1
    for (int head = 0; head < choice.heads; ++head) {
      const T* const q = choice.row<T>(p.q, p.stride[0]) + head * p.stride[0][1];
      const A base = replay_base(static_cast<const A*>(p.lse)[choice.state(p) + head * p.query_len]);
      sum += replayed_weight(math::fma(product(q, k + c * p.stride[1][2], p.d_k), scale, -base));
    }
    sums[lane_id()] = sum;
    __syncwarp();
    blocks.add(sums, c0, count);
  }
  blocks.finish();
}

}  // namespace baracuda
