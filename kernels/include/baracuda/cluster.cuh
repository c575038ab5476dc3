#pragma once
// cluster    what blocks of a cluster (sm_90 and later) read of one another's shared memory.
#include <baracuda/tma.cuh>

namespace baracuda {

// What the block of that rank has where this one has *p, of whole words. It was written before a cluster_sync of all.
template <class T> BARACUDA_D T read_remote(const T* p, u32 rank) {
  static_assert(sizeof(T) % 4 == 0, "whole words");
  T out;
  const u32 there = cluster_address(p, rank);
#pragma unroll
  for (u32 n = 0; n < sizeof(T) / 4; ++n) {
    asm volatile("ld.shared::cluster.u32 %0, [%1];"
                 : "=r"(reinterpret_cast<u32*>(&out)[n])
                 : "r"(there + 4 * n)
                 : "memory");
  }
  return out;
}

}  // namespace baracuda
