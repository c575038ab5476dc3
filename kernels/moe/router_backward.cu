// router_backward   moe_router_backward: dlogits of the weights of the experts chosen
//
// Order of sums: router.cuh; over the chosen experts in their order. Lane n has the n-th of up to 32 of them.
#include "moe/router.cuh"

namespace baracuda {

template <class T, int PARTS> BARACUDA_D void moe_router_backward(const MoeRouterBackwardParams& p) {
  using namespace moe;
  using A = acc_t<T>;
  const i64 token = token_of(router_warps);
  if (token >= p.tokens) return;
  Logits<T, PARTS> score(p, token);
  score.template settle<true>(p);
  const A scale = static_cast<A>(p.scale());
  const A* const grad = static_cast<const A*>(p.dweights) + token * p.grad_steps[0];
  // The lane's of 32 chosen experts: which, -1 where there is none, its score and its gradient, 0 of none.
  struct Own {
    int expert;
    A score, slope;
  };
  const auto own_of = [&](int first) {
    Own own{-1, A(0), A(0)};
    const int n = first + lane_id();
    if (n >= p.k) return own;
    const i64 e = read_index(p.indices, p.wide, token * p.index_steps[0] + n * p.index_steps[1]);
    if (e < 0 || e >= p.experts) return own;
    own.expert = static_cast<int>(e), own.score = score.of_expert(e);
    own.slope = grad[n * p.grad_steps[1]] * scale;
    return own;
  };
  const auto count_of = [&](int first) { return min(p.k - first, warp_size); };

  Own own = own_of(0);
  A total = A(1), mean = A(0);
  if (p.normalize) {
    total = in_order(A(0), own.score, count_of(0));
#pragma unroll 1
    for (int n = warp_size; n < p.k; n += warp_size) total = in_order(total, own_of(n).score, count_of(n));
    const auto part = [&](const Own& one) { return one.expert < 0 ? A(0) : one.slope * (one.score / total); };
    mean = in_order(A(0), part(own), count_of(0));
#pragma unroll 1
    for (int n = warp_size; n < p.k; n += warp_size) mean = in_order(mean, part(own_of(n)), count_of(n));
  }
  // Gradients of the scores, and their sum over the softmax.
  A slope[PARTS] = {}, dot = A(0);
#pragma unroll 1
  for (int first = 0; first < p.k; first += warp_size) {
    if (first > 0) own = own_of(first);
    const A d = own.expert < 0 ? A(0) : p.normalize ? (own.slope - mean) / total : own.slope;
    const A product = own.expert < 0 ? A(0) : d * own.score;
    const int count = count_of(first);
#pragma unroll 1
    for (int n = 0; n < count; ++n) {
      const int e = shuffle(own.expert, n);
      const A one = shuffle(d, n);
      dot += shuffle(product, n);
#pragma unroll
      for (int i = 0; i < PARTS; ++i) {
        if (lane_id() + warp_size * i == e) slope[i] += one;
      }
    }
  }
  T* const to = static_cast<T*>(p.dlogits) + token * p.out_steps[0];
#pragma unroll
  for (int i = 0; i < PARTS; ++i) {
    const int e = lane_id() + warp_size * i;
    if (e >= p.experts) continue;
    A d;
    if (!p.sigmoid) {
      d = score.of_kept(score.x[i]) * (slope[i] - dot);
    } else {
      d = A(0);
      if (slope[i] != A(0)) {  // of few experts, and NaN is not 0
        const A s = score.of_kept(score.x[i]);
        d = slope[i] * s * (A(1) - s);
      }
    }
    to[e * p.out_steps[1]] = from_acc<T>(d);
  }
}

}  // namespace baracuda
