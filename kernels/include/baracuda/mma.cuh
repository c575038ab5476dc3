#pragma once
// mma        tensor-core fragments of one warp: ldmatrix and mma.sync m16n8k16 (sm_80 and later).
//
// With g = lane / 4 and t = lane % 4, the fragments of D[16, 8] += A[16, 16] B[16, 8] hold
//   a[0] = A[g, 2t .. 2t+1]      a[1] = A[g + 8, 2t ..]      a[2] = A[g, 2t + 8 ..]      a[3] = A[g + 8, 2t + 8 ..]
//   b[0] = B[2t .. 2t+1, g]      b[1] = B[2t + 8 .., g]
//   d[0], d[1] = D[g, 2t .. 2t+1]                            d[2], d[3] = D[g + 8, 2t .. 2t+1]
// two 16-bit elements a register, the lower index in the lower half.
#include <baracuda/async_copy.cuh>

// Below asm keeps its operands on a line of their own.
// clang-format off
namespace baracuda {

constexpr u32 all_lanes = 0xffffffffu;

// Four 8x8 matrices of 16-bit elements. Lanes 8m … 8m+7 give the addresses of the rows of matrix m (16 bytes each,
// 16-byte aligned); r[m] is row g, columns 2t and 2t+1 of matrix m, or of its transpose.
// PTX ISA, Warp Level Matrix Multiply-Accumulate Instructions: ldmatrix (PTX 6.5, sm_75).
BARACUDA_D void ldmatrix_x4(u32 (&r)[4], u32 shared_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address) : "memory");
}
BARACUDA_D void ldmatrix_x4_trans(u32 (&r)[4], u32 shared_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address) : "memory");
}
BARACUDA_D void ldmatrix_x4(u32 (&r)[4], const void* row) { ldmatrix_x4(r, smem_address(row)); }
BARACUDA_D void ldmatrix_x4_trans(u32 (&r)[4], const void* row) { ldmatrix_x4_trans(r, smem_address(row)); }

// Stores four 8x8 matrices to shared memory (sm_90 and later).
// PTX ISA, Warp Level Matrix Multiply-Accumulate Instructions: stmatrix (PTX 7.8, sm_90).
BARACUDA_D void stmatrix_x4(u32 shared_address, const u32 (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
               :: "r"(shared_address), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
}

// An 8x8 matrix of 16-bit elements transposed: in x and out, lane (g, t) has row g, columns 2t and 2t + 1.
// PTX ISA, Warp Level Matrix Multiply-Accumulate Instructions: movmatrix (PTX 7.8, sm_75).
BARACUDA_D u32 transpose_8x8(u32 x) {
  u32 y;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

// d += a b; products exact, accumulated in float.
// PTX ISA, Warp Level Matrix Multiply-Accumulate Instructions: mma, m16n8k16 with .f16 or .bf16 (PTX 7.0, sm_80).
template <class T> BARACUDA_D void mma_m16n8k16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  static_assert(is_half<T>, "m16n8k16 takes f16 or bf16");
  if constexpr (is_same<T, f16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
}

// Two floats to one register of a fragment, each rounded to nearest even; `low` has the lower index.
template <class T> BARACUDA_D u32 pack_pair(float low, float high) {
  if constexpr (is_same<T, f16>) {
    const __half2 h = __floats2half2_rn(low, high);
    return *reinterpret_cast<const u32*>(&h);
  } else {
    const __nv_bfloat162 h = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const u32*>(&h);
  }
}

// Transposes four words of each of four lanes 4 k … 4 k + 3: word n of lane m becomes word m of lane n. N times that.
template <int N> BARACUDA_D void transpose_quads(u32 (&x)[N][4]) {
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    const bool high = lane_id() & bit;
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      if (n & bit) continue;
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const u32 low = x[k][n], up = x[k][n + bit], got = __shfl_xor_sync(all_lanes, high ? low : up, bit);
        x[k][n] = high ? got : low;
        x[k][n + bit] = high ? up : got;
      }
    }
  }
}

// Writes 16 rows of an accumulator, eight to each place, times their factors; rows from `rows` and columns from `cols`
// on stay unwritten. WIDE: rows start 16-byte aligned and cols is a multiple of 8. SHARED: to shared memory, else
// global. All lanes call.
template <bool WIDE, bool SHARED = false, class T, int N>
BARACUDA_D void put_rows(T* const (&places)[2], i64 stride, int rows, int cols, const float (&x)[N][4], const float (&factors)[2]) {
  const int first = lane_id() / 4, own = lane_id() % 4 * (WIDE ? 8 : 2);
  T* const to[2] = {places[0] + first * stride + own, places[1] + first * stride + own};
#pragma unroll
  for (int n = 0; n < N; n += WIDE ? 4 : 1) {
    if constexpr (WIDE) {  // 32 columns
      static_assert(N % 4 == 0, "whole pieces of 32 columns");
      u32 pairs[2][4];
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const float(&quad)[4] = x[n + k / 2];
        pairs[k % 2][k / 2] = pack_pair<T>(quad[k % 2 * 2] * factors[k % 2], quad[k % 2 * 2 + 1] * factors[k % 2]);
      }
      transpose_quads(pairs);
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const u32(&y)[4] = pairs[k];
        const uint4 x{y[0], y[1], y[2], y[3]};
        const bool wanted = first + 8 * k < rows && 8 * n + own < cols;
        if (!SHARED) store_whole(to[k] + 8 * n, x, wanted);
        else if (wanted) *reinterpret_cast<uint4*>(to[k] + 8 * n) = x;
      }
    } else {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int col = 8 * n + e % 2;
        if (first + e / 2 * 8 < rows && col + own < cols) to[e / 2][col] = from_acc<T>(x[n][e] * factors[e / 2]);
      }
    }
  }
}

}  // namespace baracuda
