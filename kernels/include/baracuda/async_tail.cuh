#pragma once
// async_tail cp.async of 16 bytes at the end of a row, where fewer are there to be read (sm_80 and later).
#include <baracuda/async_copy.cuh>

// Below asm keeps its operands on a line of their own.
// clang-format off
namespace baracuda {

// Fills 16 bytes past L1; the first `bytes`, 0 to 16, are read, the rest are zeros. Both places are 16-byte aligned.
// PTX ISA, Data Movement and Conversion Instructions, Asynchronous copy: cp.async (PTX 7.0, sm_80).
BARACUDA_D void cp_async_16_of(void* smem, const void* global, int bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
               :: "r"(smem_address(smem)), "l"(__cvta_generic_to_global(global)), "r"(bytes) : "memory");
}

}  // namespace baracuda
