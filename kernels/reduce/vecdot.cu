// vecdot     y[kept] = sum over the reduced axes of a b, a and b broadcast; schedule reduce over a map of both.
//
// Products and sums are in acc_t<T>, each rounded (integers in 64 bits, modulo 2^64); of complex numbers a is conjugated
// where the parameters say so. What fixes the order of the sum
// stands in baracuda/reduce_axes.cuh: the number of reduced elements, and their size. The gradients are the same
// kernels: da = the sum of dy b over the axes along which a is broadcast.
#include <baracuda/reduce_axes.cuh>
#include "reduce/sums.cuh"

namespace baracuda {

template <class T> struct Times {
  using Value = acc_t<T>;
  bool conjugate;
  BARACUDA_D explicit Times(const VecdotParams& p) : conjugate(p.conjugate) {}
  static BARACUDA_D void operands(const VecdotParams& p, const void* (&x)[2]) { x[0] = p.a, x[1] = p.b; }
  BARACUDA_D Value operator()(T a, T b) const {
    if constexpr (is_same<Value, i64>)
      return static_cast<i64>(static_cast<u64>(to_acc(a)) * static_cast<u64>(to_acc(b)));
    else if constexpr (is_complex<T>) return (conjugate ? math::conj(a) : a) * b;
    else return to_acc(a) * to_acc(b);
  }
};

}  // namespace baracuda
