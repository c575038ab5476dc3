#pragma once
// row_kinds  losses of a row of columns: one functor each, over elements T, computed in A = acc_t<T>.
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

template <class A> struct NoSums {};

// -weight[target] x[target]
template <class T, class P> struct NllRow {
  using A = acc_t<T>;
  using State = NoSums<A>;
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

// weight[target] / cols times the sum of max(0, margin - x[target] + x[c])^p over the other columns; p is 1 or 2.
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

// The sum of max(0, 1 - x[t] + x[c]) over the labels t of the row and the columns c that are none, over cols. Labels end
// before the first that is no class.
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

// The mean over the columns of weight[c] times the cross entropy of logits x and targets, operand 1.
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

// 1 - cos(x, y) where the target is 1, max(0, cos - margin) where it is -1, else 0.
template <class T, class P> struct CosineEmbeddingRow {
  using A = acc_t<T>;
  struct State {
    A both, first, second;
  };
  static constexpr int operands = 2;
  const LossRow<T, P>& row;
  A target, scale, own[2];  // of slopes: sign / |x| |y|, and sign cos / |x|^2 and / |y|^2
  BARACUDA_D explicit CosineEmbeddingRow(const LossRow<T, P>& r)
      : row(r), target(r.number()), scale(0), own{A(0), A(0)} {}
  static BARACUDA_D State merge(State a, State b) { return {a.both + b.both, a.first + b.first, a.second + b.second}; }
  BARACUDA_D void add(State& s, i64, const A* x) const {
    s.both += x[0] * x[1], s.first += x[0] * x[0], s.second += x[1] * x[1];
  }
  BARACUDA_D A size(A squares) const { return squares + A(1e-12); }  // as PyTorch keeps it from 0
  BARACUDA_D A lengths(State s) const { return math::sqrt(size(s.first)) * math::sqrt(size(s.second)); }
  BARACUDA_D A loss(State s) const {
    const A cosine = s.both / lengths(s);
    if (target == A(1)) return A(1) - cosine;
    return target == A(-1) ? losses::at_least(cosine - row.margin(), A(0)) : A(0);
  }
  BARACUDA_D A weight() const { return A(1); }
  BARACUDA_D void settle(State s) {
    const A cosine = s.both / lengths(s);
    const A sign = target == A(1) ? A(-1) : target == A(-1) && cosine - row.margin() >= A(0) ? A(1) : A(0);
    scale = sign / lengths(s), own[0] = sign * cosine / size(s.first), own[1] = sign * cosine / size(s.second);
  }
  BARACUDA_D A slope(int n, i64, const A* x) const {
    return n == 0 ? scale * x[1] - own[0] * x[0] : scale * x[0] - own[1] * x[1];
  }
};

// max(0, margin + d(anchor, positive) - d(anchor, negative)), d the norm of order `order` of the difference plus eps;
// with `swap` the negative's distance from the positive, where that is less.
template <class T, class P> struct TripletMarginRow {
  using A = acc_t<T>;
  struct Distance {  // sum: of the powers, or the largest; of those there are `count`
    A sum, count;
  };
  struct State {
    Distance positive, negative, swapped;
  };
  static constexpr int operands = 3;
  const LossRow<T, P>& row;
  A order, eps;
  A d[3], share[3], many[3];  // distances, the loss's derivatives by them, and how many differences are the largest
  BARACUDA_D explicit TripletMarginRow(const LossRow<T, P>& r)
      : row(r), order(static_cast<A>(r.p.order)), eps(static_cast<A>(r.p.eps)), d{}, share{}, many{} {}
  BARACUDA_D bool largest() const { return math::isinf(order); }
  static BARACUDA_D Distance joined(Distance a, Distance b, bool largest) {
    if (!largest) return {a.sum + b.sum, A(0)};
    if (a.sum == b.sum) return {a.sum, a.count + b.count};
    return b.sum > a.sum || math::isnan(b.sum) ? b : a;
  }
  BARACUDA_D State merge(State a, State b) const {
    const bool most = largest();
    return {joined(a.positive, b.positive, most), joined(a.negative, b.negative, most),
            joined(a.swapped, b.swapped, most)};
  }
  BARACUDA_D void join(Distance& s, A difference) const {
    const A size = math::abs(difference);
    A power = size;
    if (order == A(2)) power = size * size;
    else if (order == A(0)) power = size != A(0) ? A(1) : A(0);
    else if (order != A(1) && !largest()) power = math::pow(size, order);
    s = joined(s, {power, A(1)}, largest());
  }
  BARACUDA_D void add(State& s, i64, const A* x) const {
    join(s.positive, x[0] - x[1] + eps), join(s.negative, x[0] - x[2] + eps);
    if (row.p.swap) join(s.swapped, x[1] - x[2] + eps);
  }
  BARACUDA_D A root(A sum) const {
    if (order == A(2)) return math::sqrt(sum);
    return order == A(0) || order == A(1) || largest() ? sum : math::pow(sum, A(1) / order);
  }
  BARACUDA_D A raised(State s) const {
    const A other = root(s.negative.sum), swapped = root(s.swapped.sum);
    return row.margin() + root(s.positive.sum) - (row.p.swap ? math::minimum(other, swapped) : other);
  }
  BARACUDA_D A loss(State s) const { return losses::at_least(raised(s), A(0)); }
  BARACUDA_D A weight() const { return A(1); }
  BARACUDA_D void settle(State s) {
    const Distance all[3] = {s.positive, s.negative, s.swapped};
#pragma unroll
    for (int k = 0; k < 3; ++k) d[k] = root(all[k].sum), many[k] = all[k].count;
    const A on = raised(s) >= A(0) ? A(1) : A(0);
    const A part = !row.p.swap || d[1] < d[2] ? A(1) : d[1] == d[2] ? A(0.5) : A(0);  // of equals each has half
    share[0] = on, share[1] = -on * part, share[2] = -on * (A(1) - part);
  }
  // The derivative of distance k by a difference.
  BARACUDA_D A along(int k, A difference) const {
    const A sign = losses::sign(difference), size = math::abs(difference);
    if (order == A(1)) return sign;
    if (order == A(0) || d[k] == A(0)) return A(0);
    if (order == A(2)) return difference / d[k];
    if (largest()) return size == d[k] ? sign / many[k] : A(0);
    return size == A(0) ? A(0) : sign * math::pow(size / d[k], order - A(1));
  }
  // 0 where the loss is cut off, or has no part of the distance, whatever that is.
  BARACUDA_D A part(int k, A difference) const { return share[k] == A(0) ? A(0) : share[k] * along(k, difference); }
  BARACUDA_D A slope(int n, i64, const A* x) const {
    const A near = part(0, x[0] - x[1] + eps), far = part(1, x[0] - x[2] + eps);
    const A other = row.p.swap ? part(2, x[1] - x[2] + eps) : A(0);
    return n == 0 ? near + far : n == 1 ? other - near : -(far + other);
  }
};

}  // namespace baracuda
