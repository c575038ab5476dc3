// cast       y = cast<To>(x), rounded once (types.cuh); schedule map.
#include <baracuda/map.cuh>

namespace baracuda {

// Elements in a chunk of `bytes` of the wider type, at least one.
template <class To, class From> constexpr int cast_width(int bytes) {
  constexpr int widest = sizeof(To) > sizeof(From) ? sizeof(To) : sizeof(From);
  return bytes > widest ? bytes / widest : 1;
}

template <class To, class From, class L> BARACUDA_D void cast_map(const CastParams& p) {
  To* const y[1] = {static_cast<To*>(p.y)};
  const From* const x[1] = {static_cast<const From*>(p.x)};
  map<L>(p, y, x, [](const auto& in, auto& out) {
    if constexpr (is_half<To> && is_integer<From> && sizeof(From) <= 2) {
      out[0] = cast_vec<To>(cast_vec<float>(in[0]));  // by way of float: exact, and packed pairs have an instruction
    } else {
      out[0] = cast_vec<To>(in[0]);
    }
  });
}

}  // namespace baracuda
