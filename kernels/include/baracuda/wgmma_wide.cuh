#pragma once
// wgmma_wide more products of a warpgroup (sm_90a only), with operands as in wgmma.cuh: 64 x 256 outputs, and elements
// of other sizes, float as TF32 and those of 8 bits. A tile's rows are 128 bytes, 32 of which are one step of k: 16
// elements of 16 bits, 8 floats, 32 of 8 bits.
// PTX ISA, Asynchronous Warpgroup Level Matrix Instructions: wgmma.mma_async (PTX 8.0, sm_90a).
#include <baracuda/fp8.cuh>
#include <baracuda/wgmma.cuh>

// Below asm keeps its operands on a line of their own.
// clang-format off
namespace baracuda {

#define BARACUDA_QUAD(x) "+f"((x)[0]), "+f"((x)[1]), "+f"((x)[2]), "+f"((x)[3])
#define BARACUDA_WIDE_64(SHAPE, REST, ...) \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %32, 0;\nwgmma.mma_async.sync.aligned.m64n64" SHAPE " {" \
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31" \
               "}, %33, %34, p, 1, 1" REST ";\n}" \
               : BARACUDA_QUAD(d[0]), BARACUDA_QUAD(d[1]), BARACUDA_QUAD(d[2]), BARACUDA_QUAD(d[3]), \
                 BARACUDA_QUAD(d[4]), BARACUDA_QUAD(d[5]), BARACUDA_QUAD(d[6]), BARACUDA_QUAD(d[7]) \
               : "r"(add), "l"(a), "l"(b) __VA_ARGS__)
#define BARACUDA_WIDE_128(SHAPE, REST, ...) \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %64, 0;\nwgmma.mma_async.sync.aligned.m64n128" SHAPE " {" \
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
               "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
               "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63" \
               "}, %65, %66, p, 1, 1" REST ";\n}" \
               : BARACUDA_QUAD(d[0]), BARACUDA_QUAD(d[1]), BARACUDA_QUAD(d[2]), BARACUDA_QUAD(d[3]), \
                 BARACUDA_QUAD(d[4]), BARACUDA_QUAD(d[5]), BARACUDA_QUAD(d[6]), BARACUDA_QUAD(d[7]), \
                 BARACUDA_QUAD(d[8]), BARACUDA_QUAD(d[9]), BARACUDA_QUAD(d[10]), BARACUDA_QUAD(d[11]), \
                 BARACUDA_QUAD(d[12]), BARACUDA_QUAD(d[13]), BARACUDA_QUAD(d[14]), BARACUDA_QUAD(d[15]) \
               : "r"(add), "l"(a), "l"(b) __VA_ARGS__)
#define BARACUDA_WIDE_256(SHAPE, REST, ...) \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %128, 0;\nwgmma.mma_async.sync.aligned.m64n256" SHAPE " {" \
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
               "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
               "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
               "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
               "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
               "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
               "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127" \
               "}, %129, %130, p, 1, 1" REST ";\n}" \
               : BARACUDA_QUAD(d[0]), BARACUDA_QUAD(d[1]), BARACUDA_QUAD(d[2]), BARACUDA_QUAD(d[3]), \
                 BARACUDA_QUAD(d[4]), BARACUDA_QUAD(d[5]), BARACUDA_QUAD(d[6]), BARACUDA_QUAD(d[7]), \
                 BARACUDA_QUAD(d[8]), BARACUDA_QUAD(d[9]), BARACUDA_QUAD(d[10]), BARACUDA_QUAD(d[11]), \
                 BARACUDA_QUAD(d[12]), BARACUDA_QUAD(d[13]), BARACUDA_QUAD(d[14]), BARACUDA_QUAD(d[15]), \
                 BARACUDA_QUAD(d[16]), BARACUDA_QUAD(d[17]), BARACUDA_QUAD(d[18]), BARACUDA_QUAD(d[19]), \
                 BARACUDA_QUAD(d[20]), BARACUDA_QUAD(d[21]), BARACUDA_QUAD(d[22]), BARACUDA_QUAD(d[23]), \
                 BARACUDA_QUAD(d[24]), BARACUDA_QUAD(d[25]), BARACUDA_QUAD(d[26]), BARACUDA_QUAD(d[27]), \
                 BARACUDA_QUAD(d[28]), BARACUDA_QUAD(d[29]), BARACUDA_QUAD(d[30]), BARACUDA_QUAD(d[31]) \
               : "r"(add), "l"(a), "l"(b) __VA_ARGS__)

// d = a b, plus d where `add`; both operands in shared memory.
template <class T, bool A_ACROSS, bool B_ACROSS> BARACUDA_D void wgmma(float (&d)[32][4], u64 a, u64 b, int add) {
  if constexpr (is_same<T, f16>) {
    BARACUDA_WIDE_256("k16.f32.f16.f16", ", %131, %132", , "n"(A_ACROSS), "n"(B_ACROSS));
  } else {
    BARACUDA_WIDE_256("k16.f32.bf16.bf16", ", %131, %132", , "n"(A_ACROSS), "n"(B_ACROSS));
  }
}
// The same of other elements, whose operands have k inside a row; of 8 bits the right ones, R, may be others than the
// left ones. Of a float the last 13 bits are not read, and sums of 8-bit products keep some 13 bits below their largest
// term.
#define BARACUDA_ALONG(WIDTH) \
  if constexpr (is_same<T, float>) BARACUDA_WIDE_##WIDTH("k8.f32.tf32.tf32", ""); \
  else if constexpr (is_same<T, e4m3> && is_same<R, e4m3>) BARACUDA_WIDE_##WIDTH("k32.f32.e4m3.e4m3", ""); \
  else if constexpr (is_same<T, e4m3>) BARACUDA_WIDE_##WIDTH("k32.f32.e4m3.e5m2", ""); \
  else if constexpr (is_same<R, e4m3>) BARACUDA_WIDE_##WIDTH("k32.f32.e5m2.e4m3", ""); \
  else BARACUDA_WIDE_##WIDTH("k32.f32.e5m2.e5m2", "")
template <class T, class R = T> BARACUDA_D void wgmma_along(float (&d)[8][4], u64 a, u64 b, int add) {
  BARACUDA_ALONG(64);
}
template <class T, class R = T> BARACUDA_D void wgmma_along(float (&d)[16][4], u64 a, u64 b, int add) {
  BARACUDA_ALONG(128);
}
template <class T, class R = T> BARACUDA_D void wgmma_along(float (&d)[32][4], u64 a, u64 b, int add) {
  BARACUDA_ALONG(256);
}
#undef BARACUDA_ALONG
#undef BARACUDA_QUAD
#undef BARACUDA_WIDE_64
#undef BARACUDA_WIDE_128
#undef BARACUDA_WIDE_256

}  // namespace baracuda
