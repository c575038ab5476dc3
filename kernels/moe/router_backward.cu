// router_backward   moe_router_backward: dlogits of the weights of the experts chosen
//
// Order of sums: router.cuh; over the chosen experts in their order.
#include "moe/router.cuh"

namespace baracuda {

template <class T, int PARTS> BARACUDA_D void moe_router_backward(const MoeRouterBackwardParams& p) {
  using namespace moe;
  using A = acc_t<T>;
  const i64 token = token_of(router_warps);
  if (token >= p.tokens) return;
  Logits<T, PARTS> score(p, token);
  score.score(p);
  const A scale = static_cast<A>(p.scale());
  const A* const grad = static_cast<const A*>(p.dweights) + token * p.grad_steps[0];
  const auto expert = [&](int n) {
    return read_index(p.indices, p.wide, token * p.index_steps[0] + n * p.index_steps[1]);
  };
  const auto there = [&](i64 e) { return e >= 0 && e < p.experts; };

  A total = A(1), mean = A(0);
  if (p.normalize) {
    total = A(0);
#pragma unroll 1
    for (int n = 0; n < p.k; ++n) {
      if (const i64 e = expert(n); there(e)) total += score.of(e);
    }
#pragma unroll 1
    for (int n = 0; n < p.k; ++n) {
      if (const i64 e = expert(n); there(e)) mean += grad[n * p.grad_steps[1]] * scale * (score.of(e) / total);
    }
  }
  // Gradients of the scores, and their sum over the softmax.
  A slope[PARTS] = {}, dot = A(0);
#pragma unroll 1
  for (int n = 0; n < p.k; ++n) {
    const i64 e = expert(n);
    if (!there(e)) continue;
    A d = grad[n * p.grad_steps[1]] * scale;
    if (p.normalize) d = (d - mean) / total;
    dot += d * score.of(e);
#pragma unroll
    for (int i = 0; i < PARTS; ++i) {
      if (lane_id() + warp_size * i == e) slope[i] += d;
    }
  }
  T* const to = static_cast<T*>(p.dlogits) + token * p.out_steps[0];
#pragma unroll
  for (int i = 0; i < PARTS; ++i) {
    const int e = lane_id() + warp_size * i;
    if (e >= p.experts) continue;
    const A s = score.x[i];
    const A d = !p.sigmoid ? s * (slope[i] - dot) : slope[i] == A(0) ? A(0) : slope[i] * s * (A(1) - s);
    to[e * p.out_steps[1]] = from_acc<T>(d);
  }
}

}  // namespace baracuda
