#pragma once
// approximate   one instruction each, of the special function unit; subnormals are 0. For numbers of 16 bits, and where
//               the caller states what the error does.
#include <baracuda/types.cuh>

namespace baracuda::approximate {

// PTX ISA, Floating Point Instructions: lg2, rsqrt, sin, cos (.approx.ftz.f32). Between 1/2 and 2 the error of the
// logarithm is below 2^-22, elsewhere it is relative; that of the inverse root is relative, below 2^-22.9; sines and
// cosines of angles within a turn are off by less than 2^-20.5.
BARACUDA_D float log2(float x) {
  float r;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
BARACUDA_D float rsqrt(float x) {
  float r;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
BARACUDA_D float sin(float x) {
  float r;
  asm("sin.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
BARACUDA_D float cos(float x) {
  float r;
  asm("cos.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

}  // namespace baracuda::approximate
