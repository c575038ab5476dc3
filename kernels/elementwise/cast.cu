// cast       y = cast<To>(x), rounded once (types.cuh); schedule map.
#include <baracuda/map.cuh>

namespace baracuda {

template <class To, class From, class L> BARACUDA_D void cast_map(const CastParams& p) {
  To* const y[1] = {static_cast<To*>(p.y)};
  const From* const x[1] = {static_cast<const From*>(p.x)};
  map<L>(p, y, x, [](const auto& in, auto& out) { out[0] = cast_vec<To>(in[0]); });
}

}  // namespace baracuda
