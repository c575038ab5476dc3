// difference  y = b - a, either of which may be nothing: a piece of an array and its neighbour. Schedule map.
//
// Of several differences of 16-bit floats those in between are in float: From and To are the element or its accumulator.
#include <baracuda/map.cuh>

namespace baracuda {

template <class To, class From, class L> BARACUDA_D void difference(const DifferenceParams& p) {
  using A = compute_t<From>;
  const bool plus = p.plus, minus = p.minus;
  To* const y[1] = {static_cast<To*>(p.y)};
  const From* const x[2] = {static_cast<const From*>(p.a), static_cast<const From*>(p.b)};
  map<L>(p, y, x, [&](const auto& in, auto& out) {
    map_elements<A>(
        [&](A a, A b) {
          const A from = plus ? b : A(0), less = minus ? a : A(0);
          if constexpr (is_same<From, bool>) return static_cast<A>(from != less);
          else if constexpr (is_floating<From>) return from - less;
          else return static_cast<A>(static_cast<u64>(from) - static_cast<u64>(less));
        },
        in, out[0]);
  });
}

}  // namespace baracuda
