// difference_runs  y[j] = x[j + shift + 1] - x[j + shift], DOWN with the other sign, along rows that are runs of memory.
//
// Beyond the ends of x there is 0. The same arithmetic as difference.cu, to the bit. Schedule runs.
#include <baracuda/elements.cuh>
#include <baracuda/runs.cuh>

namespace baracuda {

template <class T, bool DOWN> BARACUDA_D void difference_runs(const DifferenceRunsParams& p) {
  using A = compute_t<T>;
  constexpr int V = vec_elems<T>;
  const auto differences = [](int, const T* x) {
    Vec<A, V> wide;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const A from = cast<A>(x[DOWN ? k : k + 1]), less = cast<A>(x[DOWN ? k + 1 : k]);
      if constexpr (is_same<T, bool>) wide[k] = static_cast<A>(from != less);
      else if constexpr (is_floating<T>) wide[k] = from - less;
      else wide[k] = static_cast<A>(static_cast<u64>(from) - static_cast<u64>(less));
    }
    return cast_vec<T>(wide);
  };
  const auto nothing = [](const i64*) { return 0; };
  runs<T, 2, 2>(p, static_cast<T*>(p.y), static_cast<const T*>(p.x), nothing, differences, [](T) { return T{}; });
}

}  // namespace baracuda
