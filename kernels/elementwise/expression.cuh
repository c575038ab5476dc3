#pragma once
// expression  what functors made from formulas call (baracuda_py/expressions/cpp.py): the tables' functors, casts.
#include <baracuda/map.cuh>
#include <baracuda/math.cuh>
#include "elementwise/binary_functors.cuh"
#include "elementwise/functors.cuh"
#include "elementwise/ternary_functors.cuh"

namespace baracuda {

// The type that values of an element are computed in: float, double, 32 or 64 bits of integers, bool.
template <class T> using value_t = conditional<is_same<T, bool>, bool, compute_t<T>>;

// A value rounded to an element, or cut to its bits.
template <class T, class V> BARACUDA_D value_t<T> rounded(V x) { return cast<value_t<T>>(cast<T>(x)); }

template <class T> BARACUDA_D T complement(T x) { return ~x; }
BARACUDA_D bool complement(bool x) { return !x; }

}  // namespace baracuda
