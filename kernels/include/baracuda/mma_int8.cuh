#pragma once
// mma_int8   products of one warp over 32 of k of integers of 8 bits, signed or not, in 32-bit sums (m16n8k32, sm_80 and
//            later).
//
// Fragments are those of mma_deep.cuh: a register has the bytes 4t … 4t + 3 (+ 16) of k. Sums wrap modulo 2^32.
#include <baracuda/mma.cuh>

// Below asm keeps its operands on a line of their own.
// clang-format off
namespace baracuda {

#define BARACUDA_MMA_INT8(A, B) \
  asm("mma.sync.aligned.m16n8k32.row.col.s32." A "." B ".s32 " \
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]) \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

// d += a b, of TA and TB, each i8 or u8.
// PTX ISA, Warp Level Matrix Multiply-Accumulate Instructions: mma, m16n8k32 with .s8 or .u8 (PTX 7.0, sm_80).
template <class TA, class TB> BARACUDA_D void mma_int8(int (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  static_assert(sizeof(TA) == 1 && sizeof(TB) == 1 && is_integer<TA> && is_integer<TB>, "i8 or u8");
  if constexpr (is_same<TA, i8> && is_same<TB, i8>) BARACUDA_MMA_INT8("s8", "s8");
  else if constexpr (is_same<TA, i8>) BARACUDA_MMA_INT8("s8", "u8");
  else if constexpr (is_same<TB, i8>) BARACUDA_MMA_INT8("u8", "s8");
  else BARACUDA_MMA_INT8("u8", "u8");
}
#undef BARACUDA_MMA_INT8

}  // namespace baracuda
