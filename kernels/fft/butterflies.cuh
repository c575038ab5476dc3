#pragma once
// butterflies    the discrete Fourier transforms of 1, 2, 3, 4, 5, 7, 8 and 16 numbers in registers, in place, in order.
//
// Forward: v[k] = sum of v[j] exp(-2 pi i j k / N). 8 is 2 by 4 and 16 is 4 by 4; an odd N takes sums and differences of
// the pairs j and N - j, the sums before the differences, from the first pair to the last.
#include <baracuda/complex.cuh>

namespace baracuda {

// z w for a w of length 1: what overflows is too large for the transform, too.
template <class R> BARACUDA_D complex<R> times_root(complex<R> z, complex<R> w) {
  return {math::fma(z.re, w.re, -(z.im * w.im)), math::fma(z.re, w.im, z.im * w.re)};
}

// z exp(-2 pi i q / 16) for 0 <= q < 10, a constant where it is called.
template <class R> BARACUDA_D complex<R> turned(complex<R> z, int q) {
  constexpr R cosine = R(0.923879532511286756), sine = R(0.382683432365089772), half_root = R(0.707106781186547524);
  switch (q) {
    case 0: return z;
    case 1: return times_root(z, complex<R>(cosine, -sine));
    case 2: return complex<R>(z.re + z.im, z.im - z.re) * half_root;
    case 3: return times_root(z, complex<R>(sine, -cosine));
    case 4: return math::over_i(z);
    case 6: return complex<R>(z.im - z.re, -z.re - z.im) * half_root;
    default: return times_root(z, complex<R>(-cosine, sine));  // 9, the only one left: products of 0 ... 3 by 0 ... 3
  }
}

// Cosines and sines of 2 pi k / N for 1 <= k <= N / 2.
template <int N> struct OddRoots;
template <> struct OddRoots<3> {
  static BARACUDA_D double cosine(int) { return -0.5; }
  static BARACUDA_D double sine(int) { return 0.866025403784438647; }
};
template <> struct OddRoots<5> {
  static BARACUDA_D double cosine(int k) { return k == 1 ? 0.309016994374947424 : -0.809016994374947424; }
  static BARACUDA_D double sine(int k) { return k == 1 ? 0.951056516295153572 : 0.587785252292473129; }
};
template <> struct OddRoots<7> {
  static BARACUDA_D double cosine(int k) {
    return k == 1 ? 0.623489801858733531 : k == 2 ? -0.222520933956314404 : -0.900968867902419126;
  }
  static BARACUDA_D double sine(int k) {
    return k == 1 ? 0.781831482468029809 : k == 2 ? 0.974927912181823607 : 0.433883739117558120;
  }
};

template <int N, class R> BARACUDA_D void butterfly(complex<R> (&v)[N]) {
  if constexpr (N == 2) {
    const complex<R> sum = v[0] + v[1];
    v[1] = v[0] - v[1], v[0] = sum;
  } else if constexpr (N == 4) {
    const complex<R> a = v[0] + v[2], b = v[0] - v[2], c = v[1] + v[3], d = math::over_i(v[1] - v[3]);
    v[0] = a + c, v[1] = b + d, v[2] = a - c, v[3] = b - d;
  } else if constexpr (N == 8 || N == 16) {
    constexpr int inner = N / 4;  // v[4 a + b]: over a of `inner`, then over b of 4
    complex<R> u[inner][4];
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      complex<R> column[inner];
#pragma unroll
      for (int a = 0; a < inner; ++a) column[a] = v[4 * a + b];
      butterfly<inner>(column);
#pragma unroll
      for (int k = 0; k < inner; ++k) u[k][b] = turned(column[k], b * k * (16 / N));
    }
#pragma unroll
    for (int k = 0; k < inner; ++k) {
      butterfly<4>(u[k]);
#pragma unroll
      for (int l = 0; l < 4; ++l) v[k + inner * l] = u[k][l];
    }
  } else if constexpr (N > 1) {
    constexpr int pairs = N / 2;
    complex<R> sums[pairs], differences[pairs], all = v[0];
#pragma unroll
    for (int j = 0; j < pairs; ++j) {
      sums[j] = v[j + 1] + v[N - 1 - j], differences[j] = v[j + 1] - v[N - 1 - j];
      all = all + sums[j];
    }
#pragma unroll
    for (int k = 1; k <= pairs; ++k) {
      complex<R> even = v[0], odd(R(0));
#pragma unroll
      for (int j = 1; j <= pairs; ++j) {
        const int turn = j * k % N, folded = min(turn, N - turn);
        const R c = R(OddRoots<N>::cosine(folded)), s = R(OddRoots<N>::sine(folded)) * R(turn > pairs ? -1 : 1);
        even = {math::fma(sums[j - 1].re, c, even.re), math::fma(sums[j - 1].im, c, even.im)};
        odd = {math::fma(differences[j - 1].re, s, odd.re), math::fma(differences[j - 1].im, s, odd.im)};
      }
      const complex<R> turned = math::over_i(odd);
      v[k] = even + turned, v[N - k] = even - turned;
    }
    v[0] = all;
  }
}

}  // namespace baracuda
