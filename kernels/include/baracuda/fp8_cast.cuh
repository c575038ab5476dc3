#pragma once
// fp8_cast   e4m3 and e5m2 as elements that kernels read and write: cast<float> of one is exact, cast to one rounds to
//            nearest, ties to even, and saturates: what is too large, infinities too, becomes the largest finite number,
//            as torch's products store fp8. NaN stays NaN. Sums are of floats.
#include <baracuda/convert.cuh>
#include <baracuda/fp8.cuh>

namespace baracuda {

template <> struct acc_of<e4m3> {
  using type = float;
};
template <> struct acc_of<e5m2> {
  using type = float;
};

template <> struct Caster<float, e4m3> {
  static BARACUDA_D float run(e4m3 x) { return coded_value<code_e4m3>(x.__x); }
};
template <> struct Caster<float, e5m2> {
  static BARACUDA_D float run(e5m2 x) { return coded_value<code_e5m2>(x.__x); }
};
template <> struct Caster<e4m3, float> {
  static BARACUDA_D e4m3 run(float x) {
    e4m3 y;
    y.__x = coded<code_e4m3>(x, true);
    return y;
  }
};
template <> struct Caster<e5m2, float> {
  static BARACUDA_D e5m2 run(float x) {
    e5m2 y;
    y.__x = coded<code_e5m2>(x, true);
    return y;
  }
};

}  // namespace baracuda
