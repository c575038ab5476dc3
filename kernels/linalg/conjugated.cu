// conjugated    x = x*, in place: dense complex numbers, a thread each. No sums.
#include "linalg/numbers.cuh"

namespace baracuda {

template <class T> BARACUDA_D void conjugated(const ConjugatedParams& p) {
  const i64 place = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (place < p.count) static_cast<T*>(p.x)[place] = adjoint(static_cast<const T*>(p.x)[place]);
}

}  // namespace baracuda
