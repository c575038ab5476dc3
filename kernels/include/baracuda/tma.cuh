#pragma once
// tma        boxes of an array between global and shared memory by TMA, and clusters of blocks (sm_90 and
//            later).
//
// A map says what the array is and how large a box (tensor_map.cuh); coordinates are those of the box's first element,
// innermost first, and may lie outside the array. A box in shared memory starts at a multiple of 128 bytes, one in the
// 128-byte swizzle at a multiple of 1024: it then is a tile as wgmma.cuh has them.
//
// A load completes on a Barrier, which counts bytes besides arrivals: one thread calls arrive_expecting(bytes) for all
// loads of a phase, and starts them. The phase is over when all have arrived and all the bytes are there. A store is
// bulk_fence() by the threads that wrote the box, a barrier among them, tensor_store and bulk_commit() by one thread,
// and bulk_wait_read or bulk_wait (pipeline.cuh) by that thread.
// PTX ISA, Data Movement and Conversion Instructions: cp.async.bulk.tensor, prefetch.tensormap (PTX 8.0, sm_90), mapa
// (PTX 7.8, sm_90); Parallel Synchronization and Communication Instructions: mbarrier.arrive, mbarrier.expect_tx
// (PTX 8.0, sm_90), barrier.cluster (PTX 7.8, sm_90), fence.mbarrier_init (PTX 8.0, sm_90).
#include <baracuda/pipeline.cuh>
#include <baracuda/tensor_map.cuh>

// Below asm keeps its operands on a line of their own.
// clang-format off
namespace baracuda {

BARACUDA_D void prefetch_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" :: "l"(&map) : "memory");
}

// ---- clusters -------------------------------------------------------------------------------------------------------

BARACUDA_D u32 cluster_rank() {  // of this block in its cluster
  u32 rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// All threads of a cluster; what they wrote before they arrive is seen after the wait. No block may end while others of
// its cluster still reach its shared memory.
BARACUDA_D void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
BARACUDA_D void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
BARACUDA_D void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}

// Where the block of that rank has what this block has at p.
BARACUDA_D u32 cluster_address(const void* p, u32 rank) {
  u32 there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(smem_address(p)), "r"(rank));
  return there;
}

// ---- barriers -------------------------------------------------------------------------------------------------------

// After init, before a barrier of the block, or of the cluster where its other blocks, or TMA, use them.
BARACUDA_D void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
}

// One arrival, and so many more bytes to come before the phase is over.
BARACUDA_D void arrive_expecting(Barrier& barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :: "r"(smem_address(&barrier)), "r"(bytes) : "memory");
}
// An arrival at the same barrier of the cluster's block of that rank: of a thread that has read, but need not show it
// what it wrote.
BARACUDA_D void arrive_remote(Barrier& barrier, u32 rank) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];"
               :: "r"(cluster_address(&barrier, rank)) : "memory");
}

// ---- loads ----------------------------------------------------------------------------------------------------------

#define BARACUDA_LOAD "cp.async.bulk.tensor."
#define BARACUDA_TO ".shared::cluster.global.mbarrier::complete_tx::bytes"
#define BARACUDA_PLACES "r"(smem_address(smem)), "l"(&map), "r"(smem_address(&barrier))

BARACUDA_D void tensor_load(void* smem, const TensorMap& map, Barrier& barrier, int x, int y) {
  asm volatile(BARACUDA_LOAD "2d" BARACUDA_TO " [%0], [%1, {%3, %4}], [%2];"
               :: BARACUDA_PLACES, "r"(x), "r"(y) : "memory");
}
BARACUDA_D void tensor_load(void* smem, const TensorMap& map, Barrier& barrier, int x, int y, int z) {
  asm volatile(BARACUDA_LOAD "3d" BARACUDA_TO " [%0], [%1, {%3, %4, %5}], [%2];"
               :: BARACUDA_PLACES, "r"(x), "r"(y), "r"(z) : "memory");
}
BARACUDA_D void tensor_load(void* smem, const TensorMap& map, Barrier& barrier, int x, int y, int z, int u) {
  asm volatile(BARACUDA_LOAD "4d" BARACUDA_TO " [%0], [%1, {%3, %4, %5, %6}], [%2];"
               :: BARACUDA_PLACES, "r"(x), "r"(y), "r"(z), "r"(u) : "memory");
}
BARACUDA_D void tensor_load(void* smem, const TensorMap& map, Barrier& barrier, int x, int y, int z, int u, int v) {
  asm volatile(BARACUDA_LOAD "5d" BARACUDA_TO " [%0], [%1, {%3, %4, %5, %6, %7}], [%2];"
               :: BARACUDA_PLACES, "r"(x), "r"(y), "r"(z), "r"(u), "r"(v) : "memory");
}

// The same into the blocks of the cluster whose bits are set: each has the box, and its bytes counted, at the same
// place.
BARACUDA_D void tensor_load_to(u16 blocks, void* smem, const TensorMap& map, Barrier& barrier, int x, int y) {
  asm volatile(BARACUDA_LOAD "2d" BARACUDA_TO ".multicast::cluster [%0], [%1, {%4, %5}], [%2], %3;"
               :: BARACUDA_PLACES, "h"(blocks), "r"(x), "r"(y) : "memory");
}
BARACUDA_D void tensor_load_to(u16 blocks, void* smem, const TensorMap& map, Barrier& barrier, int x, int y, int z) {
  asm volatile(BARACUDA_LOAD "3d" BARACUDA_TO ".multicast::cluster [%0], [%1, {%4, %5, %6}], [%2], %3;"
               :: BARACUDA_PLACES, "h"(blocks), "r"(x), "r"(y), "r"(z) : "memory");
}

#undef BARACUDA_LOAD
#undef BARACUDA_TO
#undef BARACUDA_PLACES

// ---- stores ---------------------------------------------------------------------------------------------------------

BARACUDA_D void tensor_store(const TensorMap& map, const void* smem, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];"
               :: "l"(&map), "r"(smem_address(smem)), "r"(x), "r"(y) : "memory");
}
BARACUDA_D void tensor_store(const TensorMap& map, const void* smem, int x, int y, int z) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];"
               :: "l"(&map), "r"(smem_address(smem)), "r"(x), "r"(y), "r"(z) : "memory");
}

}  // namespace baracuda
