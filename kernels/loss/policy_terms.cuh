#pragma once
// policy_terms  a token of the clipped policy-gradient losses, and a value of PPO's clipped value loss: its loss and slopes.
//
// Parameters P have pointers to the operands, `step[operand][row or token]`, and the options. Everything is in
// A = acc_t<T>.
#include <baracuda/math.cuh>
#include <baracuda/reduce.cuh>

namespace baracuda {

constexpr int policy_threads = 256, policy_chunk = 2048;

// What a chunk of tokens adds up: those that count, their losses, those that are clipped, and two divergences.
template <class A> struct PolicySums {
  A count, loss, clipped, moved, away;
};

struct AddPolicySums {
  static constexpr bool symmetric = true;
  template <class S> static BARACUDA_D S apply(S a, S b) {
    return {a.count + b.count, a.loss + b.loss, a.clipped + b.clipped, a.moved + b.moved, a.away + b.away};
  }
};

// loss and its slope by the logarithm of the ratio, or by the value.
template <class A> struct PolicyTerm {
  A loss, slope;
  bool clipped;
};

// The slope of the lesser of two terms; of equal ones the mean of both.
template <class A> BARACUDA_D A lesser_slope(bool less, bool more, A first, A second) {
  return less ? first : more ? second : (first + second) / A(2);
}

// -min(min(r, delta) A, clip(r, low, high) A) with r = exp(s); delta is 0 where there is no such bound.
template <class A, class P> BARACUDA_D PolicyTerm<A> surrogate(const P& p, A s, A advantage) {
  const A low = static_cast<A>(p.low), high = static_cast<A>(p.high), cap = static_cast<A>(p.delta), r = math::exp(s);
  const A a = (p.delta != 0 ? math::minimum(r, cap) : r) * advantage;
  const A b = math::minimum(math::maximum(r, low), high) * advantage;
  const A first = p.delta == 0 || r <= cap ? advantage : A(0), second = r >= low && r <= high ? advantage : A(0);
  const A steep = lesser_slope(a < b, b < a, first, second);
  // A clipped ratio has no slope, infinite ones included; NaN stays NaN.
  const A slope = steep == A(0) && !math::isnan(r) ? A(0) : -steep * r;
  return {-math::minimum(a, b), slope, b < a};
}

// max((v - goal)², (clip(v, old + low, old + high) - goal)²) / 2
template <class A, class P> BARACUDA_D PolicyTerm<A> clipped_square(const P& p, A v, A old, A goal) {
  const A low = old + static_cast<A>(p.low), high = old + static_cast<A>(p.high);
  const A far = v - goal, near = math::minimum(math::maximum(v, low), high) - goal, a = far * far, b = near * near;
  const A slope = lesser_slope(a > b, b > a, far, v >= low && v <= high ? near : A(0));
  return {math::maximum(a, b) / A(2), slope, b > a};
}

template <class T, class P> struct PolicyRow {
  using A = acc_t<T>;
  const P& p;
  const i64 row;

  BARACUDA_D i64 place(int operand, i64 token) const { return row * p.step[operand][0] + token * p.step[operand][1]; }
  BARACUDA_D A read(const void* from, int operand, i64 token) const {
    return to_acc(static_cast<const T*>(from)[place(operand, token)]);
  }
  BARACUDA_D bool counts(i64 token) const {
    return p.mask == nullptr || static_cast<const u8*>(p.mask)[place(4, token)] != 0;
  }
  BARACUDA_D A log_ratio(i64 token) const { return read(p.policy, 0, token) - read(p.old, 1, token); }
  // `s`: the logarithm of the ratio, the token's or its sequence's.
  BARACUDA_D PolicyTerm<A> term(i64 token, A s) const {
    const A advantage = read(p.advantages, 2, token);
    if (p.value) return clipped_square(p, read(p.policy, 0, token), read(p.old, 1, token), advantage);
    return surrogate(p, s, advantage);
  }
  // The divergence from the reference model, k1, k2 or k3 of d = reference - policy, and its slope by policy.
  BARACUDA_D void away(i64 token, A& value, A& slope) const {
    const A d = read(p.reference, 3, token) - read(p.policy, 0, token);
    if (p.estimator == 0) value = -d, slope = A(1);
    else if (p.estimator == 1) value = d * d / A(2), slope = -d;
    else value = math::expm1(d) - d, slope = -math::expm1(d);
  }
  // Of all chunks of the row, in their order.
  BARACUDA_D PolicySums<A> whole(const void* parts) const {
    const auto* const own = static_cast<const PolicySums<A>*>(parts) + row * p.chunks;
    PolicySums<A> sum = own[0];
#pragma unroll 1
    for (i64 c = 1; c < p.chunks; ++c) sum = AddPolicySums::apply(sum, own[c]);
    return sum;
  }
  // How many tokens of the row count, 1 at least. p.counts: the chunks' sums, null where all count.
  BARACUDA_D A tokens() const {
    const A found = p.counts == nullptr ? static_cast<A>(p.tokens) : whole(p.counts).count;
    return found < A(1) ? A(1) : found;
  }
  // The logarithm of the sequence's ratio: the mean over its tokens.
  BARACUDA_D A row_ratio() const {
    const PolicySums<A> sum = whole(p.counts);
    return sum.loss / (sum.count < A(1) ? A(1) : sum.count);
  }
  // What a token's slopes are multiplied by, but for a gradient of its own: dloss over what divides the sum.
  BARACUDA_D A scale() const {
    if (p.per_token) return A(1);
    const A g = *static_cast<const A*>(p.dloss);
    if (p.by_row) return g / (tokens() * static_cast<A>(p.divisor));
    if (!p.by_count) return g / static_cast<A>(p.divisor);
    const A every =
        p.total == nullptr ? static_cast<A>(p.rows) * static_cast<A>(p.tokens) : *static_cast<const A*>(p.total);
    return g / (every < A(1) ? A(1) : every);
  }
  BARACUDA_D A gradient(i64 token, A scale) const {
    if (!p.per_token) return scale;
    return to_acc(static_cast<const T*>(p.dloss)[row * p.dstep[0] + token * p.dstep[1]]);
  }
};

}  // namespace baracuda
