// learnable_fake_quantize  y = clamp(round(x / scale), low, high) scale with learned scales and zero points, and
//                          dx = dy where the integer of x is in the range. Schedule of quantize/fake.cuh.
#include "quantize/fake.cuh"
#include "quantize/learnable.cuh"

namespace baracuda {
namespace affine {

struct LearnedQuantiser {
  using Params = LearnableFakeQuantizeParams;
  template <class A, int S> using Shared = LearnedChunk<A, S>;
  static constexpr bool masks = false;

  template <bool BACKWARD, class A, int S, int V>
  static BARACUDA_D void make(const Params& p, const LearnedChunk<A, S>& shared, const Vec<A, V>& v,
                              const Vec<A, V>& dy, Vec<A, V>& y, Vec<bool, V>&) {
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const Learned<A> step(p, shared.scale[S == 1 ? 0 : k], shared.zero[S == 1 ? 0 : k]);
      if constexpr (BACKWARD) y[k] = step.inside(v[k]) ? dy[k] : A(0);
      else y[k] = step.held(v[k]) * step.scale;
    }
  }
};

}  // namespace affine

template <class T, bool BACKWARD> BARACUDA_D void learnable_flat(const LearnableFakeQuantizeParams& p) {
  affine::fake_flat<affine::LearnedQuantiser, T, BACKWARD>(p);
}
template <class T, bool BACKWARD> BARACUDA_D void learnable_strided(const LearnableFakeQuantizeParams& p) {
  affine::fake_strided<affine::LearnedQuantiser, T, BACKWARD>(p);
}
template <class T, bool BACKWARD> BARACUDA_D void learnable_one(const LearnableFakeQuantizeParams& p) {
  affine::fake_one<affine::LearnedQuantiser, T, BACKWARD>(p);
}

}  // namespace baracuda
