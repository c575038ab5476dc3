#pragma once
// multilabel_margin_loss  the sum of max(0, 1 - x[t] + x[c]) over the labels t of the row and the columns c that are
// none, over cols. Labels end before the first that is no class.
#include "loss/row_kinds.cuh"

namespace baracuda {

template <class T, class P> struct MultilabelMarginRow {
  using A = acc_t<T>;
  struct State {
    A loss;
  };
  static constexpr int operands = 1;
  const LossRow<T, P>& row;
  i64 count;
  BARACUDA_D explicit MultilabelMarginRow(const LossRow<T, P>& r) : row(r), count(0) {
    while (count < r.p.cols && label(count) >= 0 && label(count) < r.p.cols) ++count;
  }
  static BARACUDA_D State merge(State a, State b) { return {a.loss + b.loss}; }
  BARACUDA_D i64 label(i64 k) const { return row.integer(row.labels, k * row.p.label_step); }
  BARACUDA_D i64 times(i64 col, i64 before) const {  // how often a column is among the labels before one
    i64 found = 0;
    for (i64 k = 0; k < before; ++k) found += label(k) == col;
    return found;
  }
  BARACUDA_D void add(State& s, i64 col, const A* x) const {
    if (times(col, count) > 0) return;
    for (i64 k = 0; k < count; ++k) {
      const A z = A(1) - row.at(0, label(k)) + x[0];
      if (z > A(0) || math::isnan(z)) s.loss += z;
    }
  }
  BARACUDA_D A loss(State s) const { return s.loss / static_cast<A>(row.p.cols); }
  BARACUDA_D A weight() const { return A(1); }
  BARACUDA_D void settle(State) {}
  BARACUDA_D bool above(i64 label, i64 col) const { return A(1) - row.at(0, label) + row.at(0, col) > A(0); }
  BARACUDA_D A slope(int, i64 col, const A*) const {
    const i64 named = times(col, count);
    i64 found = 0;
    if (named == 0) {
      for (i64 k = 0; k < count; ++k) found += above(label(k), col);
      return static_cast<A>(found) / static_cast<A>(row.p.cols);
    }
    for (i64 c = 0; c < row.p.cols; ++c) found += above(col, c);
    for (i64 k = 0; k < count; ++k) found -= times(label(k), k) == 0 && above(col, label(k));  // each label once
    return -static_cast<A>(named * found) / static_cast<A>(row.p.cols);
  }
};

}  // namespace baracuda
