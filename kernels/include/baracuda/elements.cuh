#pragma once
// elements   the type that elements are computed in, and a function of every element of a few vectors.
#include <baracuda/vector.cuh>

namespace baracuda {

// Floats and complex in acc_t. Integers in their own width (at least 32 bits), unsigned where results wrap: arithmetic modulo 2^n
// of a wider type, cut to n bits, is that of n bits, and unsigned overflow is defined.
template <class T> struct compute_of {
  using type = conditional<
      is_floating<T> || is_complex<T>, acc_t<T>,
      conditional<sizeof(T) == 8, conditional<is_signed_int<T>, i64, u64>, conditional<is_signed_int<T>, i32, u32>>>;
};
template <class T> using compute_t = typename compute_of<T>::type;

// out[k] = f(a[k], …) with every operand widened to A and the result rounded once.
template <class A, class F, class Out, class In, int N, int NI>
BARACUDA_D void map_elements(const F& f, const Vec<In, N> (&in)[NI], Vec<Out, N>& out) {
  Vec<A, N> wide[NI], result;
#pragma unroll
  for (int i = 0; i < NI; ++i) wide[i] = cast_vec<A>(in[i]);
#pragma unroll
  for (int k = 0; k < N; ++k) {
    if constexpr (NI == 1) result[k] = f(wide[0][k]);
    else if constexpr (NI == 2) result[k] = f(wide[0][k], wide[1][k]);
    else result[k] = f(wide[0][k], wide[1][k], wide[2][k]);
  }
  out = cast_vec<Out>(result);
}

}  // namespace baracuda
