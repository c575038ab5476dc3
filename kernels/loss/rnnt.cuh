#pragma once
// rnnt       what the kernels of the RNN transducer share: a sequence's lengths and labels, and sums of logarithms.
//
// A path goes through positions (t, u), from (0, 0): by a blank to (t + 1, u), by label u to (t, u + 1), and by a blank out
// of (steps - 1, labels). A position is one of steps × positions rows of `classes` logits; a length outside its array is
// cut to it, and a label that is no class has the probability 0.
#include <baracuda/reduce.cuh>
#include <baracuda/rows.cuh>

namespace baracuda {

BARACUDA_D i64 rnnt_integer(const void* from, int wide, i64 at) {
  return wide ? static_cast<const i64*>(from)[at] : static_cast<const i32*>(from)[at];
}

// log(exp(a) + exp(b))
template <class A> BARACUDA_D A log_sum(A a, A b) {
  const A top = math::maximum(a, b), low = math::minimum(a, b);
  return top == low ? top + math::log(A(2)) : top + math::log1p(math::exp(low - top));  // also of two infinities
}

template <class P> struct Rnnt {
  const P& p;
  i64 n, steps, labels;
  BARACUDA_D Rnnt(const P& params, i64 item) : p(params), n(item) {
    steps = max<i64>(0, min(rnnt_integer(p.logit_lengths, p.wide_inputs, n * p.input_step), p.steps));
    labels = max<i64>(0, min(rnnt_integer(p.target_lengths, p.wide_lengths, n * p.length_step), p.positions - 1));
  }
  BARACUDA_D bool has(i64 t, i64 u) const { return t >= 0 && t < steps && u >= 0 && u <= labels; }
  BARACUDA_D i64 label(i64 u) const {
    return rnnt_integer(p.targets, p.wide_targets, n * p.target_step[0] + u * p.target_step[1]);
  }
  BARACUDA_D i64 at(i64 t, i64 u) const { return (n * p.steps + t) * p.positions + u; }  // in dense arrays of positions
};

// The position that a warp is at.
template <class P> struct RnntRow {
  i64 row, t, u;
  Rnnt<P> item;
  BARACUDA_D RnntRow(const P& p, i64 r)
      : row(r), t(r / p.positions % p.steps), u(r % p.positions), item(p, r / p.positions / p.steps) {}
  BARACUDA_D bool exists() const { return item.has(t, u); }
  BARACUDA_D i64 label() const { return u < item.labels ? item.label(u) : -1; }  // -1: there is none
};

// f(column, values, left) of every chunk of this lane: chunks lane, lane + 32, … of a row. Of WIDE rows some are on their
// way at once.
template <class T, bool WIDE, class P, class F> BARACUDA_D void rnnt_chunks(const P& p, const T* row, const F& f) {
  constexpr int V = vec_elems<T>, depth = WIDE ? 4 : 1;
#pragma unroll 1
  for (i64 c = static_cast<i64>(lane_id()) * V; c < p.cols; c += depth * warp_size * V) {
    Chunk held[depth];
#pragma unroll
    for (int k = 0; k < depth; ++k) {
      const i64 col = c + k * warp_size * V;
      held[k] = load_chunk<T, WIDE>(p, 0, row, col, p.cols - col);
    }
#pragma unroll
    for (int k = 0; k < depth; ++k) {
      const i64 col = c + k * warp_size * V;
      if (col < p.cols) f(col, to_acc(unpack<T>(held[k])), p.cols - col);
    }
  }
}

}  // namespace baracuda
