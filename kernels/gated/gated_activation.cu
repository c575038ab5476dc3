// gated_activation   y = act(gate) up, act a unary kind (elementwise/unary/); schedule map.
//
// gate and up are separate views, so the two halves of one packed projection are read in place.
#include <baracuda/map.cuh>
#include "gated/gates.cuh"

namespace baracuda {

template <class F, class G, class T, class L> BARACUDA_D void gated_activation(const GatedActivationParams& p) {
  using A = acc_t<T>;
  const Coefficients<A> k(p.coefficients);
  T* const y[1] = {static_cast<T*>(p.y)};
  const T* const given[2] = {static_cast<const T*>(p.gate), static_cast<const T*>(p.up)};
  map<L>(p, y, given, [&](const auto& in, auto& out) {
    map_elements<A>([&](A gate, A up) { return gated<F, G>(gate, up, k); }, in, out[0]);
  });
}

}  // namespace baracuda
