#pragma once
// mma_bits   products of one warp over 256 bits of k: how many of them differ (m16n8k256, sm_80 and later).
//
// Fragments are those of mma_deep.cuh: a register has the 32 bits of the bytes 4t … 4t + 3 (+ 16) of k.
#include <baracuda/mma.cuh>

// Below asm keeps its operands on a line of their own.
// clang-format off
namespace baracuda {

// d += popcount(a xor b).
// PTX ISA, Warp Level Matrix Multiply-Accumulate Instructions: mma, m16n8k256 with .b1 and .xor.popc (PTX 7.0, sm_80).
BARACUDA_D void mma_bits(int (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  asm("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

}  // namespace baracuda
