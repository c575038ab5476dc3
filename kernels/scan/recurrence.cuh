#pragma once
// recurrence  h[t] = a[t] h[t - 1] + b[t] and its gradient, over elements T; kinds of baracuda/scan_axis.cuh.
//
// States are affine maps h -> a h + b in double (complex of complex T), whatever T is: rounded once, and of floats no partial product of
// coefficients leaves the range that another could bring back. Maps do not compose through infinities (which of two a step
// makes depends on the sign of what it starts from), so an infinite or NaN a or b makes its map, and all after it, NaN.
#include <baracuda/complex.cuh>
#include <baracuda/scan_axis.cuh>
#include <baracuda/scan_neighbours.cuh>

namespace baracuda::kinds {

// double, complex<double> of complex T.
template <class T> using carrier_t = conditional<is_complex<T>, complex<double>, double>;
template <class C> struct Affine {
  C a, b;
};

// A coefficient product stays at the range's edge: beyond it infinity times 0, or 0 times infinity, would be NaN, which
// one step after another is not. For double the lower edge is 0, as its neighbour is no better an approximation.
template <class T> BARACUDA_D double coefficient(double x, double y) {
  const double product = x * y;
  if (math::isinf(product) && math::isfinite(x) && math::isfinite(y)) {
    return math::copysign(numeric<double>::max(), product);
  }
  if constexpr (!is_same<T, double>) {
    if (product == 0 && x != 0 && y != 0) return math::copysign(numeric<double>::tiny(), product);
  }
  return product;
}

BARACUDA_D double within_range(double x) { return math::isinf(x) ? math::copysign(numeric<double>::max(), x) : x; }
template <class T> BARACUDA_D complex<double> coefficient(complex<double> x, complex<double> y) {
  const complex<double> product = x * y;
  if (math::isfinite(product) || !math::isfinite(x) || !math::isfinite(y)) return product;
  return {within_range(product.re), within_range(product.im)};
}

BARACUDA_D double apply(double a, double h, double b) { return math::fma(a, h, b); }
BARACUDA_D complex<double> apply(complex<double> a, complex<double> h, complex<double> b) { return a * h + b; }

template <class T> struct Maps {
  using C = carrier_t<T>;
  using State = Affine<C>;
  static BARACUDA_D State empty() { return {C(1.0), C(0.0)}; }
  static BARACUDA_D State merge(const State& f, const State& g) {
    return {coefficient<T>(g.a, f.a), apply(g.a, f.b, g.b)};
  }
};

BARACUDA_D Affine<double> affine(double a, double b) {
  const double poison = math::fma(a, 0.0, b * 0.0);  // 0, or NaN
  return {a + poison, b + poison};
}
BARACUDA_D Affine<complex<double>> affine(complex<double> a, complex<double> b) {
  const complex<double> nan = {numeric<double>::nan(), numeric<double>::nan()};
  return math::isfinite(a) && math::isfinite(b) ? Affine<complex<double>>{a, b} : Affine<complex<double>>{nan, nan};
}

// What the gradient of a product is multiplied by.
BARACUDA_D double conjugate(double x) { return x; }
BARACUDA_D complex<double> conjugate(complex<double> z) { return math::conj(z); }

// Inputs b, a; output h; a row begins with h[-1] and ends in h[n - 1].
template <class T> struct Recurrence : Maps<T> {
  using element = T;
  using C = carrier_t<T>;
  using State = Affine<C>;
  using Ins = Types<T, T>;
  using Outs = Types<T>;
  using A = acc_t<T>;
  static constexpr int leaves = 2;
  static constexpr bool halo = false;
  const A* first;
  A* last;

  template <class P>
  BARACUDA_D Recurrence(const P& p, const ScanPlaces& at)
      : first(scan_own<A>(p.begin0, at[scan_begins])), last(scan_own<A>(p.end0, at[scan_ends])) {}
  static BARACUDA_D int shift(int) { return 0; }
  BARACUDA_D State begin() const { return affine(C(1.0), first == nullptr ? C(0.0) : cast<C>(*first)); }
  template <class X> BARACUDA_D State leaf(const X& x, i64) const {
    return affine(cast<C>(x.template at<1>()), cast<C>(x.template at<0>()));
  }
  template <class Y, class X> BARACUDA_D void put(const Y& y, const State& s, const X&, i64) const {
    y.template at<0>() = cast<T>(s.b);
  }
  BARACUDA_D void end(const State& s) const {
    if (last != nullptr) *last = cast<A>(s.b);
  }
};

// g[t] = dh[t] + a[t + 1] g[t + 1], which is db; da[t] = g[t] h[t - 1]; what a row begins with has a[0] g[0]: with the
// conjugates of complex a and h. The scan
// runs against the forward one: t + 1 is its element before, t - 1 the one after. Inputs dh, a, h; outputs da, db; a row
// begins with the gradient of its last state (begin0) and knows its first (begin1).
//
// PRODUCT: h is a product of the a so far, and b is 0. Then h may be exclusive (p.shifted): of the a before t, with dh
// one element on. SKIP: a NaN in a stands for 1 and has no gradient; a fourth input is a again, unshifted.
template <class T, class DA, bool PRODUCT, bool SKIP = false> struct RecurrenceGradient : Maps<T> {
  using element = T;
  using C = carrier_t<T>;
  using State = Affine<C>;
  using Ins = conditional<SKIP, Types<T, T, T, T>, Types<T, T, T>>;
  using Outs = conditional<PRODUCT, Types<DA>, Types<DA, T>>;
  using A = acc_t<T>;
  static constexpr int leaves = 2;
  static constexpr bool halo = true;
  const A *dlast, *first;
  A* dfirst;
  const T *slopes, *factors;  // of the scan's last element
  i64 count;
  bool shifted;

  template <class P>
  BARACUDA_D RecurrenceGradient(const P& p, const ScanPlaces& at)
      : dlast(scan_own<A>(p.begin0, at[scan_begins])), first(scan_own<A>(p.begin1, at[scan_begins + 1])),
        dfirst(scan_own<A>(p.end0, at[scan_ends])),
        slopes(static_cast<const T*>(p.in0) + at[0] + scan_place(p, p.cols - 1) * p.step[0]),
        factors(static_cast<const T*>(p.in1) + at[1] + scan_place(p, p.cols - 1) * p.step[1]), count(p.cols),
        shifted(PRODUCT && p.shifted) {}
  BARACUDA_D int shift(int n) const {
    if (n == 0) return shifted ? -1 : 0;
    return n == 1 ? -1 : n == 2 && !shifted ? 1 : 0;
  }
  static BARACUDA_D C factor(T a) {
    const C x = conjugate(cast<C>(a));
    return SKIP && math::isnan(x) ? C(1.0) : x;
  }
  BARACUDA_D State begin() const { return affine(C(1.0), dlast == nullptr ? C(0.0) : cast<C>(*dlast)); }
  template <class X> BARACUDA_D State leaf(const X& x, i64 r) const {
    return affine(r == 0 ? C(1.0) : factor(x.template at<1>()), cast<C>(x.template at<0>()));
  }
  template <class Y, class X> BARACUDA_D void put(const Y& y, const State& s, const X& x, i64 r) const {
    C before = cast<C>(x.template at<2>());
    if (!shifted && r == count - 1) before = first == nullptr ? C(PRODUCT ? 1.0 : 0.0) : cast<C>(*first);
    bool skipped = false;
    if constexpr (SKIP) skipped = math::isnan(cast<C>(x.template at<3>()));
    y.template at<0>() = cast<DA>(skipped ? C(0.0) : s.b * conjugate(before));
    if constexpr (!PRODUCT) y.template at<1>() = cast<T>(s.b);
  }
  BARACUDA_D void end(const State& s) const {
    if (dfirst == nullptr) return;
    C g = s.b;
    if (count > 0) g = apply(factor(*factors), g, shifted ? cast<C>(*slopes) : C(0.0));
    *dfirst = cast<A>(g);
  }
};
template <class T> using RecurrenceBackward = RecurrenceGradient<T, T, false>;
template <class T> using SummedRecurrenceBackward = RecurrenceGradient<T, acc_t<T>, false>;  // da is yet to be summed
template <class T> using CumprodBackward = RecurrenceGradient<T, T, true>;
template <class T> using NancumprodBackward = RecurrenceGradient<T, T, true, true>;

}  // namespace baracuda::kinds
