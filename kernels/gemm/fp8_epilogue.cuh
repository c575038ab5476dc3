#pragma once
// fp8_epilogue   the epilogue of products of fp8: that of gemm/epilogue.cuh, whose y is multiplied by a scale of its own
//                before it is rounded, and whose largest size before that is kept (delayed scaling).
//
//   amax = max over all m, n of |y[m, n]|        y[m, n] = round(scale_y y[m, n])
//
// P has scale_y and amax besides, pointers to a float or null; *amax is 0 when the kernel starts. A maximum is the same
// in every order. It is taken of the bits of |y|, which are in the order of the numbers: NaN, whose bits are larger than
// those of infinity, wins.
#include <baracuda/fp8_cast.cuh>
#include <baracuda/reduce.cuh>
#include "gemm/epilogue.cuh"

namespace baracuda {

// All lanes of a warp make one, and destroy it together.
template <class U, class P, class V = conditional<is_fp8<U>, float, U>>
class Fp8Epilogue : public Epilogue<U, V, float, false, P> {
  using Base = Epilogue<U, V, float, false, P>;
  using Base::p, Base::begin;
  mutable u32 largest;

 public:
  BARACUDA_D Fp8Epilogue(const P& p, const BatchOffsets& begin) : Base(p, begin), largest(0) {}
  BARACUDA_D ~Fp8Epilogue() {
    if (p.amax == nullptr) return;
    const u32 all = warp_reduce<Max>(largest);
    if (lane_id() == 0) atomicMax(static_cast<u32*>(p.amax), all);
  }

  template <int N>
  BARACUDA_D void row(i64 m, i64 n, i64 left, const Vec<float, N>& sum, const Vec<float, N>& up) const {
    Vec<float, N> y = Base::result(m, n, left, sum, up);
    if (p.amax != nullptr) {
#pragma unroll
      for (int k = 0; k < N; ++k) largest = max(largest, k < left ? __float_as_uint(y[k]) & 0x7fffffffu : 0u);
    }
    if (p.scale_y != nullptr) {
      const float by = *static_cast<const float*>(p.scale_y);
#pragma unroll
      for (int k = 0; k < N; ++k) y[k] *= by;
    }
    put_columns<U>(p, begin, gemm_matrix::y, p.y, m, n, left, y);
  }
};

}  // namespace baracuda
