#pragma once
// gradients  what the gradients of reductions share: Gradient<K>, dx of one element, from what belongs to its row and from
// x; K is the functor that reduced x. Those of near relatives have a file together (reduce/gradients/), as their functors
// have, and a unit includes the file of its kind.
//
// Made for a row, then called for each of its elements: it returns dx in the type it computes in, which is rounded once.
// `reads` says what it needs of them; Statistic is the functor of baracuda/reduce_axes.cuh whose result, the state itself,
// a row has as row.statistic. Of complex numbers what the gradient of y is to dx is PyTorch's convention: dx = dy times the
// conjugate of dy/dx, so that a step along -dx lessens a real loss. Given is the element of dy and y where it is not x's:
// norms and variances are real. Slopes are in double.
#include <baracuda/complex.cuh>
#include <baracuda/reduce_axes.cuh>

namespace baracuda {

constexpr int reads_x = 1, reads_dy = 2, reads_y = 4, reads_dz = 8, reads_index = 16, reads_statistic = 32;

struct Nothing {
  struct Result {};
};

template <class A, class S> struct GradientRow {
  A dy, y, dz;
  i64 index;  // place of the element that dy goes to
  typename S::Result statistic;
};

// What holds for all rows: the elements of one, and the kind's own option (correction, order of a norm).
struct GradientFacts {
  double count, option;
};

template <class K> struct Gradient;

// The element of dy and y.
template <class G, class T, class = void> struct given_of {
  using type = T;
};
template <class G, class T> struct given_of<G, T, void_t<typename G::Given>> {
  using type = typename G::Given;
};

template <class R> BARACUDA_D complex<double> in_double(complex<R> z) { return cast<complex<double>>(z); }

}  // namespace baracuda
