#pragma once
// async_copy cp.async: copies from global to shared memory without registers, in groups that a thread waits for (sm_80
// and later).
//
// copy …; cp_async_commit(); … cp_async_wait<N>(); __syncthreads(); a wait covers the calling thread's copies only,
// the barrier makes those of the others visible.
// PTX ISA, Data Movement and Conversion Instructions, Asynchronous copy: cp.async, cp.async.commit_group,
// cp.async.wait_group (PTX 7.0, sm_80).
#include <baracuda/types.cuh>

// Below asm keeps its operands on a line of their own.
// clang-format off
namespace baracuda {

BARACUDA_D u32 smem_address(const void* p) { return static_cast<u32>(__cvta_generic_to_shared(p)); }

// Copies 16 bytes past L1. valid false: nothing is read (any non-null address will do) and zeros are written.
BARACUDA_D void cp_async_16(void* smem, const void* global, bool valid = true) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
               :: "r"(smem_address(smem)), "l"(__cvta_generic_to_global(global)), "r"(valid ? 16 : 0) : "memory");
}

// Copies 4, 8 or 16 bytes through L1; the first `bytes` are read, the rest are zeros.
template <int SIZE> BARACUDA_D void cp_async(void* smem, const void* global, int bytes = SIZE) {
  static_assert(SIZE == 4 || SIZE == 8 || SIZE == 16, "cp.async copies 4, 8 or 16 bytes");
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
               :: "r"(smem_address(smem)), "l"(__cvta_generic_to_global(global)), "n"(SIZE), "r"(bytes) : "memory");
}

BARACUDA_D void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most PENDING of this thread's newest groups are in flight.
template <int PENDING> BARACUDA_D void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" :: "n"(PENDING) : "memory");
}

// Prefetches into the L2 cache.
// PTX ISA, Data Movement and Conversion Instructions: prefetch (PTX 2.0, sm_20).
BARACUDA_D void prefetch_l2(const void* global) {
  asm volatile("prefetch.global.L2 [%0];" :: "l"(__cvta_generic_to_global(global)));
}

}  // namespace baracuda
