#pragma once
// index      a linear row-major index to element offsets, for up to 8 merged axes of run-time rank.
//
// Axes are outermost first and already merged by the host; strides are in elements, may be 0 or negative. I is i32 when
// the host proved that the element count and every sum of (n - 1) * |stride| stay below 2^31, else i64.
#include <baracuda/types.cuh>

namespace baracuda {

constexpr int max_axes = 8;

// ---- division by a number the host knows ----------------------------------------------------------------------------

// n / divisor by one multiplication (Granlund and Montgomery 1994), exact for every n < 2^31 and 1 <= divisor <= 2^31.
// Three 32-bit words, filled on the host:
//
//   def div_mod(d: int) -> tuple[int, int, int]:      # divisor, magic, shift
//       shift = (d - 1).bit_length()
//       return d, ((1 << 32) * ((1 << shift) - d)) // d + 1, shift
//
// The true multiplier is magic + 2^32, so n is added back; below 2^31 that sum cannot overflow.
struct DivMod {
  u32 divisor, magic, shift;

  BARACUDA_HD u32 div(u32 n) const { return (static_cast<u32>((static_cast<u64>(n) * magic) >> 32) + n) >> shift; }
  BARACUDA_HD u32 divmod(u32 n, u32& remainder) const {
    const u32 q = div(n);
    remainder = n - q * divisor;
    return q;
  }
};

// ---- division by a number read at run time --------------------------------------------------------------------------

BARACUDA_HD u32 divmod(u32 n, u32 d, u32& remainder) {
  const u32 q = n / d;
  remainder = n - q * d;
  return q;
}
// A 64-bit division is some 70 instructions and a 32-bit one 20: most large problems have small axes.
BARACUDA_HD u64 divmod(u64 n, u64 d, u64& remainder) {
  if (((n | d) >> 32) == 0) {
    u32 r;
    const u32 q = divmod(static_cast<u32>(n), static_cast<u32>(d), r);
    remainder = r;
    return q;
  }
  const u64 q = n / d;
  remainder = n - q * d;
  return q;
}

// By `d`; for u32 as the host prepared it, where n and d are below 2^31.
template <class U> BARACUDA_D U divmod(U n, const u32 (&by)[3], i64 d, U& remainder) {
  if constexpr (sizeof(U) == 4) return DivMod{by[0], by[1], by[2]}.divmod(n, remainder);
  else return divmod(n, static_cast<u64>(d), remainder);
}

// ---- offsets --------------------------------------------------------------------------------------------------------

// out[n] = sum over axes of coordinate * strides[n][axis], for N operands that share one shape. The outermost extent is
// never a divisor, so shape[0] may be anything that covers `linear`. rank 0 gives offsets 0.
template <class I, int N>
BARACUDA_HD void offsets(I linear, int rank, const i64* shape, const i64 (*strides)[max_axes], I (&out)[N]) {
  using U = conditional<sizeof(I) == 4, u32, u64>;
  U rest = static_cast<U>(linear);
#pragma unroll
  for (int n = 0; n < N; ++n) out[n] = 0;
#pragma unroll 1
  for (int axis = rank - 1; axis > 0; --axis) {
    U coordinate;
    rest = divmod(rest, static_cast<U>(shape[axis]), coordinate);
#pragma unroll
    for (int n = 0; n < N; ++n) out[n] += static_cast<I>(coordinate) * static_cast<I>(strides[n][axis]);
  }
  if (rank > 0) {
#pragma unroll
    for (int n = 0; n < N; ++n) out[n] += static_cast<I>(rest) * static_cast<I>(strides[n][0]);
  }
}

// The 32-bit form with divisions prepared by the host: axes[k] divides by the extent of axis k.
template <int N>
BARACUDA_HD void offsets(i32 linear, int rank, const DivMod* axes, const i64 (*strides)[max_axes], i32 (&out)[N]) {
  u32 rest = static_cast<u32>(linear);
#pragma unroll
  for (int n = 0; n < N; ++n) out[n] = 0;
#pragma unroll 1
  for (int axis = rank - 1; axis > 0; --axis) {
    u32 coordinate;
    rest = axes[axis].divmod(rest, coordinate);
#pragma unroll
    for (int n = 0; n < N; ++n) out[n] += static_cast<i32>(coordinate) * static_cast<i32>(strides[n][axis]);
  }
  if (rank > 0) {
#pragma unroll
    for (int n = 0; n < N; ++n) out[n] += static_cast<i32>(rest) * static_cast<i32>(strides[n][0]);
  }
}

// One operand: the offset itself.
template <class I> BARACUDA_HD I offset(I linear, int rank, const i64* shape, const i64* strides) {
  I out[1];
  offsets<I, 1>(linear, rank, shape, reinterpret_cast<const i64(*)[max_axes]>(strides), out);
  return out[0];
}

// ---- grid-stride loops ----------------------------------------------------------------------------------------------

// for (I i = thread_index<I>(); i < n; i += thread_count<I>()); with I = i32 the host keeps n + threads below 2^31.
template <class I = i64> BARACUDA_D I thread_index() {
  return static_cast<I>(blockIdx.x) * static_cast<I>(blockDim.x) + static_cast<I>(threadIdx.x);
}
template <class I = i64> BARACUDA_D I thread_count() { return static_cast<I>(gridDim.x) * static_cast<I>(blockDim.x); }

}  // namespace baracuda
