#pragma once
// multi_margin_loss  weight[target] / cols times the sum of max(0, margin - x[target] + x[c])^p over the other columns;
// p is 1 or 2.
#include "loss/row_kinds.cuh"

namespace baracuda {

template <class T, class P> struct MultiMarginRow {
  using A = acc_t<T>;
  struct State {
    A loss, slope;
  };
  static constexpr int operands = 1;
  i64 own;
  A share, floor, down;
  bool squared;
  BARACUDA_D explicit MultiMarginRow(const LossRow<T, P>& row)
      : own(row.named()), share(0), floor(0), down(0), squared(row.p.order == 2) {
    if (own < 0) return;
    share = row.class_weight(own) / static_cast<A>(row.p.cols), floor = row.margin() - row.at(0, own);
  }
  static BARACUDA_D State merge(State a, State b) { return {a.loss + b.loss, a.slope + b.slope}; }
  BARACUDA_D A steep(A z) const { return !(z > A(0)) ? A(0) : squared ? A(2) * z : A(1); }
  BARACUDA_D void add(State& s, i64 col, const A* x) const {
    if (col == own || own < 0) return;
    const A z = floor + x[0];
    if (z > A(0)) s.loss += squared ? z * z : z;
    else if (math::isnan(z)) s.loss += z;
    s.slope += steep(z);
  }
  BARACUDA_D A loss(State s) const { return share * s.loss; }
  BARACUDA_D A weight() const { return A(1); }
  BARACUDA_D void settle(State s) { down = s.slope; }
  BARACUDA_D A slope(int, i64 col, const A* x) const {
    if (own < 0) return A(0);
    return share * (col == own ? -down : steep(floor + x[0]));
  }
};

}  // namespace baracuda
