#pragma once
// formula_epilogue   a formula between the sums of a convolution and its output: y = f(Σ x̂ w, operands).
//
// The formula is text made at run time (baracuda_py/expressions/product_shape.py), which defines behind this file
//
//   ProductFormula   made from P; called with the places of some outputs and their sums, it gives f of them
//
// The sums are in the accumulator's type, and the result is rounded once to U, the element of y: an integer to nearest,
// ties to even, and like fp8 saturating; NaN becomes 0 of integers. P has what conv/window.cuh says, and for the
// operands, which broadcast to y by strides of 0: formula_steps, formula_wide: a bit for each operand whose channels
// lie together in aligned pieces; pointers o0, o1, … and numbers s0, s1, … that the text names.
#include <baracuda/fp8_cast.cuh>
#include "conv/window.cuh"
#include "elementwise/expression.cuh"

namespace baracuda {

struct ProductFormula;

// Outputs n, n + 1, … of a group at a place, of which those before `left` exist, in the operands of a formula.
template <class P> struct FormulaColumns {
  const P& p;
  const ConvRow& place;
  const i64 group, n, left;

  // Those of an operand, as the formula computes with them; 0 where there is no output.
  template <class T, int N> BARACUDA_D Vec<value_t<T>, N> get(const void* operand, int which) const {
    const i64* const step = p.formula_steps[which];
    const T* const from = static_cast<const T*>(operand) + place.offset(step) + group * step[1] + n * step[2];
    return cast_vec<value_t<T>>(p.formula_wide >> which & 1 ? load_vec<T, N, true>(from, left)
                                                            : load_strided<T, N>(from, step[2], left));
  }
};

// Numbers rounded to what y holds.
template <class U, class A, int N> BARACUDA_D Vec<U, N> conv_rounded(const Vec<A, N>& x) {
  if constexpr (is_integer<U>) {
    constexpr A lowest = is_same<U, i8> ? A(-128) : A(0), highest = is_same<U, i8> ? A(127) : A(255);
    Vec<U, N> y;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const A whole = math::rint(x[k]);
      y[k] = static_cast<U>(whole != whole ? 0 : static_cast<int>(math::fmin(math::fmax(whole, lowest), highest)));
    }
    return y;
  } else {
    return from_acc<U>(x);
  }
}

// In the place of ConvEpilogue. F: the formula, which is not yet defined here.
template <class U, class F = ProductFormula> struct ConvFormulaEpilogue {
  template <int N, class P, class A>
  static BARACUDA_D void put(const P& p, const ConvRow& place, i64 group, i64 n, i64, i64 left, const Vec<A, N>& x) {
    const F formula(p);
    const auto y = conv_rounded<U>(cast_vec<A>(formula(FormulaColumns<P>{p, place, group, n, left}, x)));
    const i64* const step = p.y_steps[0];
    U* const to = static_cast<U*>(p.y) + place.offset(step) + group * step[1] + n * step[2];
    if (p.wide & 1) store_vec<U, N, true>(to, y, left);
    else store_strided(to, step[2], y, left);
  }
};

}  // namespace baracuda
