#pragma once
// halves    half the spectrum of an even number n of real numbers from the transform Z of n / 2 complex ones:
//
// y[k] = (z + w) / 2 + exp(-2 pi i k / n) (z - w) / 2i with z = Z[k] and w = conj(Z[n / 2 - k]), k = 0 ... n / 2.
//
// Of a power of two a thread's pairs are `lanes` apart: its roots are one of its own times constants. No sums but those
// of the formula.
#include "fft/stockham.cuh"

namespace baracuda {

// cos(pi q / 16) for 0 <= q <= 8, a constant where it is called.
BARACUDA_D double cosine_of(int q) {
  switch (q) {
    case 0: return 1;
    case 1: return 0.980785280403230449;
    case 2: return 0.923879532511286756;
    case 3: return 0.831469612302545237;
    case 4: return 0.707106781186547524;
    case 5: return 0.555570233019602225;
    case 6: return 0.382683432365089772;
    case 7: return 0.195090322016128268;
    default: return 0;
  }
}

// Whether n numbers are n / 2 complex ones: of a power of two above 1 they are.
template <class L> BARACUDA_D bool halved(int length) {
  if constexpr (L::known) {
    if (L::points > 1) return true;
  }
  return length % 2 == 0;
}

// put(k, z, end) for each k, end: of k = 0 and k = n / 2, which are real. f has made a transform that stays in its buffer.
template <class R, class L, class P, class Put>
BARACUDA_D void untangle(const Fourier<R, L, P>& f, int length, const Put& put) {
  if (!f.active) return;
  const int last = f.p.points;
  const auto pair = [&](int k, complex<R> z, complex<R> mirror, complex<R> root) {
    z = z * R(0.5);
    const complex<R> w = math::conj(mirror) * R(0.5);
    const complex<R> even = z + w, odd = times_root(math::over_i(z - w), root);
    put(k, even + odd, false);
    if (2 * k != last) put(last - k, math::conj(even - odd), false);
  };
  const auto ends = [&] {
    const complex<R> z = f.at(0);
    put(0, complex<R>(z.re + z.im), true), put(last, complex<R>(z.re - z.im), true);
  };
  if constexpr (L::known) {
    constexpr int first = L::radix(0), many = first / 2;  // pairs of a thread, but for the one that is its own mirror
    const typename Fourier<R, L, P>::template Known<L::lanes> apart{};
    const complex<R> own = root_of(f.turns_of(f.lane, length));
#pragma unroll
    for (int m = 0; m <= many; ++m) {
      const int k = f.lane + m * L::lanes, q = first > 1 ? m * (16 / first) : 0;  // exp(-2 pi i m lanes / n)
      if (2 * k > last) continue;
      if (k == 0) ends();
      else
        pair(k, f.at(f.lane, m, apart), f.at(last - f.lane, -m, apart),
             m == 0 ? own : times_root(own, complex<R>(R(cosine_of(q)), R(-cosine_of(8 - q)))));
    }
  } else {
    for (int k = f.lane; 2 * k <= last; k += f.p.lanes) {
      if (k == 0) ends();
      else pair(k, f.at(k), f.at(last - k), root_of(f.turns_of(k, length)));
    }
  }
}

}  // namespace baracuda
