#pragma once
// amax       the largest size of a tensor, which the blocks of a launch raise one after another.
#include <baracuda/reduce.cuh>

namespace baracuda::quantize {

// *to = the larger of itself, which is not negative, and `most` of every thread of the block, whole warps; NaN wins. Floats
// that are not negative are in the order of their bits, so that no order of blocks changes the result; and most blocks
// see that theirs is not larger, and leave it alone.
template <int THREADS> BARACUDA_D void raise(float* to, float most) {
  if (to == nullptr) return;
  most = block_reduce<Max, THREADS>(most);
  const int bits = __float_as_int(most);
  if (threadIdx.x == 0 && bits > *reinterpret_cast<const volatile int*>(to))
    atomicMax(reinterpret_cast<int*>(to), bits);
}

}  // namespace baracuda::quantize
