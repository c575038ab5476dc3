// pool       y = max, min, sum, product, mean or p-norm of the elements of every window. Schedule window.
//
// max    the first of the largest, in row-major order; a NaN beats all before it, so that of several the last one wins, as
//        in PyTorch. Without an element: the lowest value, and place -1.
// min    likewise.
// sum    in row-major order, integers in 64 bits that wrap; prod likewise.
// avg    the sum, in row-major order from 0, divided once.
// lp     m (sum (|x| / m)^p)^(1/p), m the largest |x|: no power overflows or vanishes for the size of x alone.
#include <baracuda/math.cuh>
#include <baracuda/window.cuh>

namespace baracuda {

template <class T, bool LEAST> struct ExtremePool {
  using element = T;
  using A = conditional<is_integer<T>, T, acc_t<T>>;
  static constexpr int passes = 1;
  template <class I> struct State {
    A value;
    I place;
  };
  BARACUDA_D explicit ExtremePool(const PoolParams&) {}
  template <class S> BARACUDA_D void begin(S& s) const {
    s.value = LEAST ? numeric<A>::top() : numeric<A>::bottom(), s.place = -1;
  }
  template <int PASS, class S, class I> BARACUDA_D void add(S& s, T x, I place) const {
    const A v = cast<A>(x);
    if (s.place < 0 || (LEAST ? v < s.value : v > s.value) || v != v) s.value = v, s.place = place;
  }
  template <int N, class O, int M, class S, class W>
  BARACUDA_D void put(const PoolParams& p, const O (&offset)[M], const S (&s)[N], const W&) const {
    Vec<T, N> y;
    Vec<i64, N> places;
    Vec<i32, N> short_places;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      y[k] = cast<T>(s[k].value), places[k] = s[k].place, short_places[k] = static_cast<i32>(s[k].place);
    }
    put_neighbours(p, 1, static_cast<T*>(p.y) + offset[1], y);
    if (p.indices == nullptr) return;
    if (p.indices_wide) put_neighbours(p, 2, static_cast<i64*>(p.indices) + offset[2], places);
    else put_neighbours(p, 2, static_cast<i32*>(p.indices) + offset[2], short_places);
  }
};
template <class T> using MaxPool = ExtremePool<T, false>;
template <class T> using MinPool = ExtremePool<T, true>;

// Signed overflow is not defined, so integers add and multiply as unsigned ones.
template <class T, bool PRODUCT> struct FoldPool {
  using element = T;
  using A = conditional<is_integer<T>, u64, acc_t<T>>;
  static constexpr int passes = 1;
  template <class I> struct State {
    A value;
  };
  BARACUDA_D explicit FoldPool(const PoolParams&) {}
  template <class S> BARACUDA_D void begin(S& s) const { s.value = A(PRODUCT ? 1 : 0); }
  template <int PASS, class S, class I> BARACUDA_D void add(S& s, T x, I) const {
    const A v = wide(x);
    s.value = PRODUCT ? s.value * v : s.value + v;
  }
  template <int N, class O, int M, class S, class W>
  BARACUDA_D void put(const PoolParams& p, const O (&offset)[M], const S (&s)[N], const W&) const {
    Vec<T, N> y;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      if constexpr (is_integer<T>) y[k] = static_cast<T>(s[k].value);
      else y[k] = from_acc<T>(s[k].value);
    }
    put_neighbours(p, 1, static_cast<T*>(p.y) + offset[1], y);
  }

 private:
  static BARACUDA_D A wide(T x) {
    if constexpr (is_integer<T>) return static_cast<A>(x);
    else return to_acc(x);
  }
};
template <class T> using SumPool = FoldPool<T, false>;
template <class T> using ProdPool = FoldPool<T, true>;

template <class T> struct AvgPool {
  using element = T;
  using A = acc_t<T>;
  static constexpr int passes = 1;
  template <class I> struct State {
    A sum;
  };
  BARACUDA_D explicit AvgPool(const PoolParams&) {}
  template <class S> BARACUDA_D void begin(S& s) const { s.sum = A(0); }
  template <int PASS, class S, class I> BARACUDA_D void add(S& s, T x, I) const { s.sum += to_acc(x); }
  template <int N, class O, int M, class S, class W>
  BARACUDA_D void put(const PoolParams& p, const O (&offset)[M], const S (&s)[N], const W& w) const {
    const A count = static_cast<A>(p.divisor != 0 ? p.divisor : window_size(w, p.include_pad));
    Vec<T, N> y;
#pragma unroll
    for (int k = 0; k < N; ++k) y[k] = from_acc<T>(s[k].sum / count);
    put_neighbours(p, 1, static_cast<T*>(p.y) + offset[1], y);
  }
};

template <class T> struct LpPool {
  using element = T;
  using A = acc_t<T>;
  static constexpr int passes = 2;
  template <class I> struct State {
    A scale, sum;
  };
  A power;
  BARACUDA_D explicit LpPool(const PoolParams& p) : power(static_cast<A>(p.norm_type)) {}
  template <class S> BARACUDA_D void begin(S& s) const { s.scale = s.sum = A(0); }
  template <int PASS, class S, class I> BARACUDA_D void add(S& s, T x, I) const {
    const A size = math::abs(to_acc(x));
    if constexpr (PASS == 0) s.scale = math::maximum(s.scale, size);
    else s.sum += raised(size / s.scale, power);
  }
  template <int N, class O, int M, class S, class W>
  BARACUDA_D void put(const PoolParams& p, const O (&offset)[M], const S (&s)[N], const W&) const {
    Vec<T, N> y;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const bool scaled = s[k].scale > A(0) && s[k].scale < numeric<A>::infinity();
      y[k] = from_acc<T>(scaled ? s[k].scale * root(s[k].sum) : s[k].scale);
    }
    put_neighbours(p, 1, static_cast<T*>(p.y) + offset[1], y);
  }

 private:
  static BARACUDA_D A raised(A x, A e) { return e == A(1) ? x : e == A(2) ? x * x : math::pow(x, e); }
  BARACUDA_D A root(A x) const {
    return power == A(1) ? x : power == A(2) ? math::sqrt(x) : math::pow(x, A(1) / power);
  }
};

}  // namespace baracuda
