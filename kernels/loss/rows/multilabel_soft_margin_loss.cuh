#pragma once
// multilabel_soft_margin_loss  the mean over the columns of weight[c] times the cross entropy of logits x and targets,
// operand 1.
#include "loss/row_kinds.cuh"

namespace baracuda {

template <class T, class P> struct MultilabelSoftMarginRow {
  using A = acc_t<T>;
  struct State {
    A loss;
  };
  static constexpr int operands = 2;
  const LossRow<T, P>& row;
  BARACUDA_D explicit MultilabelSoftMarginRow(const LossRow<T, P>& r) : row(r) {}
  static BARACUDA_D State merge(State a, State b) { return {a.loss + b.loss}; }
  BARACUDA_D void add(State& s, i64 col, const A* x) const {
    s.loss += row.class_weight(col) *
              (losses::weighed(x[1], math::softplus(-x[0])) + losses::weighed(A(1) - x[1], math::softplus(x[0])));
  }
  BARACUDA_D A loss(State s) const { return s.loss / static_cast<A>(row.p.cols); }
  BARACUDA_D A weight() const { return A(1); }
  BARACUDA_D void settle(State) {}
  BARACUDA_D A slope(int n, i64 col, const A* x) const {
    const A w = row.class_weight(col) / static_cast<A>(row.p.cols);
    if (n == 1) return -w * x[0];
    return w * ((A(1) - x[1]) * losses::sigmoid(x[0]) - x[1] * losses::sigmoid(-x[0]));
  }
};

}  // namespace baracuda
