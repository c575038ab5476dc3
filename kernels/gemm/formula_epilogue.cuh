#pragma once
// formula_epilogue   a formula between the sums of a matrix product and its output: y = f(alpha Σ a b, operands).
//
// The formula is text made at run time (baracuda_py/expressions/product_shape.py), which defines behind this file
//
//   ProductFormula   made from P; called with the places of some columns of a row and their x, it gives f of them
//
// x is in the accumulator's type A, and the result is rounded once to U, the element of y. P has what gemm/epilogue.cuh
// says, and for the operands, which broadcast to y by strides of 0: formula_strides (of rows and columns), formula_batch
// (of merged axes formula_batch_shape, formula_batch_rank of them), formula_wide: a bit for each operand whose rows
// start 16-byte aligned with columns of stride 1; pointers o0, o1, … and numbers s0, s1, … that the text names.
#include "elementwise/expression.cuh"
#include "gemm/epilogue.cuh"

namespace baracuda {

struct ProductFormula;

// Columns n, n + 1, … of row m, of which those before `left` exist, in the operands of a formula.
template <class P> struct FormulaColumns {
  const P& p;
  const i64* const begin;  // of each operand's matrix of the batch, in elements
  const i64 m, n, left;

  // Those of an operand, as the formula computes with them; 0 where there is no column.
  template <class T, int N> BARACUDA_D Vec<value_t<T>, N> get(const void* operand, int which) const {
    const i64* const step = p.formula_strides[which];
    const T* const from = static_cast<const T*>(operand) + begin[which] + m * step[0] + n * step[1];
    return cast_vec<value_t<T>>(p.formula_wide >> which & 1 ? load_vec<T, N, true>(from, left)
                                                            : load_strided<T, N>(from, step[1], left));
  }
};

// In the place of Epilogue, whose interface it has. F: the formula, which is not yet defined here.
template <class U, class A, class P, class F = ProductFormula> struct FormulaEpilogue {
  static constexpr bool fragments = false;
  static constexpr int operands = sizeof(P::formula_strides) / sizeof(P::formula_strides[0]);
  const P& p;
  const A alpha;
  const BatchOffsets begin;
  const F formula;
  i64 at[operands];

  BARACUDA_D FormulaEpilogue(const P& p, const BatchOffsets& begin)
      : p(p), alpha(static_cast<A>(p.alpha())), begin(begin), formula(p) {
    offsets<i64, operands>(begin.batch, p.formula_batch_rank, p.formula_batch_shape, p.formula_batch, at);
  }

  BARACUDA_D bool multiplies() const { return alpha != A(0); }
  BARACUDA_D bool down() const { return p.strides[gemm_matrix::y][1] != 1; }

  template <int N> BARACUDA_D void row(i64 m, i64 n, i64 left, const Vec<A, N>& sum, const Vec<A, N>&) const {
    Vec<A, N> x;
#pragma unroll
    for (int k = 0; k < N; ++k) x[k] = sum[k] * alpha;
    const auto y = formula(FormulaColumns<P>{p, at, m, n, left}, x);
    put_columns<U>(p, begin, gemm_matrix::y, p.y, m, n, left, y);
  }
};

}  // namespace baracuda
