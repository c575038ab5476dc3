// ternary    y = f(a, b, c), f one functor below; schedule map, operands broadcast by strides of 0.
//
// b and c may be numbers of the parameters (a null pointer), so that no array is made of them.
#include <baracuda/map.cuh>
#include <baracuda/math.cuh>
#include "elementwise/functors.cuh"

namespace baracuda {

// A functor computes in `Wide`; its first operand holds elements of `First`, the others and y elements of `Element`.
namespace ternary_kinds {

#define BARACUDA_TERNARY(Name, formula)                                                                   \
  template <class T> struct Name {                                                                        \
    using Element = T;                                                                                    \
    using First = T;                                                                                      \
    using Wide = compute_t<T>;                                                                            \
    static BARACUDA_D Wide value(Wide a, Wide b, Wide c, [[maybe_unused]] Wide scale) { return formula; } \
  };

template <class A> BARACUDA_D A fused(A a, A b, A c) {
  if constexpr (is_integer<A>) return plus(times(a, b), c);
  else return math::fma(a, b, c);
}

// The difference of finite numbers may overflow; that of their quarters does not.
template <class A> BARACUDA_D A lerp(A a, A b, A t) {
  A d = b - a, back = A(1);
  if (math::isinf(d)) a *= A(0.25), b *= A(0.25), d = b - a, back = A(4);
  return back * (math::abs(t) < A(0.5) ? math::fma(t, d, a) : math::fma(-d, A(1) - t, b));
}

// m 2^e + a. Where m 2^e alone would overflow, both are taken smaller first: a may be of the other sign.
template <class A> BARACUDA_D A scaled_sum(A m, int e, A a) {
  const int down = e > 0 ? 4 : 0;
  return math::ldexp(math::ldexp(m, e - down) + math::ldexp(a, -down), down);
}
// A product or quotient that is 0, subnormal, infinite or NaN may have come to be so on the way to one that is not.
template <class A> BARACUDA_D bool lost(A x) { return !(math::abs(x) >= numeric<A>::tiny() && math::isfinite(x)); }

// a + s b c
template <class A> BARACUDA_D A addcmul(A a, A b, A c, A s) {
  if constexpr (is_integer<A>) return plus(a, times(times(s, b), c));
  else {
    const A product = s * b;
    if (!lost(product)) return math::fma(product, c, a);
    int es, eb, ec;
    const A m = math::frexp(s, &es) * math::frexp(b, &eb) * math::frexp(c, &ec);
    return scaled_sum(m, es + eb + ec, a);
  }
}
// a + s b / c
template <class A> BARACUDA_D A addcdiv(A a, A b, A c, A s) {
  const A quotient = b / c;
  if (!lost(quotient)) return math::fma(s, quotient, a);
  int es, eb, ec;
  const A m = math::frexp(s, &es) * (math::frexp(b, &eb) / math::frexp(c, &ec));
  return scaled_sum(m, es + eb - ec, a);
}

BARACUDA_TERNARY(Clamp, math::minimum(math::maximum(a, b), c))
BARACUDA_TERNARY(Lerp, lerp(a, b, c))
BARACUDA_TERNARY(Fma, fused(a, b, c))
BARACUDA_TERNARY(Mac, plus(a, times(b, c)))
BARACUDA_TERNARY(Addcmul, addcmul(a, b, c, scale))
BARACUDA_TERNARY(Addcdiv, addcdiv(a, b, c, scale))

#undef BARACUDA_TERNARY

// Elements are moved as they are: the payload of a NaN stays.
template <class T> struct Where {
  using Element = T;
  using First = bool;
  using Wide = T;
  static BARACUDA_D T value(bool a, const T& b, const T& c, const T&) { return a ? b : c; }
};

}  // namespace ternary_kinds

// A number among the operands, rounded once from double; for integers of type T the nearest that T has.
template <class Wide, class T> BARACUDA_D Wide operand_number(double number, i64 integer) {
  if constexpr (is_same<T, bool>) return integer != 0;
  else if constexpr (is_same<T, u64>) return static_cast<u64>(integer);
  else if constexpr (is_integer<T>) return static_cast<Wide>(cast_saturate<T>(integer));
  else return cast<Wide>(number);
}

template <class F> struct TernaryOp {
  using T = typename F::Element;
  using First = typename F::First;
  using Wide = typename F::Wide;
  static constexpr bool moves = is_same<Wide, T> && is_same<First, bool>;

  const TernaryParams& p;
  Wide b, c, scale;

  BARACUDA_D explicit TernaryOp(const TernaryParams& p) : p(p), b{}, c{}, scale{} {
    if (p.b == nullptr) b = operand_number<Wide, T>(p.b_number(), p.b_integer());
    if (p.c == nullptr) c = operand_number<Wide, T>(p.c_number(), p.c_integer());
    if constexpr (is_integer<Wide> && !moves) scale = static_cast<Wide>(cast<i64>(p.value()));
    else if constexpr (!moves) scale = static_cast<Wide>(p.value());
  }

  template <int V> struct Chunk {
    Vec<First, V> a;
    Vec<T, V> b, c;
  };
  template <int V> BARACUDA_D Chunk<V> read(const MapPlace<V, 4>& place) const {
    Chunk<V> in;
    in.a = place.load(static_cast<const First*>(p.a), 1);
    if (p.b != nullptr) in.b = place.load(static_cast<const T*>(p.b), 2);
    if (p.c != nullptr) in.c = place.load(static_cast<const T*>(p.c), 3);
    return in;
  }
  template <int V> BARACUDA_D void write(const MapPlace<V, 4>& place, const Chunk<V>& in, bool wanted) const {
    Vec<T, V> y;
    if constexpr (moves) {
#pragma unroll
      for (int k = 0; k < V; ++k) y[k] = F::value(in.a[k], p.b ? in.b[k] : b, p.c ? in.c[k] : c, scale);
    } else {
      const Vec<Wide, V> first = cast_vec<Wide>(in.a), second = cast_vec<Wide>(in.b), third = cast_vec<Wide>(in.c);
      Vec<Wide, V> wide;
#pragma unroll
      for (int k = 0; k < V; ++k) wide[k] = F::value(first[k], p.b ? second[k] : b, p.c ? third[k] : c, scale);
      y = cast_vec<T>(wide);
    }
    if (wanted) place.store(static_cast<T*>(p.y), 0, y);
  }
};

template <class F, class L> BARACUDA_D void ternary(const TernaryParams& p) { map_chunks<L, 4>(p, TernaryOp<F>(p)); }

}  // namespace baracuda
