#pragma once
// logsumexp  gradients of the logarithms of sums and means of exponentials.
#include "reduce/gradients.cuh"
#include "reduce/logsumexp.cuh"

namespace baracuda {

namespace kinds {

template <class T> struct Exponentials : Logsumexp<T> {  // the largest, and Σ exp(x - largest)
  using Result = MaxSum<acc_t<T>>;
  static BARACUDA_D Result finish(Result s, const Reduced&) { return s; }
};

}  // namespace kinds

// The share exp(x - max) / sum: y, rounded to T, would be far from max + log(sum) where those are large.
template <class T> struct Gradient<kinds::Logsumexp<T>> {
  static constexpr int reads = reads_dy | reads_x | reads_statistic;
  using Statistic = kinds::Exponentials<T>;
  acc_t<T> dy, max, inverse;
  template <class Row>
  BARACUDA_D Gradient(const Row& row, const GradientFacts&)
      : dy(row.dy), max(row.statistic.max), inverse(acc_t<T>(1) / row.statistic.sum) {}
  BARACUDA_D acc_t<T> operator()(acc_t<T> x, i64) const { return dy * (math::exp(x - max) * inverse); }
};

template <class T> struct Gradient<kinds::Logmeanexp<T>> : Gradient<kinds::Logsumexp<T>> {
  using Gradient<kinds::Logsumexp<T>>::Gradient;
};

}  // namespace baracuda
