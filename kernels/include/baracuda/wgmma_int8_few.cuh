#pragma once
// wgmma_int8_few products of a warpgroup of signed integers of 8 bits with 16 columns: wgmma_int8.cuh.
#include <baracuda/wgmma_int8.cuh>

// Below asm keeps its operands on a line of their own.
// clang-format off
namespace baracuda {

// d = a b, plus d where `add`; both operands in shared memory.
template <class TA, class TB> BARACUDA_D void wgmma_int8(int (&d)[2][4], u64 a, u64 b, int add) {
  static_assert(is_same<TA, i8> && is_same<TB, i8>, "signed");
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %8, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n16k32.s32.s8.s8 {%0, %1, %2, %3, %4, %5, %6, %7}, %9, %10, p;\n}"
               : "+r"(d[0][0]), "+r"(d[0][1]), "+r"(d[0][2]), "+r"(d[0][3]), "+r"(d[1][0]), "+r"(d[1][1]),
                 "+r"(d[1][2]), "+r"(d[1][3])
               : "r"(add), "l"(a), "l"(b));
}

}  // namespace baracuda
