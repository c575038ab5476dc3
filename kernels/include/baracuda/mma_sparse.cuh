#pragma once
// mma_sparse products of one warp whose left matrix is 2:4 sparse: of every four neighbours along k two are stored, and
//            metadata says which (sm_80 and later). m16n8k32 of f16 and bf16, m16n8k64 of 8-bit integers.
//
// Fragments of the compressed left matrix are those of mma_deep.cuh, 32 bytes of k; those of the right one are two of
// mma_deep.cuh, of the 64 bytes of k that the same groups have, one after the other. A group of four has four bits of
// metadata, the places of its two elements in ascending order, the first in the low bits; a row's groups follow each
// other from the low bits up. Which lanes of four (g the rows, t the lane) hold what:
//   16-bit elements   t = 0, 1: rows g (low half) and g + 8 (high half), the 16 of k from 16 t on; t = 2, 3 are not read
//   bytes             rows g (t even) and g + 8 (t odd), the 32 of k from 32 (t / 2) on
#include <baracuda/mma.cuh>
#include <baracuda/reduce.cuh>

// Below asm keeps its operands on a line of their own.
// clang-format off
namespace baracuda {

#define BARACUDA_MMA_SPARSE(SHAPE, SUM, KIND, CONSTRAINT) \
  asm("mma.sp::ordered_metadata.sync.aligned." SHAPE ".row.col." SUM "." KIND "." KIND "." SUM " " \
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, 0x0;" \
               : CONSTRAINT(d[0]), CONSTRAINT(d[1]), CONSTRAINT(d[2]), CONSTRAINT(d[3]) \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(metadata))

// d += a b; sums in float, or of integers modulo 2^32.
// PTX ISA, Warp Level Matrix Multiply-Accumulate Instructions: mma.sp::ordered_metadata (PTX 8.5, sm_80).
template <class T> BARACUDA_D void mma_sparse(float (&d)[4], const u32 (&a)[4], const u32 (&b)[4], u32 metadata) {
  static_assert(is_half<T>, "f16 or bf16");
  if constexpr (is_same<T, f16>) BARACUDA_MMA_SPARSE("m16n8k32", "f32", "f16", "+f");
  else BARACUDA_MMA_SPARSE("m16n8k32", "f32", "bf16", "+f");
}
template <class T> BARACUDA_D void mma_sparse(int (&d)[4], const u32 (&a)[4], const u32 (&b)[4], u32 metadata) {
  static_assert(is_same<T, i8>, "i8");
  BARACUDA_MMA_SPARSE("m16n8k64", "s32", "s8", "+r");
}
#undef BARACUDA_MMA_SPARSE

// The metadata of a lane of a product of 16-bit elements: of 32 of k of its rows g and g + 8.
BARACUDA_D u32 metadata_of(u32 row, u32 row_8) { return __byte_perm(row, row_8, lane_id() & 1 ? 0x7632 : 0x5410); }

}  // namespace baracuda
