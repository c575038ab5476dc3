#pragma once
// mma_f64    products of one warp in double: mma.sync m8n8k4 (sm_80 and later), and loads of its operands.
//
// With g = lane / 4 and t = lane % 4, the fragments of D[8, 8] += A[8, 4] B[4, 8] hold
//   a = A[g, t]      b = B[t, g]      d[0], d[1] = D[g, 2t .. 2t+1]
#include <baracuda/async_copy.cuh>

// Below asm keeps its operands on a line of their own.
// clang-format off
namespace baracuda {

// A double of shared memory, in its order among barriers.
// PTX ISA, Data Movement and Conversion Instructions: ld (PTX 1.0).
BARACUDA_D double load_shared_f64(u32 address) {
  double x;
  asm volatile("ld.shared.f64 %0, [%1];" : "=d"(x) : "r"(address) : "memory");
  return x;
}

// d += a b.
// PTX ISA, Warp Level Matrix Multiply-Accumulate Instructions: mma, m8n8k4 with .f64 (PTX 7.0, sm_80).
BARACUDA_D void mma_m8n8k4(double (&d)[2], double a, double b) {
  asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
      : "+d"(d[0]), "+d"(d[1])
      : "d"(a), "d"(b));
}

}  // namespace baracuda
