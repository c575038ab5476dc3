#pragma once
// pairs  gradients of reductions with two results.
#include "reduce/gradients/extremes.cuh"
#include "reduce/gradients/spread.cuh"
#include "reduce/pairs.cuh"

namespace baracuda {

template <class T> struct Gradient<kinds::Aminmax<T>> : SharedEnds<T> {
  static constexpr int reads = SharedEnds<T>::reads | reads_dz;
  template <class Row>
  BARACUDA_D Gradient(const Row& row, const GradientFacts&) : SharedEnds<T>(row.dy, row.dz, row.statistic) {}
};

template <class T> struct AtIndex {
  static constexpr int reads = reads_dy | reads_index;
  using Statistic = Nothing;
  acc_t<T> dy;
  i64 index;
  template <class Row> BARACUDA_D AtIndex(const Row& row, const GradientFacts&) : dy(row.dy), index(row.index) {}
  BARACUDA_D acc_t<T> operator()(acc_t<T>, i64 place) const { return place == index ? dy : acc_t<T>(0); }
};
template <class T> struct Gradient<kinds::MaxWithIndex<T>> : AtIndex<T> {
  using AtIndex<T>::AtIndex;
};
template <class T> struct Gradient<kinds::MinWithIndex<T>> : AtIndex<T> {
  using AtIndex<T>::AtIndex;
};

template <class T> struct Gradient<kinds::VarMean<T>> : DeviationsOf<T, false, true, false> {
  using Base = DeviationsOf<T, false, true, false>;
  using Base::Base;
};
template <class T> struct Gradient<kinds::StdMean<T>> : DeviationsOf<T, true, true, false> {
  using Base = DeviationsOf<T, true, true, false>;
  using Base::Base;
};

}  // namespace baracuda
