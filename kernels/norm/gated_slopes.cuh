#pragma once
// gated_slopes   a chunk of the gradients of the gated RMS norm, from the elements of its row.
#include "gated_rms_norm.cuh"

namespace baracuda::gated {

enum { DY, X, Z, WEIGHT, DX, DZ };  // indices in the row parameters of the backward

template <class T, class W, bool WIDE, class P>
BARACUDA_D Vec<acc_t<T>, vec_elems<T>> weights_or_ones(const P& p, const W* weights, i64 col) {
  constexpr int VEC = vec_elems<T>;
  if (p.weight != nullptr) return norm::load_weights<T, W, WIDE>(p, WEIGHT, weights, col, p.cols - col);
  Vec<acc_t<T>, VEC> one;
#pragma unroll
  for (int k = 0; k < VEC; ++k) one[k] = acc_t<T>(1);
  return one;
}

// dx and dz of a chunk: b are its scaled elements, mean that of g w n.
template <class T, int VEC, class A>
BARACUDA_D void gradients_of(bool before, const Vec<A, VEC>& slope, const Vec<A, VEC>& gate, const Vec<A, VEC>& from,
                             const Vec<A, VEC>& b, const Vec<A, VEC>& w, const Statistics<A>& s, A mean,
                             Vec<A, VEC>& to_x, Vec<A, VEC>& to_z) {
  const auto each = [&](auto first) {
#pragma unroll
    for (int k = 0; k < VEC; ++k) {
      const A sig = sigmoid<T>(gate[k]), silu = gate[k] * sig;
      const A bend = sig * math::fma(gate[k], A(1) - sig, A(1));  // the slope of silu
      const A n = b[k] * s.rstd, g = (first() ? slope[k] : slope[k] * silu) * w[k];
      const A da = (g - n * mean) * s.rstd * s.scale;
      to_x[k] = first() ? da * silu : da;
      to_z[k] = first() ? da * from[k] * bend : slope[k] * (n * w[k]) * bend;
    }
  };
  if (before) each([] { return false; });
  else each([] { return true; });
}

}  // namespace baracuda::gated
