#pragma once
// policy_terms  a token of the clipped policy-gradient losses, and a value of PPO's clipped value loss: its loss and slopes.
//
// Parameters P have pointers to the operands, `step[operand][row or token]`, and the options. Everything is in
// A = acc_t<T>. A thread has the operands of `policy_in_flight` tokens on their way before it looks at the first.
#include <baracuda/math.cuh>
#include <baracuda/reduce.cuh>
#include <baracuda/wanted.cuh>

namespace baracuda {

template <class T> constexpr int policy_in_flight = sizeof(T) == 8 ? 2 : 4;

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

// What is read of a token.
enum PolicyReads : u32 {
  no_reads = 0,
  reads_ratio = 1,
  reads_policy = 2,
  reads_advantage = 4,
  reads_reference = 8,
  reads_entropy = 16
};

// A token's operands as they lie in memory; `slope` is the gradient of a loss of its own.
template <class T> struct PolicyToken {
  Word<sizeof(T)> policy, old, advantage, reference, entropy, slope;
  u8 mask;
  static BARACUDA_D acc_t<T> value(const Word<sizeof(T)>& word) { return to_acc(reinterpret_cast<const T&>(word)); }
};

// What a thread reads of an operand: an element for each of its tokens, which lie policy_threads tokens apart.
template <class E> struct PolicyStrand {
  const E* at;
  i64 apart;
  bool wanted;
  BARACUDA_D PolicyStrand(const void* from, const i64 (&step)[2], i64 row, i64 token, bool wanted)
      : at(static_cast<const E*>(from) + (row * step[0] + token * step[1])), apart(policy_threads * step[1]),
        wanted(wanted && from != nullptr) {}
  BARACUDA_D void next(Word<sizeof(E)>& word, bool there) {
    load_wanted(word, at, there && wanted);
    at += apart;
  }
};

// A thread's operands, from its first token on.
template <class T> struct PolicyStrands {
  PolicyStrand<T> policy, old, advantage, reference, entropy, slope;
  PolicyStrand<u8> mask;
  template <class P>
  BARACUDA_D PolicyStrands(const P& p, i64 row, i64 token, u32 reads)
      : policy(p.policy, p.step[0], row, token, (reads & (reads_ratio | reads_policy)) != 0),
        old(p.old, p.step[1], row, token, (reads & reads_ratio) != 0),
        advantage(p.advantages, p.step[2], row, token, (reads & reads_advantage) != 0),
        reference(p.reference, p.step[3], row, token, (reads & reads_reference) != 0),
        entropy(p.entropy, p.step[5], row, token, (reads & reads_entropy) != 0),
        slope(p.dloss, p.dstep, row, token, p.per_token != 0), mask(p.mask, p.step[4], row, token, true) {}
  // Starts the loads of the next token, if it is `there`.
  BARACUDA_D void next(PolicyToken<T>& own, bool there) {
    policy.next(own.policy, there), old.next(own.old, there), advantage.next(own.advantage, there);
    reference.next(own.reference, there), entropy.next(own.entropy, there), slope.next(own.slope, there);
    mask.next(own.mask, there);
  }
};

template <class T, class P> struct PolicyRow {
  using A = acc_t<T>;
  using Token = PolicyToken<T>;
  const P& p;
  const i64 row;

  BARACUDA_D bool counts(const Token& own) const { return p.mask == nullptr || own.mask != 0; }
  BARACUDA_D A log_ratio(const Token& own) const { return Token::value(own.policy) - Token::value(own.old); }
  // `s`: the logarithm of the ratio, the token's or its sequence's.
  BARACUDA_D PolicyTerm<A> term(const Token& own, A s) const {
    const A advantage = Token::value(own.advantage);
    if (p.value) return clipped_square(p, Token::value(own.policy), Token::value(own.old), advantage);
    return surrogate(p, s, advantage);
  }
  // The divergence from the reference model, k1, k2 or k3 of d = reference - policy, and its slope by policy.
  BARACUDA_D void away(const Token& own, A& value, A& slope) const {
    const A d = Token::value(own.reference) - Token::value(own.policy);
    if (p.estimator == 0) value = -d, slope = A(1);
    else if (p.estimator == 1) value = d * d / A(2), slope = -d;
    else value = math::expm1(d) - d, slope = -math::expm1(d);
  }
  // Of all chunks of the row, in their order; four are read at once.
  BARACUDA_D PolicySums<A> whole(const void* parts) const {
    const auto* const own = static_cast<const PolicySums<A>*>(parts) + row * p.chunks;
    PolicySums<A> sum = own[0];
#pragma unroll 1
    for (i64 c0 = 1; c0 < p.chunks; c0 += 4) {
      PolicySums<A> next[4];
#pragma unroll
      for (int u = 0; u < 4; ++u) next[u] = own[min(c0 + u, p.chunks - 1)];
#pragma unroll
      for (int u = 0; u < 4; ++u) {
        if (c0 + u < p.chunks) sum = AddPolicySums::apply(sum, next[u]);
      }
    }
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
  BARACUDA_D A gradient(const Token& own, A scale) const { return p.per_token ? Token::value(own.slope) : scale; }
};

}  // namespace baracuda
