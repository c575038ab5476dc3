// unconverged    x = NaN in every matrix whose info is not 0, in place; others stay as they are.
//
// Dense matrices of `each` real numbers (a complex one has two). A thread has one number. No sums.
#include <baracuda/types.cuh>

namespace baracuda {

template <class R> BARACUDA_D void unconverged(const UnconvergedParams& p) {
  const i64 place = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (place >= p.count) return;
  if (static_cast<const int*>(p.info)[place / p.each] != 0) static_cast<R*>(p.x)[place] = numeric<R>::nan();
}

}  // namespace baracuda
