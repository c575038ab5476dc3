#pragma once
// swiglu_oai  the unit of gpt-oss: g sigmoid(alpha g) (u + 1), g = min(gate, limit), u = up kept in [-limit, limit]. The
// argument of the sigmoid is two numbers, as the exponential multiplies its rounding; beyond 1e5 it only would overflow.
#include "elementwise/activations.cuh"

namespace baracuda {

template <class T> struct ClampedGate {
  using A = acc_t<T>;
  A g, t;
  Logistic<A> s;
  BARACUDA_D ClampedGate(A gate, const Coefficients<A>& k)
      : g(math::minimum(gate, k.b)), t(clamp(g * k.a, A(-1e5), A(1e5))), s(logistic<T>(t)) {
    if constexpr (!is_half<T>) {
      const A low = magnitude(t) < A(1e5) ? product_rest(g, k.a, t) : A(0);
      s.h = math::fma(s.h, (t < A(0) ? A(0.5) : A(-0.5)) * low, s.h);
    }
  }
};
template <class T> struct SwigluOai {
  using A = acc_t<T>;
  static BARACUDA_D A kept(A up, A limit) { return math::minimum(math::maximum(up, -limit), limit); }
  static BARACUDA_D A times(A gate, A by, const Coefficients<A>& k) {
    const ClampedGate<T> c(gate, k);
    return times_sigmoid<T>(c.g, c.s, by);
  }
  static BARACUDA_D A product(A gate, A up, const Coefficients<A>& k) { return times(gate, kept(up, k.b) + A(1), k); }
};
namespace gradient {
template <class T> struct SwigluOai {
  using A = acc_t<T>;
  using Unit = baracuda::SwigluOai<T>;
  // As PyTorch's clamp: none where the limit cuts.
  static BARACUDA_D A dgate(A dy, A gate, A up, const Coefficients<A>& k) {
    const ClampedGate<T> c(gate, k);
    const bool below = c.g < A(0);
    const A outer = below ? c.s.h : A(1), other = below ? c.s.r : c.s.h * c.s.h * c.s.r;
    const A slope = (Unit::kept(up, k.b) + A(1)) * (c.s.r * math::fma(c.t, other, A(1)));
    const A square = outer * outer, whole = square * slope;  // the first goes with dy where the whole is lost
    const A y = square < A(1e20) * numeric<A>::tiny() ? dy * outer * slope * outer : dy * whole;
    return gate <= k.b ? y + (c.g - c.g) : A(0);  // NaN at the infinities
  }
  static BARACUDA_D A dup(A dy, A gate, A up, const Coefficients<A>& k) {
    return magnitude(up) <= k.b ? Unit::times(gate, dy, k) : A(0);
  }
};
}  // namespace gradient
}  // namespace baracuda
