#pragma once
// lse_rests    what backward kernels need where biases took the digits of a row's lse: see flash_lse_rests.cuh.
#include "attention/terms.cuh"

namespace baracuda::attention {

// Whether kernels with parameters P may be given rests.
template <class P, class = void> constexpr bool takes_rests = false;
template <class P> constexpr bool takes_rests<P, decltype(static_cast<void>(&P::rests))> = true;
// Whether a row has a rest: all far ones that see a key do, and as the test for them rounds, some that nearly are.
template <class A> BARACUDA_D bool has_rest(A lse) {
  return !(math::abs(lse) < A(0x1p9)) && lse != -numeric<A>::infinity();
}
// How far a score that lies `above` its row's lse lies above the log of the row's sum, given the rest. Huge products
// were summed in another order there, and may have come out as far below as replay_base says.
template <class A> BARACUDA_D A above_sum(A above, A rest, A product) {
  constexpr A room = static_cast<A>(sizeof(A) == 8 ? 0x1p-48 : 0x1p-19);
  const A size = math::abs(product);
  above -= rest;
  if (size >= coarse<A> && size <= numeric<A>::max()) above = math::fma(size, room, above);
  return math::minimum(above, A(0));
}
// The score of x, which is not multiplied out yet, with its biases: as the forward kernels round it.
template <class Terms, class A> BARACUDA_D A biased(const Terms& terms, A x, int i, int j) {
  terms.add_biases([&](auto&& change) { change(x, 0, 0); }, i, j);
  return x;
}

}  // namespace baracuda::attention
