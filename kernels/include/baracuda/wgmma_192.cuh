#pragma once
// wgmma_192  products of a warpgroup of 64 x 192 outputs of 16-bit elements (sm_90a only), with operands as in wgmma.cuh: a width
//            between those of wgmma.cuh and wgmma_wide.cuh, where columns are multiples of 64 that 128 and 256 do not divide.
// PTX ISA, Asynchronous Warpgroup Level Matrix Instructions: wgmma.mma_async (PTX 8.0, sm_90a).
#include <baracuda/wgmma.cuh>

// Below asm keeps its operands on a line of their own.
// clang-format off
namespace baracuda {

#define BARACUDA_QUAD(x) "+f"((x)[0]), "+f"((x)[1]), "+f"((x)[2]), "+f"((x)[3])
#define BARACUDA_192(TYPE) \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %96, 0;\nwgmma.mma_async.sync.aligned.m64n192k16.f32." TYPE "." TYPE " {" \
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
               "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
               "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
               "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
               "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95" \
               "}, %97, %98, p, 1, 1, %99, %100;\n}" \
               : BARACUDA_QUAD(d[0]), BARACUDA_QUAD(d[1]), BARACUDA_QUAD(d[2]), BARACUDA_QUAD(d[3]), \
                 BARACUDA_QUAD(d[4]), BARACUDA_QUAD(d[5]), BARACUDA_QUAD(d[6]), BARACUDA_QUAD(d[7]), \
                 BARACUDA_QUAD(d[8]), BARACUDA_QUAD(d[9]), BARACUDA_QUAD(d[10]), BARACUDA_QUAD(d[11]), \
                 BARACUDA_QUAD(d[12]), BARACUDA_QUAD(d[13]), BARACUDA_QUAD(d[14]), BARACUDA_QUAD(d[15]), \
                 BARACUDA_QUAD(d[16]), BARACUDA_QUAD(d[17]), BARACUDA_QUAD(d[18]), BARACUDA_QUAD(d[19]), \
                 BARACUDA_QUAD(d[20]), BARACUDA_QUAD(d[21]), BARACUDA_QUAD(d[22]), BARACUDA_QUAD(d[23]) \
               : "r"(add), "l"(a), "l"(b), "n"(A_ACROSS), "n"(B_ACROSS))

// d = a b, plus d where `add`; both operands in shared memory.
template <class T, bool A_ACROSS, bool B_ACROSS> BARACUDA_D void wgmma(float (&d)[24][4], u64 a, u64 b, int add) {
  if constexpr (is_same<T, f16>) BARACUDA_192("f16");
  else BARACUDA_192("bf16");
}
#undef BARACUDA_192
#undef BARACUDA_QUAD

}  // namespace baracuda
