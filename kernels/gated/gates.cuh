#pragma once
// gates      act(gate) up and dy up act'(gate), for any activation, and the units that change up, too.
//
// The product is right wherever it is a number of the type, also where act(gate) alone is subnormal, so that it has lost
// digits, 0, or infinite: an activation that knows how has `by`; of the others, act(x) is act'(0) x near 0 and
// proportional to x where it overflows, and where a tail vanishes it goes with its slope, whose product with up the
// gradients have right.
#include "elementwise/gradients.cuh"

namespace baracuda {

// A unit has F::product(gate, up, k), and as its gradients G::dgate and G::dup(dy, gate, up, k).
template <class F, class = void> constexpr bool is_unit = false;
template <class F> constexpr bool is_unit<F, decltype(static_cast<void>(&F::product))> = true;
template <class G, class = void> constexpr bool is_unit_gradient = false;
template <class G> constexpr bool is_unit_gradient<G, decltype(static_cast<void>(&G::dgate))> = true;

template <class F, class = void> constexpr bool has_by = false;
template <class F> constexpr bool has_by<F, decltype(static_cast<void>(&F::by))> = true;

// F::tail(x, up, k) is act(x) up where act(x), subnormal or 0, goes with its slope far from 0; relu and its like are 0
// there.
template <class F, class = void> constexpr bool has_tail = false;
template <class F> constexpr bool has_tail<F, decltype(static_cast<void>(&F::tail))> = true;

// act(gate) up; F is the activation, G its gradient.
template <class F, class G, class A> BARACUDA_D A gated(A gate, A up, const Coefficients<A>& k) {
  if constexpr (is_unit<F>) {
    return F::product(gate, up, k);
  } else if constexpr (has_by<F>) {
    return F::by(gate, up);
  } else {
    const A value = F::value(gate, k);
    if (!math::lost(value)) return value * up;
    if (math::isinf(value)) return F::value(gate * A(0.25), k) * up * A(4);
    if (math::abs(gate) < A(1e-10)) {  // the slope may be above 1, and up near the end of the range
      const A down = math::abs(up) > A(1) ? A(2.3283064365386963e-10) : A(1);  // 2^-32
      const A slope = G::value(up * down, gate, k);
      return slope == A(0) ? value * up : slope * (gate / down);
    }
    if constexpr (has_tail<F>) return F::tail(gate, up, k);
    else return value * up;
  }
}

// dy act(gate), or the gradient of what a unit makes of up.
template <class F, class G, class A> BARACUDA_D A up_gradient(A dy, A gate, A up, const Coefficients<A>& k) {
  if constexpr (is_unit_gradient<G>) return G::dup(dy, gate, up, k);
  else return gated<F, G>(gate, dy, k);
}

// dy up act'(gate). Where dy up overflows, the slope may bring it back into range: then both are scaled down first.
template <class T, class G, class A> BARACUDA_D A gate_gradient(A dy, A up, A gate, const Coefficients<A>& k) {
  if constexpr (is_unit_gradient<G>) {
    return G::dgate(dy, gate, up, k);
  } else if constexpr (has_by<G>) {
    return G::by(dy, up, gate);
  } else {
    A product = dy * up, back = A(1);
    // Products of f16 values do not overflow; an infinite factor stays one.
    if (!is_same<T, f16> && math::isinf(product) && math::isfinite(dy) && math::isfinite(up)) {
      constexpr A down = is_same<A, float> ? A(5.421010862427522e-20) : A(7.458340731200207e-155);  // 2^-64, 2^-512
      product = (dy * down) * (up * down), back = A(1) / down;
    }
    return G::value(product, gate, k) * back * back;
  }
}

}  // namespace baracuda
