#pragma once
// triplet_margin_loss  max(0, margin + d(anchor, positive) - d(anchor, negative)), d the norm of order `order` of the
// difference plus eps; with `swap` the negative's distance from the positive, where that is less.
#include "loss/row_kinds.cuh"

namespace baracuda {

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
  static BARACUDA_D Distance merged(Distance a, Distance b, bool largest) {
    if (!largest) return {a.sum + b.sum, A(0)};
    if (a.sum == b.sum) return {a.sum, a.count + b.count};
    return b.sum > a.sum || math::isnan(b.sum) ? b : a;
  }
  BARACUDA_D State merge(State a, State b) const {
    const bool most = largest();
    return {merged(a.positive, b.positive, most), merged(a.negative, b.negative, most),
            merged(a.swapped, b.swapped, most)};
  }
  BARACUDA_D void join(Distance& s, A difference) const {
    const A size = math::abs(difference);
    A power = size;
    if (order == A(2)) power = size * size;
    else if (order == A(0)) power = size != A(0) ? A(1) : A(0);
    else if (order != A(1) && !largest()) power = math::pow(size, order);
    s = merged(s, {power, A(1)}, largest());
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
