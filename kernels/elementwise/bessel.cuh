#pragma once
// bessel     Bessel functions J, Y and K of orders 0 and 1, kinds of unary; computed in double as those of special.cuh.
//            Airy's function, which is made of others of them, comes with it.
#include "elementwise/airy.cuh"
#include "elementwise/in_double.cuh"

namespace baracuda::special {

// ---- J and Y --------------------------------------------------------------------------------------------------------

// The even and the odd terms of Hankel's series for x >= 8, by Chebyshev polynomials of 128 / x^2 - 1.
__constant__ double p0_far[14] = {0.9994603493475187,      -0.0005365220468132117,  3.0751847875194745e-06,
                                  -5.1705945376060975e-08, 1.6306464635151382e-09,  -7.86409137723707e-11,
                                  5.168262387349193e-12,   -4.3045788699253914e-13, 4.3265957431549404e-14,
                                  -5.069034095935236e-15,  6.748072215733873e-16,   -1.0011513723467786e-16,
                                  1.6305919233744186e-17,  -2.880866169482871e-18};
__constant__ double q0_far[17] = {-0.12444683684269607,    0.0005470815954089319,  -5.9315987288485175e-06,
                                  1.4377965798375193e-07,  -5.817532749493056e-09, 3.376097523734991e-10,
                                  -2.565397936797308e-11,  2.404916100281365e-12,  -2.6690625482579414e-13,
                                  3.4041800321963686e-14,  -4.87994410531204e-15,  7.729703176242605e-16,
                                  -1.3348852171502517e-16, 2.4865952389390515e-17, -4.952892629886516e-18,
                                  1.0473158973776097e-18,  -2.336930172211422e-19};
__constant__ double p1_far[14] = {1.0009030408600137,      0.0008989898330859408,   -3.987284300488908e-06,
                                  6.177633960644299e-08,   -1.8718907491063067e-09, 8.816898659582339e-11,
                                  -5.704863640395645e-12,  4.699195515230542e-13,   -4.6842237839904895e-14,
                                  5.452674896044717e-15,   -7.221180842274018e-16,  1.0667689114335412e-16,
                                  -1.7312313216116335e-17, 3.0492991197665872e-18};
__constant__ double q1_far[16] = {
    0.3742222965562826,     -0.0007702178839325664, 7.3108922063643636e-06, -1.676782510726674e-07,
    6.583354662120443e-09,  -3.749090950541556e-10, 2.8121750359748866e-11, -2.61145253946232e-12,
    2.8774212663332235e-13, -3.649001916061838e-14, 5.206626366226707e-15,  -8.215318025458595e-16,
    1.4141084390211833e-16, -2.626761589838529e-17, 5.2192649196714085e-18, -1.101261718787959e-18};

// J and Y of order 0 or 1, x >= 8: sqrt(2 / (pi x)) times the cosine and the sine of the series.
struct Waves {
  double j, y;
};
BARACUDA_D Waves hankel(double x, int order) {
  const double w = 1.0 / x, u = math::fma(128.0 * w, w, -1.0);
  double sine, cosine;
  math::sincos(x, &sine, &cosine);
  const double p = chebyshev(u, order ? p1_far : p0_far, 14),
               q = w * chebyshev(u, order ? q1_far : q0_far, order ? 16 : 17);
  const double sum = sine + cosine, gap = sine - cosine, size = math::sqrt(pi) * math::sqrt(x);
  const double c = order ? gap : sum, d = order ? -sum : gap;
  return {math::fma(p, c, -q * d) / size, math::fma(p, d, q * c) / size};
}
constexpr double hankel_from = 8.0;

BARACUDA_D double j0_of(double x) {
  const double a = math::abs(x);
  return a < hankel_from ? ::j0(a) : math::isinf(a) ? 0.0 : hankel(a, 0).j;
}
BARACUDA_D double j1_of(double x) {
  const double a = math::abs(x);
  return math::copysign(1.0, x) * (a < hankel_from ? ::j1(a) : math::isinf(a) ? 0.0 : hankel(a, 1).j);
}
// NaN below 0.
BARACUDA_D double y0_of(double x) { return x < hankel_from ? ::y0(x) : math::isinf(x) ? 0.0 : hankel(x, 0).y; }
BARACUDA_D double y1_of(double x) { return x < hankel_from ? ::y1(x) : math::isinf(x) ? 0.0 : hankel(x, 1).y; }

BARACUDA_SPECIAL double bessel_j0(double x) { return j0_of(x); }
BARACUDA_SPECIAL double bessel_j1(double x) { return j1_of(x); }
BARACUDA_SPECIAL double bessel_y0(double x) { return y0_of(x); }
BARACUDA_SPECIAL double bessel_y1(double x) { return y1_of(x); }

// ---- K --------------------------------------------------------------------------------------------------------------

// K0(x) + log(x / 2) I0(x) and 2 / x (K1(x) - 1 / x - log(x / 2) I1(x)) in powers of x^2 / 4.
__constant__ double k0_near[14] = {-0.5772156649015329,    0.42278433509846713,   0.23069608377461678,
                                   0.0348921574564389,     0.0026147876188052093, 0.00011848039364109726,
                                   3.6126241031992037e-06, 7.935096521304209e-08, 1.3167486730385647e-09,
                                   1.709994072705808e-11,  1.785934656987074e-13, 1.5330343403208473e-15,
                                   1.1009270959725744e-17, 6.712740659979047e-20};
__constant__ double k1_near[14] = {0.07721566490153287,    -0.33639216754923357,   -0.09078758348042781,
                                   -0.009591094919665281,  -0.000557679745983264,  -2.0711238446355714e-05,
                                   -5.357729570455905e-07, -1.022643001796939e-08, -1.501024373294594e-10,
                                   -1.747964364846441e-12, -1.654957367625136e-14, -1.2993205660505643e-16,
                                   -8.597616413496283e-19, -4.860603759411809e-21};
// sqrt(x) exp(x) times K0(x), K1(x), x (K1(x) - K0(x)) and x (K0(x) - K1(x) + K1(x) / x) for x >= 2, by Chebyshev
// polynomials of 4 / x - 1.
__constant__ double k0_far[26] = {
    1.2201515410329777,     -0.0314481013119645,     0.0015698838857300533,  -0.00012849549581627802,
    1.39498137188765e-05,   -1.8317555227191195e-06, 2.766813639445015e-07,  -4.660489897687948e-08,
    8.574034017414225e-09,  -1.6975345093890614e-09, 3.5773972814003283e-10, -7.957489244477396e-11,
    1.8559491149549264e-11, -4.514597883374519e-12,  1.1403405882073441e-12, -2.9800969231481784e-13,
    8.032890775068375e-14,  -2.2275133267462965e-14, 6.340076476276646e-15,  -1.848593377920907e-15,
    5.5120559994043335e-16, -1.6782311257549006e-16, 5.2103917776435543e-17, -1.6475805939842632e-17,
    5.3004337711773354e-18, -1.7331712005821001e-18};
__constant__ double k1_far[26] = {
    1.3603130952422213,      0.10392373657681724,    -0.002857816859622779,   0.00019521551847135162,
    -1.936197974166083e-05,  2.406484947837217e-06,  -3.5019606030878126e-07, 5.7410841254500495e-08,
    -1.0345762465678097e-08, 2.0150497551970347e-09, -4.1903547593419254e-10, 9.218315187605315e-11,
    -2.129967838427791e-11,  5.139639673482343e-12,  -1.2891739609498229e-12, 3.348419666052243e-13,
    -8.976705182010146e-14,  2.4771544242195988e-14, -7.0198370892147685e-15, 2.038703166239861e-15,
    -6.057047270643018e-16,  1.8380935752430455e-16, -5.689462849193648e-17,  1.7940510478863572e-17,
    -5.7567444820733025e-18, 1.8778651901623268e-18};
__constant__ double k1_k0_far[29] = {
    0.5814299810127361,     -0.04156752835152331,    0.0032497977878283616, -0.00035367318695607664,
    4.723670038482873e-05,  -7.2945614978794785e-06, 1.25834637538092e-06,  -2.3715064690862322e-07,
    4.808084028736617e-08,  -1.0369405530847726e-08, 2.358644891018047e-09, -5.620858837821714e-10,
    1.3959123111291276e-10, -3.596993471427157e-11,  9.582538770485289e-12, -2.6312592199563436e-12,
    7.42792940787735e-13,   -2.1509433818540794e-13, 6.376915566035261e-14, -1.9323281659228566e-14,
    5.975780011390674e-15,  -1.8835609795906632e-15, 6.044017085890091e-16, -1.972308077343313e-16,
    6.539043822930316e-17,  -2.2007494750280112e-17, 7.512842397212477e-18, -2.599593636333113e-18,
    9.111513812949235e-19};
__constant__ double k1e_slope_far[29] = {
    0.7788831142294852,      0.14549126492834055,    -0.006107614647451141,   0.0005488887054274283,
    -6.659868012648957e-05,  9.701046445716696e-06,  -1.6085424356897013e-06, 2.945614881631237e-07,
    -5.842660275304427e-08,  1.238445528604476e-08,  -2.7776803669522394e-09, 6.542690356582245e-10,
    -1.6089090949719066e-10, 4.1109574387753915e-11, -1.0871712731435112e-11, 2.966101186561568e-12,
    -8.325599926078364e-13,  2.3986588242760395e-13, -7.078899274956738e-14,  2.1361984825468427e-14,
    -6.5814847384549754e-15, 2.0673703371149675e-15, -6.612963370809456e-16,  2.1517131821319488e-16,
    -7.114718271137646e-17,  2.388535994044244e-17,  -8.135006925947738e-18,  2.8087848890314245e-18,
    -9.824785103783344e-19};
constexpr double k_far_from = 2.0;

// log(x / 2), also where x / 2 is no normal number.
BARACUDA_D double log_half(double x) { return x < 1.0 ? math::log(x) - 0.6931471805599453 : math::log(0.5 * x); }
BARACUDA_D double k0_below(double x) {
  const double t = 0.25 * x * x;
  return math::fma(-log_half(x), polynomial(t, i0_near, 14), polynomial(t, k0_near, 14));
}
BARACUDA_D double k1_below(double x) {
  if (x == 0.0) return numeric<double>::infinity();
  const double t = 0.25 * x * x;
  const double rest = math::fma(log_half(x), polynomial(t, i1_near, 14), polynomial(t, k1_near, 14));
  return math::fma(0.5 * x, rest, 1.0 / x);
}
BARACUDA_D double k_beyond(double x, const double* c, int n) { return chebyshev(4.0 / x - 1.0, c, n) / math::sqrt(x); }

// y exp(-x), the exponential as two square roots: it vanishes later than that of x.
BARACUDA_D double decayed(double y, double x) {
  const double h = math::exp(-0.5 * x);
  return y * h * h;
}
BARACUDA_SPECIAL double k0(double x) { return x < k_far_from ? k0_below(x) : decayed(k_beyond(x, k0_far, 26), x); }
BARACUDA_SPECIAL double k1(double x) { return x < k_far_from ? k1_below(x) : decayed(k_beyond(x, k1_far, 26), x); }
BARACUDA_SPECIAL double k0e(double x) { return x < k_far_from ? math::exp(x) * k0_below(x) : k_beyond(x, k0_far, 26); }
BARACUDA_SPECIAL double k1e(double x) { return x < k_far_from ? math::exp(x) * k1_below(x) : k_beyond(x, k1_far, 26); }

}  // namespace baracuda::special

namespace baracuda {

BARACUDA_FUNCTION(BesselJ0, bessel_j0(x))
BARACUDA_FUNCTION(BesselJ1, bessel_j1(x))
BARACUDA_FUNCTION(BesselY0, bessel_y0(x))
BARACUDA_FUNCTION(BesselY1, bessel_y1(x))
BARACUDA_FUNCTION(ModifiedBesselK0, k0(x))
BARACUDA_FUNCTION(ModifiedBesselK1, k1(x))
BARACUDA_FUNCTION(ScaledModifiedBesselK0, k0e(x))
BARACUDA_FUNCTION(ScaledModifiedBesselK1, k1e(x))

}  // namespace baracuda
