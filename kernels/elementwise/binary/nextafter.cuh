#pragma once
// nextafter  the neighbour of a in T, towards b.
#include "elementwise/binary_gradients.cuh"

namespace baracuda {

// The neighbour of a in T, towards b: the code of |a| is one more or one less.
template <class T> struct Nextafter : Operation<T, 0, true> {
  using A = compute_t<T>;
  static BARACUDA_D A value(A a, A b) {
    if constexpr (!is_half<T>) {
      return math::nextafter(a, b);
    } else {
      if (a != a || b != b) return a + b;
      if (a == b) return b;
      union {
        T value;
        u16 code;
      } x;
      x.value = cast<T>(a);
      if (a == A(0)) x.code = b < A(0) ? 0x8001 : 0x0001;
      else x.code += (a < b) == (a > A(0)) ? 1 : -1;
      return cast<A>(x.value);
    }
  }
};

namespace partial {

BARACUDA_PARTIAL(Nextafter, dy, A(0))

}  // namespace partial
}  // namespace baracuda
