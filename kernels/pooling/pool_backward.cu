// pool_backward   dx[n, i] = sum of what the windows that hold position i hand back, in row-major order of the windows
//
// max    dy where the window's saved place is i, of min too.
// avg    dy / count, the forward's, 1 for sum.
// lp     dy sign(x) (|x| / y)^(p - 1); 0 where x or y is 0.
#include <baracuda/math.cuh>
#include <baracuda/window.cuh>

namespace baracuda {

// Operands: 0 dx and 1 x over the positions; 2 dy, 3 indices and 4 y over the windows.
struct Nothing {};

template <class T> struct MaxPoolSlope {
  using element = T;
  using A = acc_t<T>;
  template <int M> struct Part {
    Vec<T, M> dy;
    Vec<i64, M> place;
  };
  BARACUDA_D explicit MaxPoolSlope(const PoolBackwardParams&) {}
  template <int N, class O> BARACUDA_D Nothing own(const PoolBackwardParams&, const O&) const { return {}; }
  template <int M, class O, class W>
  BARACUDA_D Part<M> read(const PoolBackwardParams& p, const O& offset, const W&) const {
    Part<M> part;
    part.dy = load<M>(static_cast<const T*>(p.dy) + offset[2]);
    if (p.indices_wide) part.place = load<M>(static_cast<const i64*>(p.indices) + offset[3]);
    else part.place = cast_vec<i64>(load<M>(static_cast<const i32*>(p.indices) + offset[3]));
    return part;
  }
  template <class Q> BARACUDA_D A slope(const Q& part, int m, const Nothing&, int, i64 place) const {
    return part.place[m] == place ? to_acc(part.dy[m]) : A(0);
  }
};

template <class T> struct AvgPoolSlope {
  using element = T;
  using A = acc_t<T>;
  template <int M> struct Part {
    Vec<T, M> dy;
    A count;
  };
  BARACUDA_D explicit AvgPoolSlope(const PoolBackwardParams&) {}
  template <int N, class O> BARACUDA_D Nothing own(const PoolBackwardParams&, const O&) const { return {}; }
  template <int M, class O, class W>
  BARACUDA_D Part<M> read(const PoolBackwardParams& p, const O& offset, const W& w) const {
    return {load<M>(static_cast<const T*>(p.dy) + offset[2]),
            static_cast<A>(p.divisor != 0 ? p.divisor : window_size(w, p.include_pad))};
  }
  template <class Q> BARACUDA_D A slope(const Q& part, int m, const Nothing&, int, i64) const {
    return to_acc(part.dy[m]) / part.count;
  }
};

template <class T> using MinPoolSlope = MaxPoolSlope<T>;
template <class T> using SumPoolSlope = AvgPoolSlope<T>;  // of a divisor of 1

template <class T> struct LpPoolSlope {
  using element = T;
  using A = acc_t<T>;
  template <int M> struct Part {
    Vec<T, M> dy, y;
  };
  A power;
  BARACUDA_D explicit LpPoolSlope(const PoolBackwardParams& p) : power(static_cast<A>(p.norm_type - 1)) {}
  template <int N, class O> BARACUDA_D Vec<T, N> own(const PoolBackwardParams& p, const O& offset) const {
    return load<N>(static_cast<const T*>(p.x) + offset[1]);
  }
  template <int M, class O, class W>
  BARACUDA_D Part<M> read(const PoolBackwardParams& p, const O& offset, const W&) const {
    return {load<M>(static_cast<const T*>(p.dy) + offset[2]), load<M>(static_cast<const T*>(p.y) + offset[4])};
  }
  template <class Q, int N> BARACUDA_D A slope(const Q& part, int m, const Vec<T, N>& own, int n, i64) const {
    const A x = to_acc(own[n]), y = to_acc(part.y[m]);
    const A ratio = math::abs(x) / y;
    const A size = x == A(0) || y == A(0) ? A(0)
                   : power == A(0)        ? A(1)
                   : power == A(1)        ? ratio
                                          : math::pow(ratio, power);
    return to_acc(part.dy[m]) * math::copysign(size, x);
  }
};

template <class G, int VEC, bool ACROSS, class I> BARACUDA_D void pool_backward(const PoolBackwardParams& p) {
  window_backward<G, VEC, ACROSS, I, 2, 5>(p, G(p));
}

}  // namespace baracuda
