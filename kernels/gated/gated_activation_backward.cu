// gated_activation_backward   dgate = dy up act'(gate), dup = dy act(gate); schedule map.
//
// An output that is not wanted is a null pointer: it is neither computed nor stored.
#include <baracuda/map.cuh>
#include "elementwise/gradients.cuh"

namespace baracuda {

template <template <class> class F, template <class> class G, class T, class L>
BARACUDA_D void gated_activation_backward(const GatedActivationBackwardParams& p) {
  using A = acc_t<T>;
  T* const grads[2] = {static_cast<T*>(p.dgate), static_cast<T*>(p.dup)};
  const T* const given[3] = {static_cast<const T*>(p.dy), static_cast<const T*>(p.gate), static_cast<const T*>(p.up)};
  map<L>(p, grads, given, [&](const auto& in, auto& out) {
    if (p.dgate != nullptr) {
      map_elements<A>([](A dy, A gate, A up) { return G<T>::value(dy * up, gate, A(0)); }, in, out[0]);
    }
    if (p.dup != nullptr) {
      map_elements<A>([](A dy, A gate, A) { return dy * F<T>::value(gate, A(0)); }, in, out[1]);
    }
  });
}

}  // namespace baracuda
