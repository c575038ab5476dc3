#pragma once
// complex_binary   what kernels of two complex numbers share. The functors stand in elementwise/complex/, and a unit includes
// the file of its kind: value(a, b), and the gradients da(dy, a, b) and db(dy, a, b), dy times the conjugate of the
// derivative.
#include <baracuda/complex.cuh>

namespace baracuda {

// The operands of f: what was read, or a number of the parameters in its place: 1 left, 2 right, 0 none.
template <class T> struct ComplexOperands {
  T number;
  int place;
  template <class P>
  BARACUDA_D ComplexOperands(const P& p, int place)
      : number(static_cast<part_t<T>>(p.number()), static_cast<part_t<T>>(p.imag())), place(place) {}
  BARACUDA_D T left(T a) const { return place == 1 ? number : a; }
  BARACUDA_D T right(T b) const { return place == 2 ? number : b; }
};

}  // namespace baracuda
