#pragma once
// expression  what every functor made from a formula calls (baracuda_py/expressions/cpp.py): casts. Of the tables' functors
// its text includes those that it names.
#include <baracuda/elements.cuh>
#include <baracuda/math.cuh>

namespace baracuda {

// The type that values of an element are computed in: float, double, 32 or 64 bits of integers, bool.
template <class T> using value_t = conditional<is_same<T, bool>, bool, compute_t<T>>;

// A value rounded to an element, or cut to its bits.
template <class T, class V> BARACUDA_D value_t<T> rounded(V x) { return cast<value_t<T>>(cast<T>(x)); }

template <class T> BARACUDA_D T complement(T x) { return ~x; }
BARACUDA_D bool complement(bool x) { return !x; }

}  // namespace baracuda
