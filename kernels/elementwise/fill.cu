// fill       x = value, converted once; schedule map without inputs.
#include <baracuda/map.cuh>

namespace baracuda {

template <class T, class L> BARACUDA_D void fill(const FillParams& p) {
  map_write<L>(p, static_cast<T*>(p.x), cast<T>(p.value()));
}

}  // namespace baracuda
