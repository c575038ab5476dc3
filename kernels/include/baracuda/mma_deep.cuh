#pragma once
// mma_deep   products of one warp over 32 bytes of k, whatever the element: m16n8k16 of f16 and bf16, m16n8k8 of floats
//            in TF32 (sm_80 and later).
//
// Fragments are those of mma.cuh with 4 bytes a register: where that has elements 2t, 2t + 1 (+ 8), here are the bytes
// 4t … 4t + 3 (+ 16) of k. Of floats 10 digits are read.
#include <baracuda/mma.cuh>

// Below asm keeps its operands on a line of their own.
// clang-format off
namespace baracuda {

// A word of shared memory, in its order among ldmatrix and barriers.
// PTX ISA, Data Movement and Conversion Instructions: ld (PTX 1.0).
BARACUDA_D u32 load_shared(u32 address) {
  u32 word;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
  return word;
}

// d += a b; products exact, accumulated in float.
// PTX ISA, Warp Level Matrix Multiply-Accumulate Instructions: mma, m16n8k8 with .tf32 (PTX 7.0, sm_80).
template <class T> BARACUDA_D void mma_deep(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  if constexpr (is_half<T>) {
    mma_m16n8k16<T>(d, a, b);
  } else {
    static_assert(is_same<T, float>, "f16, bf16 or float");
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
}

}  // namespace baracuda
