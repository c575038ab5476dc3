// scaled   y = factor · x, of real or complex numbers; schedule map. No sums.
#include <baracuda/complex.cuh>
#include <baracuda/map.cuh>

namespace baracuda {

template <class R> BARACUDA_D R by(R x, R factor) { return x * factor; }
template <class R> BARACUDA_D complex<R> by(complex<R> x, R factor) { return x * factor; }

template <class T, class L> BARACUDA_D void scaled(const ScaledParams& p) {
  const auto factor = static_cast<part_t<T>>(p.factor);
  T* const y[1] = {static_cast<T*>(p.y)};
  const T* const x[1] = {static_cast<const T*>(p.x)};
  map<L>(p, y, x, [factor](const auto& in, auto& out) {
#pragma unroll
    for (int k = 0; k < out[0].size; ++k) out[0][k] = by(in[0][k], factor);
  });
}

}  // namespace baracuda
