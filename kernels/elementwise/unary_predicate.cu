// unary_predicate   y = f(x), a bool, f one functor below; schedule map.
//
// A predicate takes the element itself: widened, a NaN would lose its sign.
#include <baracuda/map.cuh>
#include <baracuda/math.cuh>

namespace baracuda {

BARACUDA_D bool sign_bit(f16 x) { return __half_as_ushort(x) >> 15; }
BARACUDA_D bool sign_bit(bf16 x) { return __bfloat16_as_ushort(x) >> 15; }
BARACUDA_D bool sign_bit(float x) { return math::signbit(x); }
BARACUDA_D bool sign_bit(double x) { return math::signbit(x); }
template <class T, class = enable_if<is_integer<T>>> BARACUDA_D bool sign_bit(T x) {
  if constexpr (is_signed_int<T>) return x < T(0);
  else return false;
}

// BARACUDA_PREDICATE(Name, of_float, of_integer): formulas of x, and of a, a float in the accumulator.
#define BARACUDA_PREDICATE(Name, of_float, of_integer) \
  template <class T> struct Name {                     \
    static BARACUDA_D bool value(T x) {                \
      if constexpr (is_integer<T>) {                   \
        return of_integer;                             \
      } else {                                         \
        [[maybe_unused]] const acc_t<T> a = to_acc(x); \
        return of_float;                               \
      }                                                \
    }                                                  \
  };

BARACUDA_PREDICATE(IsNan, math::isnan(a), false)
BARACUDA_PREDICATE(IsInf, math::isinf(a), false)
BARACUDA_PREDICATE(IsFinite, math::isfinite(a), true)
BARACUDA_PREDICATE(IsPosInf, a == numeric<acc_t<T>>::infinity(), false)
BARACUDA_PREDICATE(IsNegInf, a == -numeric<acc_t<T>>::infinity(), false)
BARACUDA_PREDICATE(IsReal, true, true)
BARACUDA_PREDICATE(IsComplex, false, false)
BARACUDA_PREDICATE(SignBit, sign_bit(x), sign_bit(x))
BARACUDA_PREDICATE(LogicalNot, a == acc_t<T>(0), x == T(0))

#undef BARACUDA_PREDICATE

template <template <class> class F, class T, class L> BARACUDA_D void unary(const UnaryParams& p) {
  bool* const y[1] = {static_cast<bool*>(p.y)};
  const T* const x[1] = {static_cast<const T*>(p.x)};
  map<L>(p, y, x, [](const auto& in, auto& out) {
#pragma unroll
    for (int k = 0; k < in[0].size; ++k) out[0][k] = F<T>::value(in[0][k]);
  });
}

}  // namespace baracuda
