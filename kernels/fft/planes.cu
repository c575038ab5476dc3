// planes    z[k] = factor (z[k] + conj(z[-k])) where the last index of k is 0 or, of an even length n, n / 2; in place.
//
// z is dense, [batch, rows, cols, half]: the first half of a spectrum over its last three axes, whose elements there are
// each other's mirror images: -k is taken modulo rows and cols. A thread has k and -k, so that nothing is read that
// another thread writes. One sum of two terms.
#include <baracuda/complex.cuh>

namespace baracuda {

BARACUDA_D i64 mirrored(i64 index, i64 extent) { return index == 0 ? 0 : extent - index; }

template <class T> BARACUDA_D void planes(const PlanesParams& p) {
  const i64 place = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (place >= p.count) return;
  const i64 plane = place % p.ends, line = place / p.ends;  // a line is (item, row, col)
  const i64 col = line % p.cols, row = line / p.cols % p.rows, item = line / p.cols / p.rows;
  const i64 other = (item * p.rows + mirrored(row, p.rows)) * p.cols + mirrored(col, p.cols);
  if (other < line) return;
  complex<T>* const z = static_cast<complex<T>*>(p.z) + (plane == 0 ? 0 : p.half - 1);
  const complex<T> sum = (z[line * p.half] + math::conj(z[other * p.half])) * static_cast<T>(p.factor);
  z[line * p.half] = sum;
  if (other != line) z[other * p.half] = math::conj(sum);
}

}  // namespace baracuda
