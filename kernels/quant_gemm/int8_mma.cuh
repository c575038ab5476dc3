#pragma once
// int8_mma   the instruction of products of integers of 8 bits on sm_90a, as gemm/wgmma.cuh takes one.
#include "gemm/wgmma.cuh"
#include <baracuda/wgmma_int8.cuh>

namespace baracuda::gemm {

// The products of integers of 8 bits, each of TA and TB i8 or u8, in 32 bits: 32 of k of 64 rows of a and N * 8 columns
// of b.
template <class TA, class TB> struct Int8Mma {
  using Element = i8;
  using Sum = int;
  static constexpr bool a_across = false, b_across = false;

  // acc = a b, plus acc where `adds`.
  template <int N> static BARACUDA_D void multiply(int (&acc)[N][4], u64 a, u64 b, int adds) {
    wgmma_int8<TA, TB>(acc, a, b, adds);
  }
  // Keeps the compiler from using acc before it was waited for.
  template <int N> static BARACUDA_D void hold(int (&acc)[N][4]) { baracuda::hold(acc); }
};

}  // namespace baracuda::gemm
