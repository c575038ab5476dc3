#pragma once
// wgmma      tensor-core products of a warpgroup (four warps) with operands in shared memory (sm_90a only).
//
// An operand tile has rows of 64 16-bit elements (128 bytes) in the 128-byte swizzle, which is that of tile::at<64>
// (mma_tile.cuh), and starts at a multiple of 1024 bytes. Either axis may be the product's k: rows of the tile along m
// or n with k inside a row, or (ACROSS) k along the rows with m or n inside a row. Warp w of the group has rows 16 w …
// of D[64, N], each lane as in mma.cuh.
//
// wgmma_fence(); wgmma…(); wgmma_commit(); … wgmma_wait<N>(); hold(d): the products run asynchronously from the commit
// to the wait, and hold keeps the compiler from using their registers before it.
// PTX ISA, Asynchronous Warpgroup Level Matrix Instructions: wgmma.mma_async and its matrix descriptor (PTX 8.0, sm_90a).
#include <baracuda/mma.cuh>

// Below asm keeps its operands on a line of their own.
// clang-format off
namespace baracuda {

// The warpgroup of this thread, by a shuffle, so that the compiler knows it is uniform in a warp: else it computes
// descriptors that depend on it in vector registers and moves them to uniform ones, six instructions each. Where
// registers are scarce that may pay.
BARACUDA_D int warpgroup() { return __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0); }

BARACUDA_D void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
BARACUDA_D void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING> BARACUDA_D void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(PENDING) : "memory");
}
// Makes what this thread wrote to shared memory, by st or by a completed cp.async, visible to the tensor cores.
BARACUDA_D void wgmma_publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

template <int N> BARACUDA_D void hold(float (&d)[N][4]) {
#pragma unroll
  for (int n = 0; n < N; ++n) {
    asm volatile("" : "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3]) :: "memory");
  }
}
template <int N> BARACUDA_D void hold(const u32 (&a)[N][4]) {
#pragma unroll
  for (int n = 0; n < N; ++n) asm volatile("" :: "r"(a[n][0]), "r"(a[n][1]), "r"(a[n][2]), "r"(a[n][3]) : "memory");
}

// Descriptor of a tile from a row that is a multiple of 8; 16 elements further along k are 32 bytes within rows or 2048
// bytes across. Eight rows are 1024 bytes apart; ACROSS, the next 64 columns are `apart` bytes on. Bit 62: 128-byte
// swizzle.
BARACUDA_D u64 wgmma_operand(u32 address, u32 apart = 16) {
  return (address >> 4 & 0x3fffu) | static_cast<u64>(apart >> 4) << 16 | 64ull << 32 | 1ull << 62;
}
template <class T> BARACUDA_D u64 wgmma_operand(const T* tile, u32 apart = 16) {
  return wgmma_operand(smem_address(tile), apart);
}

#define BARACUDA_QUAD(x) "+f"((x)[0]), "+f"((x)[1]), "+f"((x)[2]), "+f"((x)[3])
#define BARACUDA_WGMMA_64(TYPE, A, REST, ...)                                                                        \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %32, 0;\n"                                                           \
               "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE " {"                                     \
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                              \
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, " A ", " REST ";\n}" \
               : BARACUDA_QUAD(d[0]), BARACUDA_QUAD(d[1]), BARACUDA_QUAD(d[2]), BARACUDA_QUAD(d[3]),                 \
                 BARACUDA_QUAD(d[4]), BARACUDA_QUAD(d[5]), BARACUDA_QUAD(d[6]), BARACUDA_QUAD(d[7])                  \
               : "r"(add), __VA_ARGS__)
#define BARACUDA_WGMMA_128(TYPE, A, REST, ...)                                                                       \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %64, 0;\n"                                                           \
               "wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE " {"                                    \
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
               "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
               "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, " A ", " REST ";\n}" \
               : BARACUDA_QUAD(d[0]), BARACUDA_QUAD(d[1]), BARACUDA_QUAD(d[2]), BARACUDA_QUAD(d[3]), \
                 BARACUDA_QUAD(d[4]), BARACUDA_QUAD(d[5]), BARACUDA_QUAD(d[6]), BARACUDA_QUAD(d[7]), \
                 BARACUDA_QUAD(d[8]), BARACUDA_QUAD(d[9]), BARACUDA_QUAD(d[10]), BARACUDA_QUAD(d[11]), \
                 BARACUDA_QUAD(d[12]), BARACUDA_QUAD(d[13]), BARACUDA_QUAD(d[14]), BARACUDA_QUAD(d[15]) \
               : "r"(add), __VA_ARGS__)
#define BARACUDA_WGMMA_32(TYPE, A, REST, ...)                                                                        \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %16, 0;\n"                                                           \
               "wgmma.mma_async.sync.aligned.m64n32k16.f32." TYPE "." TYPE " {"                                     \
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, " A ", " REST ";\n}"          \
               : BARACUDA_QUAD(d[0]), BARACUDA_QUAD(d[1]), BARACUDA_QUAD(d[2]), BARACUDA_QUAD(d[3])                  \
               : "r"(add), __VA_ARGS__)

#define BARACUDA_WGMMA(WIDTH, A, REST, ...)                                                  \
  if constexpr (is_same<T, f16>) BARACUDA_WGMMA_##WIDTH("f16", A, REST, __VA_ARGS__);        \
  else BARACUDA_WGMMA_##WIDTH("bf16", A, REST, __VA_ARGS__)

// d = a b, plus d where `add`; both operands in shared memory.
template <class T, bool A_ACROSS, bool B_ACROSS> BARACUDA_D void wgmma(float (&d)[4][4], u64 a, u64 b, int add) {
  BARACUDA_WGMMA(32, "%17", "%18, p, 1, 1, %19, %20", "l"(a), "l"(b), "n"(A_ACROSS), "n"(B_ACROSS));
}
template <class T, bool A_ACROSS, bool B_ACROSS> BARACUDA_D void wgmma(float (&d)[8][4], u64 a, u64 b, int add) {
  BARACUDA_WGMMA(64, "%33", "%34, p, 1, 1, %35, %36", "l"(a), "l"(b), "n"(A_ACROSS), "n"(B_ACROSS));
}
template <class T, bool A_ACROSS, bool B_ACROSS> BARACUDA_D void wgmma(float (&d)[16][4], u64 a, u64 b, int add) {
  BARACUDA_WGMMA(128, "%65", "%66, p, 1, 1, %67, %68", "l"(a), "l"(b), "n"(A_ACROSS), "n"(B_ACROSS));
}
// The same with the left operand in registers: warp w's A fragment (mma.cuh) of rows 16 w ….
template <class T, bool B_ACROSS> BARACUDA_D void wgmma(float (&d)[8][4], const u32 (&a)[4], u64 b, int add) {
  BARACUDA_WGMMA(64, "{%33, %34, %35, %36}", "%37, p, 1, 1, %38", "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),
                 "n"(B_ACROSS));
}
template <class T, bool B_ACROSS> BARACUDA_D void wgmma(float (&d)[16][4], const u32 (&a)[4], u64 b, int add) {
  BARACUDA_WGMMA(128, "{%65, %66, %67, %68}", "%69, p, 1, 1, %70", "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),
                 "n"(B_ACROSS));
}
#undef BARACUDA_WGMMA
#undef BARACUDA_QUAD
#undef BARACUDA_WGMMA_64
#undef BARACUDA_WGMMA_128
#undef BARACUDA_WGMMA_32

}  // namespace baracuda
