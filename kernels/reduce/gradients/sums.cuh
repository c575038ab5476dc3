#pragma once
// sums  gradients of sums and means.
#include "reduce/counts.cuh"
#include "reduce/gradients/directions.cuh"
#include "reduce/sums.cuh"

namespace baracuda {

namespace kinds {

template <class T> struct Numbers : CountNonzero<T> {  // elements that are not NaN
  using Lane = Fold<Numbers>;
  static BARACUDA_D T fill() { return numeric<T>::nan(); }
  template <class A> static BARACUDA_D i64 leaf(A x) { return !math::isnan(x); }
};

}  // namespace kinds

template <class T> struct Gradient<kinds::Sum<T>> {
  static constexpr int reads = reads_dy;
  using Statistic = Nothing;
  acc_t<T> dy;
  template <class Row> BARACUDA_D Gradient(const Row& row, const GradientFacts&) : dy(row.dy) {}
  BARACUDA_D acc_t<T> operator()(acc_t<T>, i64) const { return dy; }
};

template <class T> struct Gradient<kinds::Mean<T>> {
  static constexpr int reads = reads_dy;
  using Statistic = Nothing;
  acc_t<T> dy;
  template <class Row>
  BARACUDA_D Gradient(const Row& row, const GradientFacts& facts) : dy(row.dy / static_cast<acc_t<T>>(facts.count)) {}
  BARACUDA_D acc_t<T> operator()(acc_t<T>, i64) const { return dy; }
};

template <class T> struct Gradient<kinds::SumSquares<T>> {
  static constexpr int reads = reads_dy | reads_x;
  using Statistic = Nothing;
  acc_t<T> dy;
  template <class Row> BARACUDA_D Gradient(const Row& row, const GradientFacts&) : dy(row.dy) {}
  BARACUDA_D acc_t<T> operator()(acc_t<T> x, i64) const { return dy * x * acc_t<T>(2); }
};

// NaN has a factor of 0, as in PyTorch: an infinite dy is NaN there.
template <class T> struct Gradient<kinds::Nansum<T>> {
  static constexpr int reads = reads_dy | reads_x;
  using Statistic = Nothing;
  acc_t<T> dy;
  template <class Row> BARACUDA_D Gradient(const Row& row, const GradientFacts&) : dy(row.dy) {}
  BARACUDA_D acc_t<T> operator()(acc_t<T> x, i64) const { return dy * acc_t<T>(!math::isnan(x)); }
};

template <class T> struct Gradient<kinds::Nanmean<T>> {
  static constexpr int reads = reads_dy | reads_x | reads_statistic;
  using Statistic = kinds::Numbers<T>;
  acc_t<T> dy;
  template <class Row>
  BARACUDA_D Gradient(const Row& row, const GradientFacts&) : dy(row.dy / static_cast<acc_t<T>>(row.statistic)) {}
  BARACUDA_D acc_t<T> operator()(acc_t<T> x, i64) const { return dy * acc_t<T>(!math::isnan(x)); }
};

template <class T> struct Gradient<kinds::L1Norm<T>> {
  static constexpr int reads = reads_dy | reads_x;
  using Statistic = Nothing;
  acc_t<T> dy;
  template <class Row> BARACUDA_D Gradient(const Row& row, const GradientFacts&) : dy(row.dy) {}
  BARACUDA_D acc_t<T> operator()(acc_t<T> x, i64) const { return dy * sign_of(x); }
};

template <class R> struct Gradient<kinds::Mean<complex<R>>> {
  static constexpr int reads = reads_dy;
  using Statistic = Nothing;
  complex<R> dy;
  template <class Row> BARACUDA_D Gradient(const Row& row, const GradientFacts& facts) {
    const R n = static_cast<R>(facts.count);
    dy = {row.dy.re / n, row.dy.im / n};
  }
  BARACUDA_D complex<R> operator()(complex<R>, i64) const { return dy; }
};

template <class R> struct Gradient<kinds::L1Norm<complex<R>>> {
  static constexpr int reads = reads_dy | reads_x;
  using Given = R;
  using Statistic = Nothing;
  double dy;
  template <class Row> BARACUDA_D Gradient(const Row& row, const GradientFacts&) : dy(row.dy) {}
  BARACUDA_D complex<double> operator()(complex<R> z, i64) const { return directed(in_double(z), dy); }
};

}  // namespace baracuda
