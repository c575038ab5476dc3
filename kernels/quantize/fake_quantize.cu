// fake_quantize   y = (clamp(round(x / scale) + zero, low, high) - zero) scale, and dx = dy where x is in the range.
//
// Schedule of quantize/fake.cuh. `mask` says of which elements dx is dy; `divided`: dx is dy / scale, of a quantiser.
// `whole`: quotients are rounded before they are compared with the ends, as integers are.
#include "quantize/fake.cuh"

namespace baracuda {
namespace affine {

struct FixedQuantiser {
  using Params = FakeQuantizeParams;
  template <class A, int S> using Shared = affine::Shared<A, S>;
  static constexpr bool masks = true;

  template <bool BACKWARD, class A, int S, int V>
  static BARACUDA_D void make(const Params& p, const affine::Shared<A, S>& shared, const Vec<A, V>& v,
                              const Vec<A, V>& dy, Vec<A, V>& y, Vec<bool, V>& inside) {
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const A first = static_cast<A>(p.low), last = static_cast<A>(p.high);
      const A scale = shared.scale[S == 1 ? 0 : k], given = static_cast<A>(shared.zero[S == 1 ? 0 : k]);
      const A zero = given < first ? first : given > last ? last : given, low = first - zero, high = last - zero;
      const A r = !BACKWARD || p.whole ? math::rint(v[k]) : v[k];
      inside[k] = r >= low && r <= high;
      if constexpr (BACKWARD) y[k] = inside[k] ? (p.divided ? dy[k] / scale : dy[k]) : A(0);
      else y[k] = (r < low ? low : r > high ? high : r) * scale;
    }
  }
};

}  // namespace affine

template <class T, bool BACKWARD> BARACUDA_D void fake_quantize_flat(const FakeQuantizeParams& p) {
  affine::fake_flat<affine::FixedQuantiser, T, BACKWARD>(p);
}
template <class T, bool BACKWARD> BARACUDA_D void fake_quantize_strided(const FakeQuantizeParams& p) {
  affine::fake_strided<affine::FixedQuantiser, T, BACKWARD>(p);
}
template <class T, bool BACKWARD> BARACUDA_D void fake_quantize_one(const FakeQuantizeParams& p) {
  affine::fake_one<affine::FixedQuantiser, T, BACKWARD>(p);
}

}  // namespace baracuda
