// vecdot_slopes  da = dy b and db = dy a of arrays that were not broadcast, in one pass; dy broadcasts. Schedule map.
//
// Products are in acc_t<T>, rounded once more to T. Of complex numbers one factor of each is conjugated: dy of da and
// none of db where the dot product conjugates a, otherwise b and a.
#include <baracuda/complex.cuh>
#include <baracuda/map.cuh>
#include <baracuda/math.cuh>

namespace baracuda {

template <bool CONJUGATE, class T> BARACUDA_D T slope(T x, T y) {
  if constexpr (is_complex<T>) return (CONJUGATE ? math::conj(x) : x) * y;
  else return cast<T>(to_acc(x) * to_acc(y));
}

template <class T, class L> BARACUDA_D void vecdot_slopes(const VecdotSlopesParams& p) {
  T* const to[2] = {static_cast<T*>(p.da), static_cast<T*>(p.db)};
  const T* const from[3] = {static_cast<const T*>(p.dy), static_cast<const T*>(p.a), static_cast<const T*>(p.b)};
  map<L>(p, to, from, [&](const auto& in, auto& out) {
#pragma unroll
    for (int k = 0; k < out[0].size; ++k) {
      if (is_complex<T> && !p.conjugate) {
        out[0][k] = slope<true>(in[2][k], in[0][k]);
        out[1][k] = slope<true>(in[1][k], in[0][k]);
      } else {
        out[0][k] = slope<true>(in[0][k], in[2][k]);
        out[1][k] = slope<false>(in[0][k], in[1][k]);
      }
    }
  });
}

}  // namespace baracuda
