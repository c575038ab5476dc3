#pragma once
// scatter_tokens  tokens (positions of an index) of a line, the positions they name, and what they make of an element.
//
// A *line* is what shares no index with others: the coordinates of the axes along which the index differs, but the
// scattered ones. P has the fields of `schedules/scatter.py: scatter_params`.
#include <baracuda/complex.cuh>
#include <baracuda/map.cuh>
#include <baracuda/math.cuh>
#include <baracuda/positions.cuh>

namespace baracuda {

// What tokens make of the element they name: `apply` with each, in order, then `finish` by how many they were.
struct ScatterEvery {
  template <class A> static BARACUDA_D A finish(A a, i64) { return a; }
};
// Signed overflow is not defined, so integers add and multiply as unsigned ones.
template <class A> using wrapping = conditional<is_same<A, i64>, u64, A>;
struct ScatterAdd : ScatterEvery {
  template <class A> static BARACUDA_D A apply(A a, A b) {
    return static_cast<A>(static_cast<wrapping<A>>(a) + static_cast<wrapping<A>>(b));
  }
};
struct ScatterMean : ScatterAdd {  // integers are divided down, as in PyTorch
  template <class A> static BARACUDA_D A finish(A a, i64 count) {
    const A n = static_cast<A>(count);
    if constexpr (is_same<A, i64>) return a / n - (a % n != 0 && a < 0);
    else return a / n;
  }
};
struct ScatterProd : ScatterEvery {
  template <class A> static BARACUDA_D A apply(A a, A b) {
    return static_cast<A>(static_cast<wrapping<A>>(a) * static_cast<wrapping<A>>(b));
  }
};
struct ScatterAmax : ScatterEvery {  // NaN is the largest and the smallest
  template <class A> static BARACUDA_D A apply(A a, A b) { return math::maximum(a, b); }
};
struct ScatterAmin : ScatterEvery {
  template <class A> static BARACUDA_D A apply(A a, A b) { return math::minimum(a, b); }
};

// VEC neighbours, and the tokens combined with them so far. Of the first token nothing is left of what was there where
// `fresh` says so.
template <class F, class T, int VEC> struct Combined {
  Vec<acc_t<T>, VEC> sum;
  bool fresh;
  i32 found = 0;
  BARACUDA_D void add(const Vec<T, VEC>& x) {
    const auto v = to_acc(x);
    const bool first = fresh && found == 0;
    ++found;
#pragma unroll
    for (int k = 0; k < VEC; ++k) sum[k] = first ? v[k] : F::apply(sum[k], v[k]);
  }
  BARACUDA_D Vec<T, VEC> finish() const {
    Vec<acc_t<T>, VEC> out;
#pragma unroll
    for (int k = 0; k < VEC; ++k) out[k] = found == 0 ? sum[k] : F::finish(sum[k], found + !fresh);
    return from_acc<T>(out);
  }
};
// Before any token: what is at x, or 0 where there is none.
template <class F, int VEC, class T> BARACUDA_D Combined<F, T, VEC> combine_with(const T* x, bool fresh) {
  Combined<F, T, VEC> c{{}, fresh};
#pragma unroll
  for (int k = 0; k < VEC; ++k) c.sum[k] = acc_t<T>(0);
  if (x != nullptr) c.sum = to_acc(load<VEC>(x));
  return c;
}

// ---- tokens ---------------------------------------------------------------------------------------------------------

// Strides, and so offsets, may be negative; none is that far below 0.
constexpr i64 no_line = -0x7fffffffffffffff - 1;

// Offset of the first index of a line, or `no_line` for one that the index does not reach.
template <class P> BARACUDA_D i64 line_index(const P& p, i64 line) {
  u64 rest = static_cast<u64>(line);
  i64 offset = 0;
  bool reached = true;
#pragma unroll 1
  for (int axis = p.line_rank - 1; axis >= 0; --axis) {
    u64 c = rest;
    if (axis > 0) rest = divmod(rest, static_cast<u64>(p.line_shape[axis]), c);
    reached = reached && static_cast<i64>(c) < p.line_bound[axis];
    offset += static_cast<i64>(c) * p.line_strides[axis];
  }
  return reached ? offset : no_line;
}
template <class P> BARACUDA_D i64 scatter_token(const P& p, int n, i64 token) {
  if (p.token_rank <= 1) return token * p.token_strides[n][0];
  return offset<i64>(token, p.token_rank, p.token_shape, p.token_strides[n]);
}
// The position that a token of a line names, or -1 for none.
template <class P> BARACUDA_D i64 scatter_row(const P& p, i64 first, i64 token) {
  const i64 at = first + scatter_token(p, 0, token);
  const i64 index = read_index(p.index, p.index_wide, at), row = position_of(index, p.extent);
  report_index(p.status, index, row);
  return row;
}

}  // namespace baracuda
