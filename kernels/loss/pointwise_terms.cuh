#pragma once
// pointwise_terms  the losses of one element: term(options, x, t, v) and slope<N>, its derivative by x (0), the target t
// (1) and the third operand v (2). A is the accumulator; nothing is rounded to the element before it is added.
#include <baracuda/math.cuh>

namespace baracuda {

// What a kind's row hands over: its numbers and flags in order, and what stands in the place of an absent v.
template <class A> struct LossOptions {
  A first, second, third;
  bool one, two;
  template <class P>
  BARACUDA_D explicit LossOptions(const P& p)
      : first(static_cast<A>(p.first)), second(static_cast<A>(p.second)), third(static_cast<A>(p.third_number)),
        one((p.flags & 1) != 0), two((p.flags & 2) != 0) {}
};

namespace losses {

template <class A> constexpr A half_log_tau = A(0.91893853320467274178);

template <class A> BARACUDA_D A sigmoid(A x) {
  const A e = math::exp(-math::abs(x));
  return (x >= A(0) ? A(1) : e) / (A(1) + e);
}
// -1, 0 or 1; NaN of NaN.
template <class A> BARACUDA_D A sign(A x) { return x > A(0) ? A(1) : x < A(0) ? A(-1) : x; }
template <class A> BARACUDA_D A at_least(A x, A low) { return x < low ? low : x; }
template <class A> BARACUDA_D A within(A x, A end) { return x < -end ? -end : x > end ? end : x; }
// p x, where nothing of an infinity is 0.
template <class A> BARACUDA_D A weighed(A p, A x) { return p != A(0) ? p * x : math::isnan(x) ? x : A(0); }

#define BARACUDA_LOSS_OPERANDS \
  [[maybe_unused]] const LossOptions<A>&o, [[maybe_unused]] A x, [[maybe_unused]] A t, [[maybe_unused]] A v

template <class A> struct Mse {
  static BARACUDA_D A term(BARACUDA_LOSS_OPERANDS) { return (x - t) * (x - t); }
  template <int N> static BARACUDA_D A slope(BARACUDA_LOSS_OPERANDS) {
    const A d = A(2) * (x - t);
    return N == 0 ? d : -d;
  }
};

template <class A> struct L1 {
  static BARACUDA_D A term(BARACUDA_LOSS_OPERANDS) { return math::abs(x - t); }
  template <int N> static BARACUDA_D A slope(BARACUDA_LOSS_OPERANDS) { return N == 0 ? sign(x - t) : -sign(x - t); }
};

template <class A> struct SmoothL1 {  // first: beta
  static BARACUDA_D A term(BARACUDA_LOSS_OPERANDS) {
    const A d = math::abs(x - t);
    return d < o.first ? A(0.5) * d * (d / o.first) : d - A(0.5) * o.first;
  }
  template <int N> static BARACUDA_D A slope(BARACUDA_LOSS_OPERANDS) {
    const A d = x - t, g = math::abs(d) < o.first ? d / o.first : sign(d);
    return N == 0 ? g : -g;
  }
};

template <class A> struct Huber {  // first: delta
  static BARACUDA_D A term(BARACUDA_LOSS_OPERANDS) {
    const A d = math::abs(x - t);
    return d <= o.first ? A(0.5) * d * d : o.first * (d - A(0.5) * o.first);
  }
  template <int N> static BARACUDA_D A slope(BARACUDA_LOSS_OPERANDS) {
    const A g = within(x - t, o.first);
    return N == 0 ? g : -g;
  }
};

template <class A> struct Bce {  // logarithms are -100 at least, as in PyTorch
  static BARACUDA_D A log_of(A x) { return at_least(math::log(x), A(-100)); }
  static BARACUDA_D A log_rest(A x) { return at_least(math::log1p(-x), A(-100)); }
  static BARACUDA_D A term(BARACUDA_LOSS_OPERANDS) { return (t - A(1)) * log_rest(x) - t * log_of(x); }
  template <int N> static BARACUDA_D A slope(BARACUDA_LOSS_OPERANDS) {
    if constexpr (N == 0) return (x - t) / at_least((A(1) - x) * x, A(1e-12));
    else return log_rest(x) - log_of(x);
  }
};

template <class A> struct BceWithLogits {  // v: pos_weight
  static BARACUDA_D A term(BARACUDA_LOSS_OPERANDS) {
    return weighed(v * t, math::softplus(-x)) + weighed(A(1) - t, math::softplus(x));
  }
  template <int N> static BARACUDA_D A slope(BARACUDA_LOSS_OPERANDS) {
    if constexpr (N == 0) return (A(1) - t) * sigmoid(x) - v * t * sigmoid(-x);
    else return v * math::softplus(-x) - math::softplus(x);
  }
};

template <class A> struct KlDiv {  // one: whether t is a logarithm
  static BARACUDA_D A nothing(A x) { return math::isnan(x) ? x : A(0); }
  static BARACUDA_D A term(BARACUDA_LOSS_OPERANDS) {
    const A p = o.one ? math::exp(t) : t;
    return p == A(0) ? nothing(x) : p * ((o.one ? t : math::log(t)) - x);
  }
  template <int N> static BARACUDA_D A slope(BARACUDA_LOSS_OPERANDS) {
    if constexpr (N == 0) return o.one ? -math::exp(t) : -t;
    if (!o.one) return math::log(t) + A(1) - x;
    const A p = math::exp(t);
    return p == A(0) ? nothing(x) : p * (t - x + A(1));
  }
};

template <class A> struct PoissonNll {  // first: eps, one: whether x is a logarithm, two: with Stirling's terms
  static BARACUDA_D A term(BARACUDA_LOSS_OPERANDS) {
    const A found = o.one ? math::exp(x) - t * x : x - t * math::log(x + o.first);
    if (!o.two || !(t > A(1))) return found;
    const A log_t = math::log(t);
    return found + (t * log_t - t + (A(0.5) * log_t + half_log_tau<A>));
  }
  template <int N> static BARACUDA_D A slope(BARACUDA_LOSS_OPERANDS) {
    if constexpr (N == 0) return o.one ? math::exp(x) - t : A(1) - t / (x + o.first);
    const A found = o.one ? -x : -math::log(x + o.first);
    return o.two && t > A(1) ? found + (math::log(t) + A(0.5) / t) : found;
  }
};

template <class A> struct GaussianNll {  // v: the variance, first: its least value; one: with the constant
  static BARACUDA_D A term(BARACUDA_LOSS_OPERANDS) {
    const A s = at_least(v, o.first), found = A(0.5) * (math::log(s) + (x - t) * ((x - t) / s));
    return o.one ? found + half_log_tau<A> : found;
  }
  template <int N> static BARACUDA_D A slope(BARACUDA_LOSS_OPERANDS) {
    const A s = at_least(v, o.first), d = (x - t) / s;
    if constexpr (N == 2) return A(0.5) * (A(1) / s - d * d);
    else return N == 0 ? d : -d;
  }
};

template <class A> struct HingeEmbedding {  // first: margin
  static BARACUDA_D A term(BARACUDA_LOSS_OPERANDS) {
    return (t != A(-1) ? x : A(0)) + (t != A(1) ? at_least(o.first - x, A(0)) : A(0));
  }
  template <int N> static BARACUDA_D A slope(BARACUDA_LOSS_OPERANDS) {
    return (t != A(-1) ? A(1) : A(0)) - (t != A(1) && o.first - x >= A(0) ? A(1) : A(0));
  }
};

template <class A> struct SoftMargin {
  static BARACUDA_D A term(BARACUDA_LOSS_OPERANDS) { return math::softplus(-t * x); }
  template <int N> static BARACUDA_D A slope(BARACUDA_LOSS_OPERANDS) { return -t * sigmoid(-t * x); }
};

template <class A> struct MarginRanking {  // v: the second input, first: margin
  static BARACUDA_D A term(BARACUDA_LOSS_OPERANDS) { return at_least(o.first - t * (x - v), A(0)); }
  template <int N> static BARACUDA_D A slope(BARACUDA_LOSS_OPERANDS) {
    if (!(o.first - t * (x - v) >= A(0))) return A(0);
    if constexpr (N == 1) return v - x;
    else return N == 0 ? -t : t;
  }
};

template <class A> struct SigmoidFocal {  // first: alpha, below 0 for none; second: gamma
  static BARACUDA_D A power(const LossOptions<A>& o, A apart, A less) {
    if (o.second == A(0)) return less == A(0) ? A(1) : A(0);
    return less == A(0) ? math::pow(apart, o.second) : o.second * math::pow(apart, o.second - A(1));
  }
  static BARACUDA_D A part(const LossOptions<A>& o, A t) {
    return o.first >= A(0) ? o.first * t + (A(1) - o.first) * (A(1) - t) : A(1);
  }
  static BARACUDA_D A entropy(A x, A t) {
    return weighed(t, math::softplus(-x)) + weighed(A(1) - t, math::softplus(x));
  }
  static BARACUDA_D A term(BARACUDA_LOSS_OPERANDS) {
    const A apart = sigmoid(x) * (A(1) - t) + sigmoid(-x) * t;
    return part(o, t) * weighed(power(o, apart, A(0)), entropy(x, t));
  }
  template <int N> static BARACUDA_D A slope(BARACUDA_LOSS_OPERANDS) {
    const A p = sigmoid(x), q = sigmoid(-x), apart = p * (A(1) - t) + q * t;
    const A near = power(o, apart, A(0)), steep = entropy(x, t) * power(o, apart, A(1));
    if constexpr (N == 0) {
      return part(o, t) * (((A(1) - t) * p - t * q) * near + steep * (A(1) - A(2) * t) * (p * q));
    } else {
      const A found = part(o, t) * (-x * near + steep * (q - p));
      return o.first >= A(0) ? found + (A(2) * o.first - A(1)) * entropy(x, t) * near : found;
    }
  }
};

template <class A> struct Jsd {  // x = log q, t = log p, first: beta
  static BARACUDA_D A mixture(const LossOptions<A>& o, A x, A t) {
    const A top = math::maximum(x, t);
    if (math::isinf(top)) return top;
    return top + math::log(o.first * math::exp(t - top) + (A(1) - o.first) * math::exp(x - top));
  }
  static BARACUDA_D A times(A p, A x) { return p == A(0) ? A(0) : p * x; }
  static BARACUDA_D A term(BARACUDA_LOSS_OPERANDS) {
    const A q = math::exp(x), p = math::exp(t);
    if (o.first == A(0)) return times(p, t - x);
    if (o.first == A(1)) return times(q, x - t);
    const A m = mixture(o, x, t);
    return o.first * times(p, t - m) + (A(1) - o.first) * times(q, x - m);
  }
  template <int N> static BARACUDA_D A slope(BARACUDA_LOSS_OPERANDS) {
    const A own = N == 0 ? x : t, other = N == 0 ? t : x, share = N == 0 ? A(1) - o.first : o.first;
    if (share == A(1)) return -math::exp(other);
    if (share == A(0)) return times(math::exp(own), own - other + A(1));
    return share * times(math::exp(own), own - mixture(o, x, t));
  }
};

#undef BARACUDA_LOSS_OPERANDS

}  // namespace losses
}  // namespace baracuda
