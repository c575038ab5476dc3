#pragma once
// wgmma_sparse products of a warpgroup whose left matrix is 2:4 sparse (sm_90a only): of every four neighbours along k two
//            are stored, and metadata says which, as in mma_sparse.cuh.
//
// Operands are in shared memory as wgmma.cuh has them, with k inside a row. One step is 32 bytes of a row of the
// compressed left one and the 64 bytes that the same groups have of the right one: k = 32 of f16 and bf16, 64 of bytes.
// Metadata is in registers, which must stay as they are until the products are waited for; warp w of the group has that
// of rows 16 w …, its lanes as mma_sparse.cuh says.
// PTX ISA, Asynchronous Warpgroup Level Matrix Instructions: wgmma.mma_async.sp (PTX 8.2, sm_90a).
#include <baracuda/wgmma.cuh>

// Below asm keeps its operands on a line of their own.
// clang-format off
namespace baracuda {

#define BARACUDA_QUAD(C, x) C((x)[0]), C((x)[1]), C((x)[2]), C((x)[3])
#define BARACUDA_SPARSE_64(SHAPE, REST, C) \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %32, 0;\nwgmma.mma_async.sp.sync.aligned.m64n64" SHAPE " {" \
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31" \
               "}, %33, %34, %35, 0, p" REST ";\n}" \
               : BARACUDA_QUAD(C, d[0]), BARACUDA_QUAD(C, d[1]), BARACUDA_QUAD(C, d[2]), BARACUDA_QUAD(C, d[3]), \
                 BARACUDA_QUAD(C, d[4]), BARACUDA_QUAD(C, d[5]), BARACUDA_QUAD(C, d[6]), BARACUDA_QUAD(C, d[7]) \
               : "r"(add), "l"(a), "l"(b), "r"(metadata))
#define BARACUDA_SPARSE_128(SHAPE, REST, C) \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %64, 0;\nwgmma.mma_async.sp.sync.aligned.m64n128" SHAPE " {" \
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
               "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
               "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63" \
               "}, %65, %66, %67, 0, p" REST ";\n}" \
               : BARACUDA_QUAD(C, d[0]), BARACUDA_QUAD(C, d[1]), BARACUDA_QUAD(C, d[2]), BARACUDA_QUAD(C, d[3]), \
                 BARACUDA_QUAD(C, d[4]), BARACUDA_QUAD(C, d[5]), BARACUDA_QUAD(C, d[6]), BARACUDA_QUAD(C, d[7]), \
                 BARACUDA_QUAD(C, d[8]), BARACUDA_QUAD(C, d[9]), BARACUDA_QUAD(C, d[10]), BARACUDA_QUAD(C, d[11]), \
                 BARACUDA_QUAD(C, d[12]), BARACUDA_QUAD(C, d[13]), BARACUDA_QUAD(C, d[14]), BARACUDA_QUAD(C, d[15]) \
               : "r"(add), "l"(a), "l"(b), "r"(metadata))

// d = a b, plus d where `add`; sums in float, or of integers modulo 2^32.
#define BARACUDA_SPARSE(WIDTH) \
  if constexpr (is_same<T, f16>) BARACUDA_SPARSE_##WIDTH("k32.f32.f16.f16", ", 1, 1, 0, 0", "+f"); \
  else BARACUDA_SPARSE_##WIDTH("k32.f32.bf16.bf16", ", 1, 1, 0, 0", "+f")
template <class T> BARACUDA_D void wgmma_sparse(float (&d)[8][4], u64 a, u64 b, u32 metadata, int add) {
  static_assert(is_half<T>, "f16 or bf16");
  BARACUDA_SPARSE(64);
}
template <class T> BARACUDA_D void wgmma_sparse(float (&d)[16][4], u64 a, u64 b, u32 metadata, int add) {
  static_assert(is_half<T>, "f16 or bf16");
  BARACUDA_SPARSE(128);
}
template <class T> BARACUDA_D void wgmma_sparse(int (&d)[8][4], u64 a, u64 b, u32 metadata, int add) {
  static_assert(is_same<T, i8>, "i8");
  BARACUDA_SPARSE_64("k64.s32.s8.s8", "", "+r");
}
template <class T> BARACUDA_D void wgmma_sparse(int (&d)[16][4], u64 a, u64 b, u32 metadata, int add) {
  static_assert(is_same<T, i8>, "i8");
  BARACUDA_SPARSE_128("k64.s32.s8.s8", "", "+r");
}
#undef BARACUDA_SPARSE
#undef BARACUDA_QUAD
#undef BARACUDA_SPARSE_64
#undef BARACUDA_SPARSE_128

}  // namespace baracuda
