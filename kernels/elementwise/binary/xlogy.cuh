#pragma once
// xlogy  a log(b) and a log(1 + b).
#include "elementwise/binary_gradients.cuh"

namespace baracuda {

// a log, and 0 where a is 0 and b is a number.
template <class A> BARACUDA_D A times_log(A a, A b, A log) { return b != b ? b : a == A(0) ? A(0) : a * log; }

BARACUDA_BINARY(Xlogy, times_log(a, b, math::log(b)))
BARACUDA_BINARY(Xlog1py, times_log(a, b, math::log1p(b)))

namespace partial {

BARACUDA_PARTIAL(Xlogy, (a == A(0) && b <= A(0) ? A(0) : times_log(dy, b, math::log(b))),
                 narrow<A>(W(dy) * W(a) / W(b)))

BARACUDA_PARTIAL(Xlog1py, (a == A(0) && b <= A(-1) ? A(0) : times_log(dy, b, math::log1p(b))),
                 narrow<A>(W(dy) * W(a) / W(1.0 + b)))

}  // namespace partial
}  // namespace baracuda
