#pragma once
// series     sums over the terms of an exponential, which integrals of exponentials and powers have near 0; in double.
#include <baracuda/types.cuh>

namespace baracuda::special {

// The sum of part(x^k / k!, k) over 0 < k < terms, from the first on.
template <class F> BARACUDA_D double exponential_sum(double x, int terms, const F& part) {
  double sum = 0.0, term = 1.0;
#pragma unroll 1
  for (int k = 1; k < terms; ++k) {
    term *= x / k;
    sum += part(term, k);
  }
  return sum;
}

}  // namespace baracuda::special
