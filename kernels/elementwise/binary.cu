// binary     y = f(a, b), f one functor of elementwise/binary.cuh; schedule map, a and b broadcast by strides of 0.
#include <baracuda/map.cuh>
#include "elementwise/binary.cuh"

namespace baracuda {

template <template <class> class F, class T, class L> BARACUDA_D void binary(const BinaryParams& p) {
  using A = compute_t<T>;
  T* const y[1] = {static_cast<T*>(p.y)};
  const T* const given[2] = {static_cast<const T*>(p.a), static_cast<const T*>(p.b)};
  map<L>(p, y, given,
         [&](const auto& in, auto& out) { map_elements<A>([](A a, A b) { return F<T>::value(a, b); }, in, out[0]); });
}

}  // namespace baracuda
