#pragma once
// pointwise_terms  what the losses of one element share. Each has a file of its own, loss/terms/<kind>.cuh, which a unit of
// the kind includes: term(options, x, t, v) and slope<N>, its derivative by x (0), the target t (1) and the third operand
// v (2). A is the accumulator; nothing is rounded to the element before it is added.
#include <baracuda/math.cuh>

namespace baracuda {

// What a kind's row hands over: its numbers and flags in order, and what stands in the place of an absent v.
template <class A> struct LossOptions {
  A first, second, third;
  bool one, two;
  template <class P>
  BARACUDA_D explicit LossOptions(const P& p)
      : first(static_cast<A>(p.first)), second(static_cast<A>(p.second)), third(static_cast<A>(p.third_number)),
        one((p.flags & 1) != 0), two((p.flags & 2) != 0) {}
};

namespace losses {

template <class A> constexpr A half_log_tau = A(0.91893853320467274178);

template <class A> BARACUDA_D A sigmoid(A x) {
  const A e = math::exp(-math::abs(x));
  return (x >= A(0) ? A(1) : e) / (A(1) + e);
}
// -1, 0 or 1; NaN of NaN.
template <class A> BARACUDA_D A sign(A x) { return x > A(0) ? A(1) : x < A(0) ? A(-1) : x; }
template <class A> BARACUDA_D A at_least(A x, A low) { return x < low ? low : x; }
// p x, where nothing of an infinity is 0.
template <class A> BARACUDA_D A weighed(A p, A x) { return p != A(0) ? p * x : math::isnan(x) ? x : A(0); }

// Of term and slope.
#define BARACUDA_LOSS_OPERANDS \
  [[maybe_unused]] const LossOptions<A>&o, [[maybe_unused]] A x, [[maybe_unused]] A t, [[maybe_unused]] A v

}  // namespace losses
}  // namespace baracuda
