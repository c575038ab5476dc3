#pragma once
// functors   what tokens of a segment are combined to; see combine.cuh for what a functor says.
#include <baracuda/math.cuh>

namespace baracuda {

struct SegmentFunctor {
  static constexpr int planes = 1;
  static constexpr bool factor = false, versus = false, masked = false, weighted = false;
  static constexpr bool kept = false, argued = false, counted = false;
  template <class P, class A, int N> static BARACUDA_D A finish(const P&, const A (&s)[N], i64) { return s[0]; }
};

// Signed overflow is not defined, so integers add and multiply as unsigned ones.
template <class A> using wrapping_of = conditional<is_same<A, i64>, u64, A>;

// The sum; with p.mean divided by the number of tokens, where there are any.
struct SegmentSum : SegmentFunctor {
  template <class A> static BARACUDA_D void identity(A (&s)[1]) { s[0] = A(0); }
  template <class A> static BARACUDA_D void add(A (&s)[1], A x, i32) {
    s[0] = static_cast<A>(static_cast<wrapping_of<A>>(s[0]) + static_cast<wrapping_of<A>>(x));
  }
  template <class A> static BARACUDA_D void combine(A (&s)[1], const A (&o)[1]) { add(s, o[0], 0); }
  template <class P, class A> static BARACUDA_D A finish(const P& p, const A (&s)[1], i64 n) {
    return p.mean ? s[0] / static_cast<A>(max<i64>(n, 1)) : s[0];
  }
};
using SegmentMean = SegmentSum;

struct SegmentProd : SegmentFunctor {
  template <class A> static BARACUDA_D void identity(A (&s)[1]) { s[0] = A(1); }
  template <class A> static BARACUDA_D void add(A (&s)[1], A x, i32) {
    s[0] = static_cast<A>(static_cast<wrapping_of<A>>(s[0]) * static_cast<wrapping_of<A>>(x));
  }
  template <class A> static BARACUDA_D void combine(A (&s)[1], const A (&o)[1]) { add(s, o[0], 0); }
};

// NaN is the largest and the smallest. LOW and HIGH are the limits of the element, in its accumulator.
template <class T> struct SegmentMax : SegmentFunctor {
  template <class A> static BARACUDA_D void identity(A (&s)[1]) { s[0] = to_acc(numeric<T>::bottom()); }
  template <class A> static BARACUDA_D void add(A (&s)[1], A x, i32) { s[0] = math::maximum(s[0], x); }
  template <class A> static BARACUDA_D void combine(A (&s)[1], const A (&o)[1]) { add(s, o[0], 0); }
};
template <class T> struct SegmentMin : SegmentFunctor {
  template <class A> static BARACUDA_D void identity(A (&s)[1]) { s[0] = to_acc(numeric<T>::top()); }
  template <class A> static BARACUDA_D void add(A (&s)[1], A x, i32) { s[0] = math::minimum(s[0], x); }
  template <class A> static BARACUDA_D void combine(A (&s)[1], const A (&o)[1]) { add(s, o[0], 0); }
};

// A maximum and the sum of exp(x - maximum). Equal ones come first: two infinities must not give inf - inf. A NaN is
// never the maximum, but makes the sum NaN.
struct SegmentExp : SegmentFunctor {
  static constexpr int planes = 2;
  template <class A> static BARACUDA_D A share(A x, A largest) { return x == largest ? A(1) : math::exp(x - largest); }
  template <class A> static BARACUDA_D void identity(A (&s)[2]) { s[0] = numeric<A>::bottom(), s[1] = A(0); }
  template <class A> static BARACUDA_D void add(A (&s)[2], A x, i32) {
    const A one[2] = {x, A(1)};
    if (x != x) s[1] = x;
    else combine(s, one);
  }
  template <class A> static BARACUDA_D void combine(A (&s)[2], const A (&o)[2]) {
    // The larger one's share is 1, so that one exponential does.
    const bool more = o[0] > s[0];
    const A largest = more ? o[0] : s[0], part = share(more ? s[0] : o[0], largest);
    s[1] = s[1] * (more ? part : A(1)) + o[1] * (more ? A(1) : part);
    s[0] = largest;
  }
};
struct SegmentLogsumexp : SegmentExp {
  template <class P, class A> static BARACUDA_D A finish(const P&, const A (&s)[2], i64) {
    return s[0] + math::log(s[1]);
  }
};
struct SegmentExpKept : SegmentExp {
  static constexpr bool kept = true;
};

// ---- what gradients need of a segment -------------------------------------------------------------------------------

// How many of the tokens are what their segment came to; NaN are all alike.
struct SegmentTies : SegmentSum {
  static constexpr bool versus = true, kept = true;
  template <class A> static BARACUDA_D bool same(A a, A b) { return a == b || (a != a && b != b); }
};

// A product as fraction times 2^exponent, which no factor takes out of range; zeros and infinities are counted instead,
// up to two of each: zeros + 3 * infinities + 9 * NaN.
struct SegmentFactors : SegmentFunctor {
  static constexpr int planes = 3;
  static constexpr bool kept = true;
  template <class A> static BARACUDA_D void identity(A (&s)[3]) { s[0] = A(1), s[1] = s[2] = A(0); }
  template <class A> static BARACUDA_D A special(A x) {
    return x == A(0) ? A(1) : math::isfinite(x) ? A(0) : math::isinf(x) ? A(3) : A(9);
  }
  // The factor as finite number other than 0: an infinity leaves its sign.
  template <class A> static BARACUDA_D A plain(A x) {
    return x == A(0) || math::isnan(x) ? math::copysign(A(1), x == x ? x : A(1))
           : math::isfinite(x) ? x
                                       : math::copysign(A(1), x);
  }
  template <class A> static BARACUDA_D void add(A (&s)[3], A x, i32) {
    const A one[3] = {plain(x), A(0), special(x)};
    combine(s, one);
  }
  template <class A> static BARACUDA_D void combine(A (&s)[3], const A (&o)[3]) {
    int ea, eb, e;
    s[0] = math::frexp(math::frexp(s[0], &ea) * math::frexp(o[0], &eb), &e);
    s[1] += o[1] + static_cast<A>(ea + eb + e);
    const int a = static_cast<int>(s[2]), b = static_cast<int>(o[2]);
    s[2] = static_cast<A>(min(a % 3 + b % 3, 2) + 3 * min(a / 3 % 3 + b / 3 % 3, 2) + 9 * min(a / 9 + b / 9, 2));
  }
  // g times the product of the other factors than x.
  template <class A> static BARACUDA_D A others(A g, A x, const A (&s)[3]) {
    const int left = static_cast<int>(s[2]) - static_cast<int>(special(x));
    int ex, eg;
    const A fraction = s[0] / math::frexp(plain(x), &ex);
    if (left == 0) {
      const A exponent = s[1] - static_cast<A>(ex), limit = A(8192);
      const A small = math::frexp(g, &eg) * fraction;
      if (!math::isfinite(g)) return g * fraction;
      return math::ldexp(small, eg + static_cast<int>(max(-limit, min(limit, exponent))));
    }
    const bool zero = left % 3 > 0, infinite = left / 3 % 3 > 0;
    if (left / 9 > 0 || (zero && infinite)) return numeric<A>::nan();
    return g * math::copysign(zero ? A(0) : numeric<A>::infinity(), fraction);
  }
};

// The sum of products with a second operand, kept.
struct SegmentDots : SegmentSum {
  static constexpr bool factor = true, kept = true;
};
struct SegmentSumKept : SegmentSum {
  static constexpr bool kept = true;
};

// ---- rows that tokens name, with weights ----------------------------------------------------------------------------

struct GatheredSum : SegmentSum {
  static constexpr bool weighted = true, counted = true;
};
using GatheredMean = GatheredSum;
struct GatheredMasked : SegmentSum {  // only of the token that was chosen
  static constexpr bool weighted = true, masked = true;
};

// The largest and the token it is of, the first of several; NaN is larger than all.
BARACUDA_D float held(i32 token, float) { return __int_as_float(token); }
BARACUDA_D double held(i32 token, double) { return __longlong_as_double(token); }
BARACUDA_D i32 held_token(float x) { return __float_as_int(x); }
BARACUDA_D i32 held_token(double x) { return static_cast<i32>(__double_as_longlong(x)); }

template <bool SMALLEST> struct GatheredExtreme : SegmentFunctor {
  static constexpr int planes = 2;
  static constexpr bool weighted = true, argued = true;
  template <class A> static BARACUDA_D void identity(A (&s)[2]) {
    s[0] = SMALLEST ? numeric<A>::top() : numeric<A>::bottom(), s[1] = held(-1, A(0));
  }
  template <class A> static BARACUDA_D void add(A (&s)[2], A x, i32 token) {
    const A one[2] = {x, held(token, A(0))};
    combine(s, one);
  }
  template <class A> static BARACUDA_D void combine(A (&s)[2], const A (&o)[2]) {
    const i32 own = held_token(s[1]), other = held_token(o[1]);
    const bool nan = s[0] != s[0], takes = SMALLEST ? o[0] < s[0] : o[0] > s[0];
    const bool same = s[0] == o[0] || (nan && o[0] != o[0]);
    const bool first = same && other >= 0 && (own < 0 || other < own);
    if ((takes && !nan) || (o[0] != o[0] && !nan) || first) s[0] = o[0], s[1] = o[1];
  }
  template <class A> static BARACUDA_D i64 argument(const A (&s)[2]) { return held_token(s[1]); }
};
using GatheredMax = GatheredExtreme<false>;
using GatheredMin = GatheredExtreme<true>;

}  // namespace baracuda
