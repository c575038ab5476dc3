// shift_scale     y = (x + shift) · scale. Schedule map.
#include <baracuda/map.cuh>

namespace baracuda {

template <class T, class L> BARACUDA_D void shift_scale(const ShiftScaleParams& p) {
  using A = acc_t<T>;
  const A shift = static_cast<A>(p.shift()), scale = static_cast<A>(p.scale());
  T* const y[1] = {static_cast<T*>(p.y)};
  const T* const x[1] = {static_cast<const T*>(p.x)};
  map<L>(p, y, x, [&](const auto& in, auto& out) {
    map_elements<A>([&](A a) { return (a + shift) * scale; }, in, out[0]);
  });
}

}  // namespace baracuda
