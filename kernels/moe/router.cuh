#pragma once
// router     what the passes of moe_router share.
//
// A warp has a token; lane l has experts l, l + 32, …. Order of sums: over experts those of a lane from its first, then the
// warp's tree.
#include <baracuda/positions.cuh>
#include <baracuda/reduce.cuh>

namespace baracuda {
namespace moe {

// The logits of a token; what lies behind the last expert is -inf.
template <class T, int PARTS> struct Logits {
  using A = acc_t<T>;
  A x[PARTS];

  template <class P> BARACUDA_D Logits(const P& p, i64 token) {
    const T* const from = static_cast<const T*>(p.logits) + token * p.logit_steps[0];
#pragma unroll
    for (int i = 0; i < PARTS; ++i) {
      const int e = lane_id() + warp_size * i;
      x[i] = e < p.experts ? to_acc(from[e * p.logit_steps[1]]) : -numeric<A>::infinity();
    }
  }
  // Scores in place of logits.
  template <class P> BARACUDA_D void score(const P& p) {
    if (p.sigmoid) {
#pragma unroll
      for (int i = 0; i < PARTS; ++i) x[i] = A(1) / (A(1) + math::exp(-x[i]));
      return;
    }
    A top = -numeric<A>::infinity(), sum = A(0);
#pragma unroll
    for (int i = 0; i < PARTS; ++i) top = math::maximum(top, x[i]);
    top = warp_reduce<Max>(top);
#pragma unroll
    for (int i = 0; i < PARTS; ++i) {
      const bool there = lane_id() + warp_size * i < p.experts;
      x[i] = there ? math::exp(x[i] - top) : A(0);
      sum += x[i];
    }
    sum = warp_reduce<Sum>(sum);
#pragma unroll
    for (int i = 0; i < PARTS; ++i) x[i] = x[i] / sum;
  }
  // That of expert e, in every lane; 0 where there is none.
  BARACUDA_D A of(i64 e) const {
    A found = A(0);
#pragma unroll
    for (int i = 0; i < PARTS; ++i) {
      if (e / warp_size == i) found = x[i];
    }
    return shuffle(found, static_cast<int>(e % warp_size));
  }
};

// A key and whose it is; nobody's is -1, and comes last.
template <class A> struct Candidate {
  A key;
  int expert;
};
struct Better {
  static constexpr bool symmetric = true;
  template <class C> static BARACUDA_D C apply(C a, C b) {
    if (a.expert < 0 || b.expert < 0) return a.expert < 0 ? b : a;
    return b.key > a.key || (b.key == a.key && b.expert < a.expert) ? b : a;
  }
};
// The two largest keys of a group.
template <class A> struct Two {
  A first, second;
};
struct Largest {
  static constexpr bool symmetric = true;
  template <class A> static BARACUDA_D Two<A> apply(Two<A> a, Two<A> b) {
    const bool low = a.first < b.first;
    const A other = low ? a.first : b.first, own = low ? b.second : a.second;
    return {low ? b.first : a.first, other > own ? other : own};
  }
};

BARACUDA_D i64 token_of(int warps) {
  const i64 block = static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x;
  return block * warps + threadIdx.x / warp_size;
}

}  // namespace moe
}  // namespace baracuda
