#pragma once
// tanhshrink  x - tanh(x).
#include "elementwise/gradients.cuh"

namespace baracuda {

// x - tanh(x); near 0, where both are nearly equal, by a polynomial.
BARACUDA_D float tanhshrink(float x) {
  const float c[10] = {0.333333326f,    -0.133332663f,  0.0539581928f,    -0.0218097198f,  0.00867812675f,
                       -0.00325015566f, 0.00104759112f, -0.000256002093f, 4.00715197e-05f, -2.92121805e-06f};
  return magnitude(x) < 1.5f ? x * (x * x) * polynomial(x * x, c) : x - math::tanh(x);
}
BARACUDA_D double tanhshrink(double x) {
  const double c[20] = {
      0.33333333333333326,    -0.13333333333330277,    0.053968253966437923,   -0.02186948849309326,
      0.0088632349870708775,  -0.0035921238314744444,  0.0014558125560378134,  -0.00058994703138609181,
      0.00023891046484082675, -9.6463560971616843e-05, 3.8553164899013899e-05, -1.4999273209932054e-05,
      5.5167209317452906e-06, -1.8421677955480219e-06, 5.3275434715498352e-07, -1.2677284589433398e-07,
      2.3421639163882416e-08, -3.1135470996267353e-09, 2.6285185546171461e-10, -1.0527802008950281e-11};
  return magnitude(x) < 1.5 ? x * (x * x) * polynomial(x * x, c) : x - math::tanh(x);
}

BARACUDA_UNARY(Tanhshrink, tanhshrink(x))

namespace gradient {

BARACUDA_GRADIENT(Tanhshrink, twice(dy, math::tanh(x)))

}  // namespace gradient
}  // namespace baracuda
