#pragma once
// copy_ring  slices of operands through a ring of stages in shared memory, which all threads of a block copy (cp.async)
//            and multiply from.
#include <baracuda/async_copy.cuh>

namespace baracuda {

struct NothingElse {
  BARACUDA_D void operator()() const {}
};

// Calls multiply(stage, slice) for slices in their order, and copy(stage, slice), which issues a slice's copies,
// STAGES - 1 slices ahead; begin(): what else is to be read, once the first copies are issued. On return the ring is free.
// All threads of the block call.
template <int STAGES, class Copy, class Multiply, class Begin = NothingElse>
BARACUDA_D void for_slices(int slices, const Copy& copy, const Multiply& multiply, const Begin& begin = {}) {
  const auto issue = [&](int stage, int slice) {
    if (slice < slices) copy(stage, slice);
    cp_async_commit();
  };
#pragma unroll
  for (int n = 0; n < STAGES - 1; ++n) issue(n, n);
  begin();
  int stage = 0;  // that is read
#pragma unroll 1
  for (int slice = 0; slice < slices; ++slice) {
    // Wait for the stage. Then all warps are done with the stage before, too.
    cp_async_wait<STAGES - 2>();
    __syncthreads();
    // Issue the copies of a later slice into the stage before.
    issue(stage == 0 ? STAGES - 1 : stage - 1, slice + STAGES - 1);
    multiply(stage, slice);
    stage = stage + 1 == STAGES ? 0 : stage + 1;
  }
  cp_async_wait<0>();
  __syncthreads();
}

}  // namespace baracuda
