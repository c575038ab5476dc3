#pragma once
// pipeline   warp specialisation on sm_90a: barriers (mbarrier) between producers and consumers of a block, and
//            registers that one warpgroup gives up for another.
//
// A Barrier counts arrivals; the last one completes its phase, and the next phase begins. Phases are told apart by
// parity: wait(0) returns once the first phase is complete, wait(1) once the second is, and wait(1) of a new barrier
// returns at once. An arrival releases what its thread has written; a wait acquires it.
// PTX ISA, Parallel Synchronization and Communication Instructions: mbarrier (PTX 7.8, sm_90), barrier; Miscellaneous
// Instructions: setmaxnreg (PTX 8.0, sm_90a).
#include <baracuda/async_copy.cuh>

// Below asm keeps its operands on a line of their own.
// clang-format off
namespace baracuda {

struct Barrier {
  u64 word;

  // Called by one thread, before a barrier of the block.
  BARACUDA_D void init(u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(smem_address(&word)), "r"(count) : "memory");
  }
  BARACUDA_D void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(smem_address(&word)) : "memory");
  }
  // Arrives when all cp.async of this thread are complete; later: asynchronously, for a thread that stores by cp.async
  // only.
  // PTX ISA, Parallel Synchronization and Communication Instructions: cp.async.mbarrier.arrive (PTX 7.0, sm_80).
  BARACUDA_D void arrive_when_copied(bool later) {
    if (later) {
      asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" :: "r"(smem_address(&word)) : "memory");
    } else {
      cp_async_commit();  // the wait counts committed groups
      cp_async_wait<0>();
      arrive();
    }
  }
  // One arrival for a whole warp, when all its lanes are done.
  BARACUDA_D void arrive_as_warp() {
    __syncwarp();
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\n@p mbarrier.arrive.shared::cta.b64 _, [%0];\n}"
                 :: "r"(smem_address(&word)) : "memory");
  }
  BARACUDA_D bool complete(u32 parity) {  // whether wait would return at once
    u32 yes;
    asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(yes) : "r"(smem_address(&word)), "r"(parity) : "memory");
    return yes;
  }
  // found: what complete() said before; asked well ahead, it saves the wait.
  BARACUDA_D void wait(u32 parity, bool found) {
    if (!found) wait(parity);
  }
  BARACUDA_D void wait(u32 parity) {
    u32 over;
    do {
      asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                   : "=r"(over) : "r"(smem_address(&word)), "r"(parity) : "memory");
    } while (over == 0);
  }
};

// Position in a ring of stages that are filled and emptied in turn: the stage, and the parity of its phase.
template <int STAGES> struct Stage {
  u32 count = 0;
  BARACUDA_D u32 index() const { return count % STAGES; }
  BARACUDA_D u32 full_parity() const { return count / STAGES % 2; }      // the parity to wait for before the stage is read
  BARACUDA_D u32 empty_parity() const { return count / STAGES % 2 ^ 1; }  // and before it is written
  BARACUDA_D void advance() { ++count; }
};

// setmaxnreg: from here on the warpgroup has N registers a thread, fewer than the kernel was compiled for, or more, for
// which it waits until others have given up theirs.
template <int N> BARACUDA_D void release_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(N)); }
template <int N> BARACUDA_D void acquire_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(N)); }

// A named barrier of COUNT threads (whole warps), wherever in the code they are; id 0 is that of __syncthreads.
// arrive_threads does not wait.
template <int COUNT> BARACUDA_D void sync_threads(int id) {
  asm volatile("barrier.sync %0, %1;" :: "r"(id), "n"(COUNT) : "memory");
}
template <int COUNT> BARACUDA_D void arrive_threads(int id) {
  asm volatile("barrier.arrive %0, %1;" :: "r"(id), "n"(COUNT) : "memory");
}

// Bulk copies from shared to global memory, or additions to floats there, asynchronous and in whole 16-byte pieces.
// Call bulk_fence after others wrote the source, then any copies, then bulk_commit; the waits return when all but
// PENDING committed groups of this thread have read their shared memory, or are complete.
// PTX ISA, Data Movement and Conversion Instructions: cp.async.bulk, cp.reduce.async.bulk (PTX 8.0, sm_90).
BARACUDA_D void bulk_fence() { asm volatile("fence.proxy.async.shared::cta;\nfence.proxy.async.global;" ::: "memory"); }
BARACUDA_D void bulk_store(void* global, const void* smem, u32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
               :: "l"(__cvta_generic_to_global(global)), "r"(smem_address(smem)), "r"(bytes) : "memory");
}
BARACUDA_D void bulk_add(float* global, const float* smem, u32 bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;"
               :: "l"(__cvta_generic_to_global(global)), "r"(smem_address(smem)), "r"(bytes) : "memory");
}
BARACUDA_D void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int PENDING> BARACUDA_D void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(PENDING) : "memory");
}
template <int PENDING> BARACUDA_D void bulk_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" :: "n"(PENDING) : "memory");
}

}  // namespace baracuda
