#pragma once
// channel    what the norms over channels share: their statistics, and weight and bias of a channel.
#include <baracuda/vector.cuh>
#include <baracuda/math.cuh>

namespace baracuda::norm {

// What y = (x scale - mean - low) rstd takes of a statistic. scale is 1 but where the spread of x leaves float's range;
// low is what `mean` lacks of the mean, so that y keeps its digits where the mean is large.
template <class A> struct alignas(16) Centre {
  A mean, low, rstd, scale;
};

// base + offset is the mean; spread2 = variance + eps. The power of two is chosen so that rstd is near 1.
template <class A> BARACUDA_D Centre<A> centre_of(double base, double offset, double rstd) {
  double scale = 1;
  if constexpr (is_same<A, float>) {
    int e = 0;
    if (rstd > 0 && math::isfinite(rstd)) math::frexp(rstd, &e);
    // Larger exponents stay in the range of scale and its inverse.
    if (e < -100 || e > 100) scale = math::ldexp(1.0, min<int>(max<int>(e, -126), 126));
  }
  Centre<A> c;
  c.mean = static_cast<A>(base * scale);
  c.low = math::isfinite(c.mean) ? static_cast<A>((base * scale - static_cast<double>(c.mean)) + offset * scale) : A(0);
  c.rstd = static_cast<A>(rstd / scale);
  c.scale = static_cast<A>(scale);
  return c;
}

// Element i of a weight: `wide` ones are float beside 16-bit x.
template <class T> BARACUDA_D acc_t<T> affine_at(const void* from, i64 i, bool wide) {
  if constexpr (is_half<T>) {
    if (wide) return static_cast<const float*>(from)[i];
  }
  return to_acc(static_cast<const T*>(from)[i]);
}
template <class T> BARACUDA_D void put_affine(void* to, i64 i, bool wide, double value) {
  if constexpr (is_half<T>) {
    if (wide) {
      static_cast<float*>(to)[i] = static_cast<float>(value);
      return;
    }
  }
  static_cast<T*>(to)[i] = cast<T>(static_cast<acc_t<T>>(value));
}

// Index of element k of a chunk in operand n of a map, where the operand may stay.
template <class Place> BARACUDA_D i64 beside(const Place& place, int n, int k) {
  return place.at[n] + (Place::vec == 1 || (place.splat >> n & 1) ? 0 : k);
}
template <class Place> BARACUDA_D bool moves(const Place& place, int n) {
  return Place::vec > 1 && !(place.splat >> n & 1);
}

}  // namespace baracuda::norm
