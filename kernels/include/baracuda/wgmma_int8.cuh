#pragma once
// wgmma_int8 products of a warpgroup of integers of 8 bits, signed or not, in 32-bit sums (sm_90a only), with operands as
//            in wgmma.cuh: k inside a row, of which 32 elements are one step.
// PTX ISA, Asynchronous Warpgroup Level Matrix Instructions: wgmma.mma_async with .s8 or .u8 (PTX 8.0, sm_90a).
#include <baracuda/wgmma.cuh>

// Below asm keeps its operands on a line of their own.
// clang-format off
namespace baracuda {

template <int N> BARACUDA_D void hold(int (&d)[N][4]) {
#pragma unroll
  for (int n = 0; n < N; ++n) {
    asm volatile("" : "+r"(d[n][0]), "+r"(d[n][1]), "+r"(d[n][2]), "+r"(d[n][3]) :: "memory");
  }
}

#define BARACUDA_QUAD(x) "+r"((x)[0]), "+r"((x)[1]), "+r"((x)[2]), "+r"((x)[3])
#define BARACUDA_INT8_64(A, B) \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %32, 0;\n" \
               "wgmma.mma_async.sync.aligned.m64n64k32.s32." A "." B " {" \
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31" \
               "}, %33, %34, p;\n}" \
               : BARACUDA_QUAD(d[0]), BARACUDA_QUAD(d[1]), BARACUDA_QUAD(d[2]), BARACUDA_QUAD(d[3]), \
                 BARACUDA_QUAD(d[4]), BARACUDA_QUAD(d[5]), BARACUDA_QUAD(d[6]), BARACUDA_QUAD(d[7]) \
               : "r"(add), "l"(a), "l"(b))
#define BARACUDA_INT8_128(A, B) \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %64, 0;\n" \
               "wgmma.mma_async.sync.aligned.m64n128k32.s32." A "." B " {" \
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
               "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
               "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63" \
               "}, %65, %66, p;\n}" \
               : BARACUDA_QUAD(d[0]), BARACUDA_QUAD(d[1]), BARACUDA_QUAD(d[2]), BARACUDA_QUAD(d[3]), \
                 BARACUDA_QUAD(d[4]), BARACUDA_QUAD(d[5]), BARACUDA_QUAD(d[6]), BARACUDA_QUAD(d[7]), \
                 BARACUDA_QUAD(d[8]), BARACUDA_QUAD(d[9]), BARACUDA_QUAD(d[10]), BARACUDA_QUAD(d[11]), \
                 BARACUDA_QUAD(d[12]), BARACUDA_QUAD(d[13]), BARACUDA_QUAD(d[14]), BARACUDA_QUAD(d[15]) \
               : "r"(add), "l"(a), "l"(b))
#define BARACUDA_INT8_256(A, B) \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %128, 0;\n" \
               "wgmma.mma_async.sync.aligned.m64n256k32.s32." A "." B " {" \
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
               "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
               "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
               "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
               "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
               "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
               "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127" \
               "}, %129, %130, p;\n}" \
               : BARACUDA_QUAD(d[0]), BARACUDA_QUAD(d[1]), BARACUDA_QUAD(d[2]), BARACUDA_QUAD(d[3]), \
                 BARACUDA_QUAD(d[4]), BARACUDA_QUAD(d[5]), BARACUDA_QUAD(d[6]), BARACUDA_QUAD(d[7]), \
                 BARACUDA_QUAD(d[8]), BARACUDA_QUAD(d[9]), BARACUDA_QUAD(d[10]), BARACUDA_QUAD(d[11]), \
                 BARACUDA_QUAD(d[12]), BARACUDA_QUAD(d[13]), BARACUDA_QUAD(d[14]), BARACUDA_QUAD(d[15]), \
                 BARACUDA_QUAD(d[16]), BARACUDA_QUAD(d[17]), BARACUDA_QUAD(d[18]), BARACUDA_QUAD(d[19]), \
                 BARACUDA_QUAD(d[20]), BARACUDA_QUAD(d[21]), BARACUDA_QUAD(d[22]), BARACUDA_QUAD(d[23]), \
                 BARACUDA_QUAD(d[24]), BARACUDA_QUAD(d[25]), BARACUDA_QUAD(d[26]), BARACUDA_QUAD(d[27]), \
                 BARACUDA_QUAD(d[28]), BARACUDA_QUAD(d[29]), BARACUDA_QUAD(d[30]), BARACUDA_QUAD(d[31]) \
               : "r"(add), "l"(a), "l"(b))

// d = a b, plus d where `add`, of TA and TB, each i8 or u8; both operands in shared memory.
#define BARACUDA_INT8(WIDTH) \
  if constexpr (is_same<TA, i8> && is_same<TB, i8>) BARACUDA_INT8_##WIDTH("s8", "s8"); \
  else if constexpr (is_same<TA, i8>) BARACUDA_INT8_##WIDTH("s8", "u8"); \
  else if constexpr (is_same<TB, i8>) BARACUDA_INT8_##WIDTH("u8", "s8"); \
  else BARACUDA_INT8_##WIDTH("u8", "u8")
template <class TA, class TB> BARACUDA_D void wgmma_int8(int (&d)[8][4], u64 a, u64 b, int add) {
  BARACUDA_INT8(64);
}
template <class TA, class TB> BARACUDA_D void wgmma_int8(int (&d)[16][4], u64 a, u64 b, int add) {
  BARACUDA_INT8(128);
}
template <class TA, class TB> BARACUDA_D void wgmma_int8(int (&d)[32][4], u64 a, u64 b, int add) {
  BARACUDA_INT8(256);
}
#undef BARACUDA_INT8
#undef BARACUDA_QUAD
#undef BARACUDA_INT8_64
#undef BARACUDA_INT8_128
#undef BARACUDA_INT8_256

}  // namespace baracuda
