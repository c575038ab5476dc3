// fill       x = value, converted once; schedule map without inputs.
#include <baracuda/map.cuh>

namespace baracuda {

template <class T, class L> BARACUDA_D void fill(const FillParams& p) {
  T value;
  if constexpr (is_integer<T>) value = cast<T>(p.value_whole());
  else value = cast<T>(p.value());
  if constexpr (is_complex<T>) value.im = cast<part_t<T>>(p.imag());
  map_write<L>(p, static_cast<T*>(p.x), value);
}

}  // namespace baracuda
