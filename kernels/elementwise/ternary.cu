// ternary    y = f(a, b, c), f the functor of a kind (elementwise/ternary/); schedule map, operands broadcast by strides of 0.
//
// b and c may be numbers of the parameters (a null pointer), so that no array is made of them.
#include <baracuda/map.cuh>
#include "elementwise/ternary_functors.cuh"

namespace baracuda {

// A number among the operands, rounded once from double; for integers of type T modulo 2^n.
template <class Wide, class T> BARACUDA_D Wide operand_number(double number, i64 integer) {
  if constexpr (is_integer<T>) return static_cast<Wide>(cast<T>(integer));
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
    if (p.b == nullptr) b = operand_number<Wide, T>(p.b_number(), p.b_whole());
    if (p.c == nullptr) c = operand_number<Wide, T>(p.c_number(), p.c_whole());
    if constexpr (is_integer<Wide> && !moves) scale = static_cast<Wide>(p.value_whole());  // modulo 2^n
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
