#pragma once
// mma_fp8    products of one warp over 32 of k of fp8: by the tensor cores that know it (m16n8k32, sm_89 and later), or as
//            two products of f16, which has all values of fp8 exactly (m16n8k16, sm_80 and later).
//
// Fragments are those of mma_deep.cuh: a register has the bytes 4t … 4t + 3 (+ 16) of k. As f16 the first product takes
// the bytes 0 … 15, the second 16 … 31, and of both operands the bytes 4t, 4t + 1 stand where m16n8k16 has 2t, 2t + 1,
// and 4t + 2, 4t + 3 where it has 2t + 8, 2t + 9.
#include <baracuda/fp8.cuh>
#include <baracuda/mma.cuh>

// Below asm keeps its operands on a line of their own.
// clang-format off
namespace baracuda {

// d += a b, both of T; of a sum some 13 bits below the largest term are kept.
// PTX ISA, Warp Level Matrix Multiply-Accumulate Instructions: mma, m16n8k32 with .e4m3 or .e5m2 (PTX 8.4, sm_89).
template <class T> BARACUDA_D void mma_m16n8k32(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  static_assert(is_fp8<T>, "m16n8k32 takes e4m3 or e5m2");
  if constexpr (is_same<T, e4m3>) {
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
}

// The fragments of two products of f16 that a left fragment of T is, and a right one.
template <class T> BARACUDA_D void widen_left(u32 (&to)[2][4], const u32 (&a)[4]) {
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const uint2 y = widen_four<T>(a[n]);
    to[n / 2][n % 2] = y.x, to[n / 2][n % 2 + 2] = y.y;
  }
}
template <class T> BARACUDA_D void widen_right(u32 (&to)[2][2], const u32 (&b)[2]) {
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const uint2 y = widen_four<T>(b[n]);
    to[n][0] = y.x, to[n][1] = y.y;
  }
}

}  // namespace baracuda
