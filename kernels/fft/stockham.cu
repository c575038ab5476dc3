// stockham    Fourier transforms of whole batches along one axis, complex, from real numbers and to them:
//
// whole    y[k] = factor sum over j of x[j] exp(-+2 pi i j k / n), x and y complex.
// real     the half y[0 ... n / 2] of that of real numbers x, between its ends times `between`.
// half     the real y that such a half x belongs to: of x[0], and of x[n / 2] for an even n, the real part counts; what
//          is between them is multiplied by `between` first.
//
// Schedule stockham (stockham.cuh). An even number n of real numbers are n / 2 complex ones, whose transform Z gives, with
// z = Z[k] and w = conj(Z[n / 2 - k]), y[k] = (z + w) / 2 + exp(-2 pi i k / n) (z - w) / 2i; and back. An odd number are
// complex ones without imaginary parts. An inverse transform is the forward one with parts exchanged before and after.
#include <baracuda/vector.cuh>

#include "fft/stockham.cuh"

namespace baracuda {

template <class R> BARACUDA_D complex<R> exchanged(complex<R> z) { return {z.im, z.re}; }

template <class R, bool INVERSE, class L> BARACUDA_D void stockham_whole(const StockhamParams& p) {
  const Fourier<R, L, StockhamParams> f(p);
  const complex<R>* const x = static_cast<const complex<R>*>(p.x) + f.from[1];
  complex<R>* const y = static_cast<complex<R>*>(p.y) + f.from[0];
  const i64 to = p.strides[0], by = p.strides[1];
  const R factor = static_cast<R>(p.factor);
  f.transform(
      true,
      [&](int j) {
        const complex<R> z = x[j * by];
        return INVERSE ? exchanged(z) : z;
      },
      [&](int k, complex<R> z) { y[k * to] = (INVERSE ? exchanged(z) : z) * factor; });
}

template <class T, class L> BARACUDA_D void stockham_real(const StockhamParams& p) {
  using R = acc_t<T>;
  const Fourier<R, L, StockhamParams> f(p);
  const T* const x = static_cast<const T*>(p.x) + f.from[1];
  complex<R>* const y = static_cast<complex<R>*>(p.y) + f.from[0];
  const i64 to = p.strides[0], by = p.strides[1];
  const R factor = static_cast<R>(p.factor), between = static_cast<R>(p.factor * p.between);
  const bool pairs = p.length % 2 == 0, together = p.paired;
  f.transform(
      !pairs,
      [&](int j) {
        if (together) {
          const Vec<T, 2> both = load<2>(x + 2 * j);
          return complex<R>(to_acc(both[0]), to_acc(both[1]));
        }
        if (pairs) return complex<R>(to_acc(x[2 * j * by]), to_acc(x[(2 * j + 1) * by]));
        return complex<R>(to_acc(x[j * by]));
      },
      [&](int k, complex<R> z) {
        if (2 * k < p.length) y[k * to] = z * (k == 0 ? factor : between);
      });
  if (!pairs || !f.active) return;
  const int last = p.points;
  for (int k = f.lane; 2 * k <= last; k += p.lanes) {
    if (k == 0) {
      const complex<R> z = f.at(0);
      y[0] = complex<R>((z.re + z.im) * factor), y[last * to] = complex<R>((z.re - z.im) * factor);
      continue;
    }
    const complex<R> z = f.at(k) * R(0.5), w = math::conj(f.at(last - k)) * R(0.5);
    const complex<R> even = z + w;
    const complex<R> odd = times_root(math::over_i(z - w), root_of(f.turns_of(k, p.length)));
    y[k * to] = (even + odd) * between;
    if (2 * k != last) y[(last - k) * to] = math::conj(even - odd) * between;
  }
}

template <class T, class L> BARACUDA_D void stockham_half(const StockhamParams& p) {
  using R = acc_t<T>;
  const Fourier<R, L, StockhamParams> f(p);
  const complex<R>* const x = static_cast<const complex<R>*>(p.x) + f.from[1];
  T* const y = static_cast<T*>(p.y) + f.from[0];
  const i64 to = p.strides[0], by = p.strides[1];
  const R factor = static_cast<R>(p.factor), between = static_cast<R>(p.between);
  const bool pairs = p.length % 2 == 0, together = p.paired;
  const int last = p.points;
  const auto given = [&](int k) {  // 0 ... n / 2
    const complex<R> z = x[k * by];
    return k == 0 || 2 * k == p.length ? complex<R>(z.re) : z * between;
  };
  f.transform(
      true,
      [&](int k) {
        if (!pairs) return exchanged(2 * k < p.length ? given(k) : math::conj(given(p.length - k)));
        const complex<R> z = given(k), w = math::conj(given(last - k));
        const complex<R> root = math::conj(root_of(f.turns_of(k, p.length)));
        return exchanged(z + w + math::times_i(times_root(z - w, root)));
      },
      [&](int j, complex<R> z) {
        const T even = from_acc<T>(z.im * factor), odd = from_acc<T>(z.re * factor);
        if (together) {
          store(y + 2 * j, Vec<T, 2>{{even, odd}});
        } else if (pairs) {
          y[2 * j * to] = even, y[(2 * j + 1) * to] = odd;
        } else {
          y[j * to] = even;
        }
      });
}

}  // namespace baracuda
