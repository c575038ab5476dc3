#pragma once
// sums       what forward and backward norms share: sums over the lanes of a row.
#include <baracuda/reduce.cuh>
#include <baracuda/rows.cuh>

namespace baracuda::norm {

template <class A> struct Pair {
  A a, b;
};
struct SumPair {
  static constexpr bool symmetric = true;
  template <class A> static BARACUDA_D Pair<A> apply(Pair<A> x, Pair<A> y) { return {x.a + y.a, x.b + y.b}; }
};

// Over the LANES threads of a row: part of a warp, or the whole block.
template <class Op, int LANES, class V> BARACUDA_D V lanes_reduce(V x) {
  if constexpr (LANES <= warp_size) return group_reduce<Op, LANES>(x);
  else return block_reduce<Op, LANES>(x);
}

}  // namespace baracuda::norm
