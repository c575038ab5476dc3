#pragma once
// ctc        what the kernels of CTC share: a sequence's lengths and labels, its states, and sums of logarithms.
//
// Of a sequence of L labels the states 0 … 2 L are blank, label 0, blank, label 1, …, blank. A length outside its array is
// cut to it; a label that is no class has the probability 0; more labels than p.most make the loss NaN.
#include <baracuda/math.cuh>
#include <baracuda/reduce.cuh>

namespace baracuda {

BARACUDA_D i64 ctc_integer(const void* from, int wide, i64 at) {
  return wide ? static_cast<const i64*>(from)[at] : static_cast<const i32*>(from)[at];
}

// log(exp(a) + exp(b) + exp(c))
template <class A> BARACUDA_D A log_sum(A a, A b, A c) {
  const A top = math::maximum(a, math::maximum(b, c));
  if (top == -numeric<A>::infinity()) return top;
  return top + math::log(math::exp(a - top) + math::exp(b - top) + math::exp(c - top));
}

template <class T, class P> struct Ctc {
  using A = acc_t<T>;
  const P& p;
  i64 n, steps, labels, first;  // first: where the labels are
  bool fits;

  // Called by all ctc_threads threads: of labels one sequence after another the place is a sum of lengths.
  BARACUDA_D Ctc(const P& params, i64 item) : p(params), n(item) {
    steps = max<i64>(0, min(ctc_integer(p.input_lengths, p.wide_inputs, n * p.input_step), p.steps));
    labels = max<i64>(0, length(n));
    if (p.padded) {
      first = n * p.target_step[0];
    } else {
      i64 before = 0;
      for (i64 m = threadIdx.x; m < n; m += ctc_threads) before += max<i64>(0, length(m));
      before = block_reduce<Sum, ctc_threads>(before);
      first = before * p.target_step[1];
      labels = max<i64>(0, min(labels, p.total - before));
    }
    fits = labels <= p.most;
    labels = min(labels, p.most);
  }
  BARACUDA_D i64 length(i64 m) const { return ctc_integer(p.target_lengths, p.wide_lengths, m * p.length_step); }
  BARACUDA_D i64 states() const { return 2 * labels + 1; }
  BARACUDA_D i64 label(i64 k) const { return ctc_integer(p.targets, p.wide_targets, first + k * p.target_step[1]); }
  BARACUDA_D i64 of_state(i64 s) const { return s & 1 ? label(s / 2) : p.blank; }
  BARACUDA_D A log_prob(i64 t, i64 c) const {
    if (c < 0 || c >= p.classes) return -numeric<A>::infinity();
    return to_acc(static_cast<const T*>(p.log_probs)[t * p.step[0] + n * p.step[1] + c * p.step[2]]);
  }
  // Whether a path may go from state s - 2 to s: past a blank, between two different labels.
  BARACUDA_D bool skips(i64 s) const { return (s & 1) && s > 1 && label(s / 2) != label(s / 2 - 1); }
};

}  // namespace baracuda
