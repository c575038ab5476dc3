// hermitian_part    x = (P + Pᴴ) / 2, in place, P being x below its diagonal, half of x on it, and 0 above.
//
// Dense matrices of n rows. A thread has the pair (i, j) and (j, i) of i >= j, so that nothing is read that another
// thread writes. No sums.
#include "linalg/numbers.cuh"

namespace baracuda {

template <class T> BARACUDA_D void hermitian_part(const HermitianPartParams& p) {
  const i64 place = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (place >= p.count) return;
  const i64 square = p.n * p.n, i = place % square / p.n, j = place % p.n;
  if (j > i) return;
  T* const x = static_cast<T*>(p.x) + place / square * square;
  const T lower = half(x[i * p.n + j]);
  x[i * p.n + j] = i == j ? real_part(lower) : lower;
  if (i != j) x[j * p.n + i] = adjoint(lower);
}

}  // namespace baracuda
