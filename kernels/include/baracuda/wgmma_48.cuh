#pragma once
// wgmma_48   products of a warpgroup with 64 x 48 outputs (sm_90a only), with operands as in wgmma.cuh.
// PTX ISA, Asynchronous Warpgroup Level Matrix Instructions: wgmma.mma_async (PTX 8.0, sm_90a).
#include <baracuda/wgmma.cuh>

// Below asm keeps its operands on a line of their own.
// clang-format off
namespace baracuda {

#define BARACUDA_QUAD(x) "+f"((x)[0]), "+f"((x)[1]), "+f"((x)[2]), "+f"((x)[3])
#define BARACUDA_WGMMA_48(TYPE, A, REST, ...) \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %24, 0;\nwgmma.mma_async.sync.aligned.m64n48k16.f32." TYPE "." TYPE " {" \
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
               "%16, %17, %18, %19, %20, %21, %22, %23}, " A ", " REST ";\n}" \
               : BARACUDA_QUAD(d[0]), BARACUDA_QUAD(d[1]), BARACUDA_QUAD(d[2]), BARACUDA_QUAD(d[3]), \
                 BARACUDA_QUAD(d[4]), BARACUDA_QUAD(d[5]) \
               : "r"(add), __VA_ARGS__)
#define BARACUDA_WGMMA(A, REST, ...) \
  if constexpr (is_same<T, f16>) BARACUDA_WGMMA_48("f16", A, REST, __VA_ARGS__); \
  else BARACUDA_WGMMA_48("bf16", A, REST, __VA_ARGS__)

// d = a b, plus d where `add`; both operands in shared memory, or the left one in registers.
template <class T, bool A_ACROSS, bool B_ACROSS> BARACUDA_D void wgmma(float (&d)[6][4], u64 a, u64 b, int add) {
  BARACUDA_WGMMA("%25", "%26, p, 1, 1, %27, %28", "l"(a), "l"(b), "n"(A_ACROSS), "n"(B_ACROSS));
}
template <class T, bool B_ACROSS> BARACUDA_D void wgmma(float (&d)[6][4], const u32 (&a)[4], u64 b, int add) {
  BARACUDA_WGMMA("{%25, %26, %27, %28}", "%29, p, 1, 1, %30", "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),
                 "n"(B_ACROSS));
}
#undef BARACUDA_WGMMA
#undef BARACUDA_WGMMA_48
#undef BARACUDA_QUAD

}  // namespace baracuda
