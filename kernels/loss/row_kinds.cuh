#pragma once
// row_kinds  losses of a row of columns, over elements T, computed in A = acc_t<T>. Each has a file of its own,
// loss/rows/<kind>.cuh, which a unit of the kind includes.
//
// A kind K<T> is made for a row and has
//   operands                     arrays of the row's length that add and slope read, x first
//   State                        what is added up over the columns; merge(a, b) of two parts
//   add(State&, col, x)          adds a column; x[n] is operand n there
//   loss(State), weight()        the row's loss, and its part of what a mean divides by (NLL)
//   settle(State)                before slopes: the whole row's state
//   slope(n, col, x)             the loss's derivative by operand n at a column
// `LossRow` is the row: where its operands are, its target, and the options of the parameters P.
#include <baracuda/math.cuh>
#include <baracuda/vector.cuh>
#include "loss/pointwise_terms.cuh"

namespace baracuda {

constexpr int row_operands = 3;  // arrays a row has at most; a fourth holds labels

template <class T, class P> struct LossRow {
  using A = acc_t<T>;
  const P& p;
  const T* x[row_operands];
  const void* labels;  // of the row, label_step apart
  i64 target;          // where the row's target is
  BARACUDA_D A margin() const { return static_cast<A>(p.margin); }
  BARACUDA_D A at(int n, i64 col) const { return to_acc(x[n][col * p.step[n]]); }
  BARACUDA_D A class_weight(i64 col) const {
    return p.weight == nullptr ? A(1) : to_acc(static_cast<const T*>(p.weight)[col * p.weight_step]);
  }
  BARACUDA_D i64 integer(const void* from, i64 offset) const {
    return p.wide_targets ? static_cast<const i64*>(from)[offset] : static_cast<const i32*>(from)[offset];
  }
  // The row's target as a number.
  BARACUDA_D A number() const {
    if (p.whole_target) return static_cast<A>(integer(p.target, target));
    return to_acc(static_cast<const T*>(p.target)[target]);
  }
  // The row's class; -1 where it counts for nothing: ignore_index, and, which a checked run reports, what is no class.
  BARACUDA_D i64 named() const {
    const i64 t = integer(p.target, target);
    if (t == p.ignore) return -1;
    if (t >= 0 && t < p.cols) return t;
    if (p.status != nullptr) atomicOr(p.status, 1u);
    return -1;
  }
};

}  // namespace baracuda
