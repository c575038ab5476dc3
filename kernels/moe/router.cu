// router   moe_router: the k best experts of each token, by softmax or sigmoid of its logits, and their weights
//
// Order of sums: router.cuh; over the chosen experts in their order. Of equal keys the lowest expert is taken.
#include "moe/router.cuh"

namespace baracuda {
namespace moe {

// Bit g of the result: group g is one of the best.
template <class A, int PARTS> BARACUDA_D u32 best_groups(const MoeRouterParams& p, const A (&key)[PARTS]) {
  const A none = -numeric<A>::infinity();
  Candidate<A> own{none, -1};  // of lane g: group g
#pragma unroll 1
  for (int g = 0; g < p.groups; ++g) {
    Two<A> two{none, none};
#pragma unroll
    for (int i = 0; i < PARTS; ++i) {
      const int e = lane_id() + warp_size * i;
      if (e >= g * p.of_group && e < (g + 1) * p.of_group) two = Largest::apply(two, Two<A>{key[i], none});
    }
    two = warp_reduce<Largest>(two);
    const A score = p.top2 && p.of_group > 1 ? two.first + two.second : two.first;
    if (lane_id() == g) own = {score == score ? score : none, g};
  }
  u32 best = 0;
#pragma unroll 1
  for (int n = 0; n < p.top_groups; ++n) {
    const int g = warp_reduce<Better>(own).expert;
    best |= 1u << g;
    if (lane_id() == g) own.expert = -1;
  }
  return best;
}

}  // namespace moe

template <class T, int PARTS> BARACUDA_D void moe_router(const MoeRouterParams& p) {
  using namespace moe;
  using A = acc_t<T>;
  const i64 token = token_of(router_warps);
  if (token >= p.tokens) return;
  Logits<T, PARTS> score(p, token);
  A key[PARTS];
#pragma unroll
  for (int i = 0; i < PARTS; ++i) key[i] = score.x[i];
  score.score(p);
#pragma unroll
  for (int i = 0; i < PARTS; ++i) {
    const int e = lane_id() + warp_size * i;
    if (p.by_score) key[i] = score.x[i];
    if (p.bias != nullptr && e < p.experts) key[i] += static_cast<const A*>(p.bias)[e * p.bias_step];
    if (key[i] != key[i]) key[i] = -numeric<A>::infinity();
  }
  u32 left = 0;  // bit i: the lane's expert i may still be taken
  const u32 groups = p.groups > 1 ? best_groups(p, key) : 1;
#pragma unroll
  for (int i = 0; i < PARTS; ++i) {
    const int e = lane_id() + warp_size * i;
    if (e < p.experts && (groups >> (p.groups > 1 ? e / p.of_group : 0) & 1)) left |= 1u << i;
  }

  A* const weights = static_cast<A*>(p.weights) + token * p.weight_steps[0];
  const A scale = static_cast<A>(p.scale());
  A sum = A(0);
#pragma unroll 1
  for (int n = 0; n < p.k; ++n) {
    Candidate<A> own{A(0), -1};
#pragma unroll
    for (int i = 0; i < PARTS; ++i) {
      if (left >> i & 1) own = Better::apply(own, Candidate<A>{key[i], lane_id() + warp_size * i});
    }
    const int e = warp_reduce<Better>(own).expert;
    if (lane_id() == e % warp_size) left &= ~(1u << e / warp_size);
    const A weight = score.of(e);
    sum += weight;
    if (lane_id() != 0) continue;
    weights[n * p.weight_steps[1]] = p.normalize ? weight : weight * scale;
    const i64 at = token * p.index_steps[0] + n * p.index_steps[1];
    if (p.wide) static_cast<i64*>(p.indices)[at] = e;
    else static_cast<i32*>(p.indices)[at] = e;
  }
  if (!p.normalize) return;
  __syncwarp();
  for (int n = lane_id(); n < p.k; n += warp_size) {
    A& weight = weights[n * p.weight_steps[1]];
    weight = weight / sum * scale;
  }
}

}  // namespace baracuda
