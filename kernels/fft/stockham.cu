// stockham    Fourier transforms of whole batches along one axis, complex, from real numbers and to them:
//
// whole    y[k] = factor sum over j of x[j] exp(-+2 pi i j k / n), x and y complex.
// real     the half y[0 ... n / 2] of that of real numbers x, between its ends times `between`.
// half     the real y that such a half x belongs to: of x[0], and of x[n / 2] for an even n, the real part counts; what
//          is between them is multiplied by `between` first.
//
// Schedule stockham (stockham.cuh). An even number of real numbers are half as many complex ones, of whose transform
// halves.cuh makes the half; and back. An odd number are complex ones without imaginary parts. An inverse transform is
// the forward one with parts exchanged before and after.
#include <baracuda/vector.cuh>

#include "fft/halves.cuh"

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
  const bool pairs = halved<L>(p.length), together = p.paired;
  const auto put = [&](int k, complex<R> z, bool end) { y[k * to] = z * (end ? factor : between); };
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
        if (2 * k < p.length) put(k, z, k == 0);
      });
  if (pairs) untangle(f, p.length, put);
}

template <class T, class L> BARACUDA_D void stockham_half(const StockhamParams& p) {
  using R = acc_t<T>;
  const Fourier<R, L, StockhamParams> f(p);
  const complex<R>* const x = static_cast<const complex<R>*>(p.x) + f.from[1];
  T* const y = static_cast<T*>(p.y) + f.from[0];
  const i64 to = p.strides[0], by = p.strides[1];
  const R factor = static_cast<R>(p.factor), between = static_cast<R>(p.between);
  const bool pairs = halved<L>(p.length), together = p.paired;
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
