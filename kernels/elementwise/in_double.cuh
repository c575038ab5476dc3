#pragma once
// in_double  functors of unary kinds, and of their gradients, that compute in double, whatever T is, and round once.
#include "elementwise/special.cuh"

#define BARACUDA_FUNCTION(Name, formula)                                             \
  template <class T> struct Name {                                                   \
    using A = acc_t<T>;                                                              \
    static BARACUDA_D A value(A a, [[maybe_unused]] const Coefficients<A>& k = {}) { \
      const double x = a;                                                            \
      return static_cast<A>(special::formula);                                       \
    }                                                                                \
  };
#define BARACUDA_SLOPE(Name, formula)                                                     \
  template <class T> struct Name {                                                        \
    using A = acc_t<T>;                                                                   \
    static BARACUDA_D A value(A d, A a, [[maybe_unused]] const Coefficients<A>& k = {}) { \
      const double dy = d, x = a;                                                         \
      return static_cast<A>(special::formula);                                            \
    }                                                                                     \
  };
