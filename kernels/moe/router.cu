// router   moe_router: the k best experts of each token, by softmax or sigmoid of its logits, and their weights
//
// Order of sums: router.cuh; over the chosen experts in their order. Of equal keys the lowest expert is taken. Every lane
// sorts its experts; then the best of 32 heads is taken k times. Lane n ends with the n-th, and computes its weight.
#include "moe/router.cuh"

namespace baracuda {
namespace moe {

// The keys of a warp's experts in shared memory: rows of 32, four places apart, so that few groups meet in a bank.
template <class A, int PARTS> struct Keys {
  static constexpr int pitch = warp_size + 4;
  A at[PARTS * pitch];
  static BARACUDA_D int place(int e) { return e + e / warp_size * (pitch - warp_size); }
};

// The group of expert e < 1024, by ceil(2^20 / of_group).
template <class P> BARACUDA_D int group_of(const P& p, int e) { return static_cast<int>(e * p.of_group_inverse >> 20); }

// Bit g of the result: group g is one of the best. Lanes share the groups' experts, 2^lane_bits a group.
template <class A, int PARTS>
BARACUDA_D u32 best_groups(const MoeRouterParams& p, const A (&key)[PARTS], Keys<A, PARTS>& keys) {
  const A none = -numeric<A>::infinity();
#pragma unroll
  for (int i = 0; i < PARTS; ++i) keys.at[Keys<A, PARTS>::place(lane_id() + warp_size * i)] = key[i];
  __syncwarp();
  const int lanes = 1 << p.lane_bits, g = lane_id() >> p.lane_bits, beside = lane_id() & (lanes - 1);
  Two<A> two{none, none};
  if (g < p.groups) {
#pragma unroll 4
    for (int n = beside; n < p.of_group; n += lanes) {
      const A x = keys.at[Keys<A, PARTS>::place(g * p.of_group + n)];
      two.second = x > two.first ? two.first : x > two.second ? x : two.second;
      two.first = x > two.first ? x : two.first;
    }
  }
#pragma unroll 1
  for (int mask = 1; mask < lanes; mask *= 2) two = Largest::apply(two, shuffle_xor(two, mask));
  const A sum = p.top2 && p.of_group > 1 ? two.first + two.second : two.first, own = sum == sum ? sum : none;
  int better = 0;
#pragma unroll 1
  for (int n = 0; n < p.groups; ++n) {
    const A other = shuffle(own, n << p.lane_bits);
    better += other > own || (other == own && n < g);
  }
  const u32 votes = __ballot_sync(full_warp, g < p.groups && better < p.top_groups);
  // Bit g, where all lanes of group g have voted alike.
  return __ballot_sync(full_warp, lane_id() < p.groups && (votes >> (lane_id() << p.lane_bits & 31) & 1));
}

}  // namespace moe

template <class T, int PARTS> BARACUDA_D void moe_router(const MoeRouterParams& p) {
  using namespace moe;
  using A = acc_t<T>;
  __shared__ Keys<A, PARTS> keys[router_warps];
  const i64 token = token_of(router_warps);
  if (token >= p.tokens) return;
  Logits<T, PARTS> score(p, token);
  A key[PARTS];
  const A* const bias = static_cast<const A*>(p.bias);
  if constexpr (Logits<T, PARTS>::few) {
    // Biases come with the logits.
    A own[PARTS];
#pragma unroll
    for (int i = 0; i < PARTS; ++i) {
      const int e = lane_id() + warp_size * i;
      own[i] = bias != nullptr && e < p.experts ? bias[e * p.bias_step] : A(0);
    }
    score.template settle<false>(p);
    if (p.by_score) score.scores(key);
#pragma unroll
    for (int i = 0; i < PARTS; ++i) {
      if (!p.by_score) key[i] = score.x[i];
      key[i] += own[i];
    }
  } else {
    score.template settle<false>(p);
#pragma unroll
    for (int i = 0; i < PARTS; ++i) {
      const int e = lane_id() + warp_size * i;
      key[i] = score.x[i];
      if (p.by_score) key[i] = e < p.experts ? score.of(score.x[i]) : -numeric<A>::infinity();
      if (bias != nullptr && e < p.experts) key[i] += bias[e * p.bias_step];
    }
  }
#pragma unroll
  for (int i = 0; i < PARTS; ++i) {
    if (key[i] != key[i]) key[i] = -numeric<A>::infinity();
  }
  const u32 groups = p.groups > 1 ? best_groups(p, key, keys[threadIdx.x / warp_size]) : 1;
  Queue<A, PARTS> queue;
#pragma unroll
  for (int i = 0; i < PARTS; ++i) {
    const int e = lane_id() + warp_size * i;
    const bool there = e < p.experts && (groups >> (p.groups > 1 ? group_of(p, e) : 0) & 1);
    queue.key[i] = there ? ordered(key[i]) : queue.none, queue.part[i] = i;
  }
  queue.sort();

  A* const weights = static_cast<A*>(p.weights) + token * p.weight_steps[0];
  const A scale = static_cast<A>(p.scale());
  A sum = A(0);
#pragma unroll 1
  for (int first = 0; first < p.k; first += warp_size) {
    const int count = min(p.k - first, warp_size), n = first + lane_id();
    int own = 0;
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      const int e = queue.pop();
      if (lane_id() == i) own = e;
    }
    A weight = score.of_expert(own);
    if (p.normalize) sum = in_order(sum, weight, count);
    if (n >= p.k) continue;
    if (!p.normalize) weight *= scale;
    else if (p.k <= warp_size) weight = weight / sum * scale;
    weights[n * p.weight_steps[1]] = weight;
    const i64 at = token * p.index_steps[0] + n * p.index_steps[1];
    if (p.wide) static_cast<i64*>(p.indices)[at] = own;
    else static_cast<i32*>(p.indices)[at] = own;
  }
  if (!p.normalize || p.k <= warp_size) return;
  __syncwarp();
  for (int n = lane_id(); n < p.k; n += warp_size) {
    A& weight = weights[n * p.weight_steps[1]];
    weight = weight / sum * scale;
  }
}

}  // namespace baracuda
