#pragma once
// where  b where a holds, c elsewhere.
#include "elementwise/ternary_gradients.cuh"

namespace baracuda {
namespace ternary_kinds {

// Elements are moved as they are: the payload of a NaN stays.
template <class T> struct Where {
  using Element = T;
  using First = bool;
  using Wide = T;
  static BARACUDA_D T value(bool a, const T& b, const T& c, const T&) { return a ? b : c; }
};

}  // namespace ternary_kinds

namespace ternary_partials {

BARACUDA_PARTIALS(Where, A(0), (a != A(0) ? dy : A(0)), (a != A(0) ? A(0) : dy))

}  // namespace ternary_partials
}  // namespace baracuda
