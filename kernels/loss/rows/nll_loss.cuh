#pragma once
// nll_loss  -weight[target] x[target].
#include "loss/row_kinds.cuh"

namespace baracuda {

template <class T, class P> struct NllRow {
  using A = acc_t<T>;
  struct State {};
  static constexpr int operands = 0;
  i64 own;
  A share, value;
  BARACUDA_D explicit NllRow(const LossRow<T, P>& row) : own(row.named()), share(0), value(0) {
    if (own < 0) return;
    share = row.class_weight(own), value = row.at(0, own);
  }
  static BARACUDA_D State merge(State a, State) { return a; }
  BARACUDA_D void add(State&, i64, const A*) const {}
  BARACUDA_D A loss(State) const { return own < 0 ? A(0) : -share * value; }
  BARACUDA_D A weight() const { return share; }
  BARACUDA_D void settle(State) {}
  BARACUDA_D A slope(int, i64 col, const A*) const { return col == own ? -share : A(0); }
};

}  // namespace baracuda
