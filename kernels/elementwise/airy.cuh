#pragma once
// airy       Airy's function Ai and its derivative, a kind of unary; in double as those of special.cuh.
//
// Tables are Chebyshev series: of Ai and Ai' between 0 and 2 and between -5 and 0; beyond 2, by 1 / zeta, of what they are
// less their exponential; beyond -5, by 1 / zeta^2, of the factors of their cosine and sine. zeta is 2/3 |x|^(3/2).
#include "elementwise/in_double.cuh"

namespace baracuda::special {

static __constant__ double airy_near[19] = {
    0.1661487551134717,      -0.160200643749162,      0.02985086265042287,    -3.592821006346677e-05,
    -0.0010148771856557245,  0.00018650430146538642,  -9.023207531845663e-06, -1.8719071101908585e-06,
    3.7633084265224525e-07,  -2.2543102304853237e-08, -1.521783492607275e-09, 3.7631432654361224e-10,
    -2.4444948546165672e-11, -5.979424144805241e-13,  2.2466976613000314e-13, -1.5345032770179278e-14,
    -7.025980667351147e-17,  8.902219306136638e-17,   -6.348506763486825e-18};
static __constant__ double airy_slope_near[20] = {
    -0.15938920897826184,    0.11118214490348564,     0.0016228695418002625,   -0.008221305698205847,
    0.0018384388021810633,   -0.00010228821296005169, -2.6604212472800928e-05, 5.990277422096266e-06,
    -3.975129301289083e-07,  -3.101606033965825e-08,  8.262911358449943e-09,   -5.803904875127494e-10,
    -1.6003825509525406e-11, 6.288277595226751e-12,   -4.573227330317801e-13,  -2.475856413337203e-15,
    3.0282500735982086e-15,  -2.275425997848357e-16,  1.4955095117515456e-18,  1.0036437006900191e-18};
static __constant__ double airy_below[31] = {
    0.21780501400549876,     0.15243919682610405,     0.24413048723903907,     -0.25723797937555526,
    -0.10405689786164055,    0.1258789994498457,      -0.010730847332209423,   -0.019770891044724,
    0.006501814365774597,    0.0007291639947388939,   -0.0007904009988707628,  0.00010807305451804548,
    3.4929680917219585e-05,  -1.3631889435344286e-05, 5.550644712274884e-07,   5.960077778021826e-07,
    -1.282333427112974e-07,  -3.89217252588784e-09,   5.604665504886613e-09,   -7.325023228050804e-10,
    -7.584948080022729e-11,  3.38146239476339e-11,    -2.6271661958850626e-12, -5.532266987341432e-13,
    1.420039294312333e-13,   -5.439423676954658e-15,  -2.531215287774012e-15,  4.3663099026744113e-16,
    -2.0279016787339435e-18, -8.263802231245331e-18,  1.015534874716995e-18};
static __constant__ double airy_slope_below[30] = {
    -0.04827722225810545,    0.04174702290272246,     -0.21850580197709413,    -0.34886175667974006,
    0.39886534852423844,     -0.015879683522490307,   -0.10465064927514442,    0.035628383672114926,
    0.006066340575309986,    -0.005983228268842494,   0.0008163598131899501,   0.0003399797221236084,
    -0.00013468306656885023, 4.654785318300374e-06,   7.088583558730337e-06,   -1.561936759447497e-06,
    -6.350977489585342e-08,  7.94500272571099e-08,    -1.057622854377879e-08,  -1.2571560132573318e-09,
    5.578067628584318e-10,   -4.3564320453695075e-11, -1.0278919461817799e-11, 2.6738045938820276e-12,
    -9.954820510956454e-14,  -5.267085119765158e-14,  9.24026842952862e-15,    -2.157321195213293e-17,
    -1.9096096024810837e-16, 2.3851785651507403e-17};
static __constant__ double airy_far[25] = {
    0.9844053049171552,     -0.014792784850104199,   0.0007327177465426715,  -6.12595423417825e-05,
    6.83476697557269e-06,   -9.237229735403982e-07,  1.436225340438052e-07,  -2.489319422322096e-08,
    4.709793440054328e-09,  -9.583863708112733e-10,  2.0745855483677591e-10, -4.737267332192277e-11,
    1.1336099808224236e-11, -2.827706782319351e-12,  7.320712095125598e-13,  -1.9599793911089723e-13,
    5.4101162570683925e-14, -1.5356466802223836e-14, 4.472340393300025e-15,  -1.3338094674756683e-15,
    4.066582046456231e-16,  -1.265583225645289e-16,  4.015126334015871e-17,  -1.2969972135960937e-17,
    4.2613499074124e-18};
static __constant__ double airy_slope_far[25] = {
    1.0223917438953567,      0.021419543172417697,   -0.0008929320864098833,  7.04386560665416e-05,
    -7.629019563020457e-06,  1.0124594126717678e-06, -1.5547836430438127e-07, 2.670534777173515e-08,
    -5.017799973983537e-09,  1.015476324864757e-09,  -2.1883687800953883e-10, 4.97854884096185e-11,
    -1.1876037266305446e-11, 2.9543896474165515e-12, -7.630714992633907e-13,  2.038758045182824e-13,
    -5.617262461082948e-14,  1.5918346754340464e-14, -4.629150125159948e-15,  1.3787341769318453e-15,
    -4.198446246812051e-16,  1.3051699130322144e-16, -4.1364905599761646e-17, 1.3349430157944717e-17,
    -4.3821989068953736e-18};
static __constant__ double airy_p[14] = {0.9996723415461005,     -0.0003255483561055322, 2.069745155969119e-06,
                                         -3.890961736474424e-08, 1.3645959446950337e-09, -7.265563438866682e-11,
                                         5.234675629062907e-12,  -4.749669415821452e-13, 5.172156139604189e-14,
                                         -6.533725295545284e-15, 9.33927407277721e-16,   -1.4823330512580455e-16,
                                         2.5745988399644002e-17, -4.8369440585693956e-18};
static __constant__ double airy_q[17] = {0.06911528040160503,     -0.0003251060364586695,  3.945977743866323e-06,
                                         -1.068929090514341e-07,  4.800334718951617e-09,   -3.0691067169997637e-10,
                                         2.5517594369013928e-11,  -2.601606731752434e-12,  3.123666855119186e-13,
                                         -4.2903251712839485e-14, 6.596710595977435e-15,   -1.116833216041688e-15,
                                         2.0551350158850327e-16,  -4.0680056098438254e-17, 8.589182631392619e-18,
                                         -1.921018818902054e-18,  4.524779482719087e-19};
static __constant__ double airy_r[14] = {1.0003878405275435,     0.0003855407600036015,  -2.2569547701994824e-06,
                                         4.13018222466532e-08,   -1.42946827628554e-09,  7.551623154582091e-11,
                                         -5.412684015866087e-12, 4.893117688966832e-13,  -5.313644450068392e-14,
                                         6.697975952039033e-15,  -9.557415795023906e-16, 1.5147815527564406e-16,
                                         -2.627782827949282e-17, 4.931767229919422e-18};
static __constant__ double airy_s[17] = {-0.09685373558055735,    0.00036413719505663344, -4.231539204935565e-06,
                                         1.1255552405699963e-07,  -5.0045376884264e-09,   3.179700644428914e-10,
                                         -2.632362416231985e-11,  2.675352198626147e-12,  -3.204480010858941e-13,
                                         4.392920315480073e-14,   -6.743950494446888e-15, 1.1402812450546277e-15,
                                         -2.0959757741233326e-16, 4.1449196379079236e-17, -8.744355071414311e-18,
                                         1.9543012716058454e-18,  -4.600194467524088e-19};

constexpr double airy_limit = -1e10;  // below, numbers of double lie more than a wave apart
constexpr double airy_end = 120.0;    // beyond, Ai and Ai' are below all numbers of double

// zeta as the sum of two numbers, whose error an exponential or a sine shows.
struct Zeta {
  double high, low;
};
BARACUDA_D Zeta zeta_of_airy(double size) {
  const double root = math::sqrt(size), rest = 0.5 * math::fma(-root, root, size) / root;
  const double p = size * root, low = math::fma(size, root, -p) + size * rest, q = p / 1.5;
  return {q, (math::fma(-q, 1.5, p) + low) / 1.5};
}
// exp(-zeta) as two square roots, so that it vanishes late: y times it.
BARACUDA_D double fallen(double y, const Zeta& z) {
  const double h = math::exp(-0.5 * z.high);
  return y * h * math::fma(h, -z.low, h);
}
// The sine and the cosine of zeta - pi / 4.
BARACUDA_D void turned(const Zeta& z, double& sine, double& cosine) {
  double s, c, t, d;
  math::sincos(z.high, &s, &c);
  math::sincos(z.low, &t, &d);
  const double a = math::fma(s, d, c * t), b = math::fma(c, d, -s * t);
  sine = sqrt_half * (a - b), cosine = sqrt_half * (a + b);
}
BARACUDA_D double fourth_root(double x) { return math::sqrt(math::sqrt(x)); }
constexpr double one_over_sqrt_pi = 0.5641895835477563;

BARACUDA_SPECIAL double airy_ai(double x) {
  if (x != x || (x < airy_limit && !math::isinf(x))) return numeric<double>::nan();
  if (x > airy_end || math::isinf(x)) return 0.0;
  if (x >= -5.0 && x <= 2.0)
    return x < 0.0 ? chebyshev(0.4 * x + 1.0, airy_below, 31) : chebyshev(x - 1.0, airy_near, 19);
  const Zeta z = zeta_of_airy(math::abs(x));
  const double w = 1.0 / z.high, size = fourth_root(math::abs(x));
  if (x > 0.0)
    return fallen(0.5 * one_over_sqrt_pi * chebyshev(math::fma(w, 3.771236166328254, -1.0), airy_far, 25) / size, z);
  double sine, cosine;
  turned(z, sine, cosine);
  const double u = math::fma(w * w, 111.11111111111111, -1.0);
  return one_over_sqrt_pi / size * math::fma(cosine, chebyshev(u, airy_p, 14), w * sine * chebyshev(u, airy_q, 17));
}
// dy Ai'(x)
BARACUDA_SPECIAL double airy_slope(double dy, double x) {
  if (!(x >= airy_limit)) return numeric<double>::nan();
  if (x > airy_end) return dy * 0.0;
  if (x >= -5.0 && x <= 2.0) {
    return dy * (x < 0.0 ? chebyshev(0.4 * x + 1.0, airy_slope_below, 30) : chebyshev(x - 1.0, airy_slope_near, 20));
  }
  const Zeta z = zeta_of_airy(math::abs(x));
  const double w = 1.0 / z.high, size = fourth_root(math::abs(x));
  if (x > 0.0)
    return dy *
           -fallen(0.5 * one_over_sqrt_pi * size * chebyshev(math::fma(w, 3.771236166328254, -1.0), airy_slope_far, 25),
                   z);
  double sine, cosine;
  turned(z, sine, cosine);
  const double u = math::fma(w * w, 111.11111111111111, -1.0);
  return dy *
         (one_over_sqrt_pi * size * math::fma(sine, chebyshev(u, airy_r, 14), -w * cosine * chebyshev(u, airy_s, 17)));
}

}  // namespace baracuda::special

namespace baracuda {

BARACUDA_FUNCTION(AiryAi, airy_ai(x))

namespace gradient {

BARACUDA_SLOPE(AiryAi, airy_slope(dy, x))

}  // namespace gradient
}  // namespace baracuda
