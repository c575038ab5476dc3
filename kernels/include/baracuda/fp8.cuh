#pragma once
// fp8        e4m3 (float8_e4m3fn) and e5m2 to f16, which holds all their values exactly; NaN and infinities are kept.
//
// PTX ISA, Data Movement and Conversion Instructions: cvt, .f16x2 from .e4m3x2 or .e5m2x2 (PTX 7.8, sm_89); before that
// by hand, with the same bits except for the payload of a NaN.
#include <cuda_fp8.h>
#include <baracuda/types.cuh>

namespace baracuda {

using e4m3 = __nv_fp8_e4m3;
using e5m2 = __nv_fp8_e5m2;

template <class T> constexpr bool is_fp8 = is_same<T, e4m3> || is_same<T, e5m2>;

#if __CUDA_ARCH__ < 890
// The two elements in the lower half of x as a register of two f16, the lower first.
template <class C> BARACUDA_D u32 widen_pair(u32 x) {
  const u32 high = __byte_perm(x, 0, 0x1404);  // each element in the upper byte of a half, which is an e5m2 as f16
  if constexpr (is_same<C, e5m2>) return high;
  // Exponent and mantissa at their places in an f16 are 2^-8 of the value, subnormals too; 0x7f (NaN) would be 480.
  const u32 size = high & 0x7f007f00u;
  const u32 scaled = (high & 0x80008000u) | size >> 1;
  const __half2 y = __hmul2(*reinterpret_cast<const __half2*>(&scaled), __half2half2(__ushort_as_half(0x5c00)));
  return *reinterpret_cast<const u32*>(&y) | (__vcmpeq2(size, 0x7f007f00u) & 0x7fff7fffu);
}
#endif

// The four elements of a word as two registers of two f16, in order.
template <class C> BARACUDA_D uint2 widen_four(u32 x) {
  static_assert(is_fp8<C>, "e4m3 or e5m2");
#if __CUDA_ARCH__ >= 890
  uint2 y;  // the halves are taken in place: a shift between two conversions would be an instruction of its own
  if constexpr (is_same<C, e4m3>) {
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %2; cvt.rn.f16x2.e4m3x2 %0, low; cvt.rn.f16x2.e4m3x2 %1, high; }"
        : "=r"(y.x), "=r"(y.y)
        : "r"(x));
  } else {
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %2; cvt.rn.f16x2.e5m2x2 %0, low; cvt.rn.f16x2.e5m2x2 %1, high; }"
        : "=r"(y.x), "=r"(y.y)
        : "r"(x));
  }
  return y;
#else
  return uint2{widen_pair<C>(x), widen_pair<C>(x >> 16)};
#endif
}

}  // namespace baracuda
