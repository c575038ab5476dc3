#pragma once
// turns      ordered accumulation: blocks add to one place in global memory one after another; a counter says whose
//            turn it is.
//
// One thread of a block waits for its turn; a block barrier then releases the others, and they add; after a second
// barrier one thread passes the turn on. Release and acquire of the counter, extended to the block by the barriers,
// order the additions (PTX ISA, Memory Consistency Model: release and acquire patterns). All blocks before a waiting
// one must have started: blocks draw their work from an atomic ticket counter.
#include <baracuda/types.cuh>

// Below asm keeps its operands on a line of their own.
// clang-format off
namespace baracuda {

BARACUDA_D u32 current_turn(const u32* counter) {  // relaxed, ahead of the turn; accept_turn where it has come
  u32 now;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(__cvta_generic_to_global(counter)) : "memory");
  return now;
}
BARACUDA_D void accept_turn() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
BARACUDA_D void await_turn(const u32* counter, u32 turn) {
  u32 now;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(__cvta_generic_to_global(counter)) : "memory");
  } while (now != turn);
}
BARACUDA_D void pass_turn(u32* counter, u32 next) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" :: "l"(__cvta_generic_to_global(counter)), "r"(next) : "memory");
}

// to[0 … 3] += x, 16-byte aligned. While no other thread adds to them, the order of the sum is the order of the turns.
// PTX ISA, Parallel Synchronization and Communication Instructions: red, .v4.f32 (PTX 8.1, sm_90).
BARACUDA_D void add_quad(float* to, const float (&x)[4]) {
#if __CUDA_ARCH__ >= 900
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
               :: "l"(__cvta_generic_to_global(to)), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]) : "memory");
#else
  const float4 old = __ldcg(reinterpret_cast<const float4*>(to));
  __stcg(reinterpret_cast<float4*>(to), float4{old.x + x[0], old.y + x[1], old.z + x[2], old.w + x[3]});
#endif
}

// The same while other threads may add too, in any order.
BARACUDA_D void add_quad_any_order(float* to, const float (&x)[4]) {
#if __CUDA_ARCH__ >= 900
  add_quad(to, x);
#else
  for (int n = 0; n < 4; ++n) atomicAdd(to + n, x[n]);
#endif
}

}  // namespace baracuda
