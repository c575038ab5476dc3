#pragma once
// types      fixed-width names, traits that NVRTC has no header for, limits, casts that round once, accumulators.
//
// Conventions of every unit: compiled by NVRTC with -fmad=false, no flush-to-zero, IEEE division and square root.
// Where a fused multiply-add is meant it is written (math::fma), so wide and narrow loads of one kernel agree in bits.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define BARACUDA_D __device__ __forceinline__
#define BARACUDA_HD __host__ __device__ __forceinline__  // integer-only helpers, which the host can check

// The one macro for dynamic shared memory: `BARACUDA_DYNAMIC_SMEM(float, tile);` gives `float* tile`, 128-byte aligned.
#define BARACUDA_DYNAMIC_SMEM(T, name) T* const name = ::baracuda::dynamic_smem<T>()

namespace baracuda {

using i8 = signed char;
using u8 = unsigned char;
using i16 = short;
using u16 = unsigned short;
using i32 = int;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;
using f16 = __half;
using bf16 = __nv_bfloat16;

constexpr int warp_size = 32;
constexpr u32 full_warp = 0xffffffffu;

// One declaration for the whole unit: `extern __shared__` arrays of two types under one name do not compile.
template <class T> BARACUDA_D T* dynamic_smem() {
  extern __shared__ __align__(128) unsigned char baracuda_dynamic_smem[];
  return reinterpret_cast<T*>(baracuda_dynamic_smem);
}

// What every kernel begins with. As a node of a graph a kernel may be started while the one before it ends
// (programmatic dependent launch): it lets the next one start likewise, and waits for all that the one before it wrote.
// Outside graphs, and before sm_90, this does nothing.
// PTX ISA, Parallel Synchronization and Communication Instructions: griddepcontrol (PTX 7.8, sm_90).
BARACUDA_D void follow_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// ---- traits ---------------------------------------------------------------------------------------------------------

template <class A, class B> constexpr bool is_same = false;
template <class A> constexpr bool is_same<A, A> = true;

template <bool C, class A, class B> struct conditional_ {
  using type = A;
};
template <class A, class B> struct conditional_<false, A, B> {
  using type = B;
};
template <bool C, class A, class B> using conditional = typename conditional_<C, A, B>::type;

template <bool C, class T = void> struct enable_if_ {};
template <class T> struct enable_if_<true, T> {
  using type = T;
};
template <bool C, class T = void> using enable_if = typename enable_if_<C, T>::type;

template <class T> constexpr bool is_half = is_same<T, f16> || is_same<T, bf16>;  // the 16-bit floats
template <class T> constexpr bool is_floating = is_half<T> || is_same<T, float> || is_same<T, double>;
template <class T>
constexpr bool is_signed_int =
    is_same<T, i8> || is_same<T, i16> || is_same<T, i32> || is_same<T, i64> || is_same<T, long> || is_same<T, char>;
template <class T>
constexpr bool is_unsigned_int = is_same<T, bool> || is_same<T, u8> || is_same<T, u16> || is_same<T, u32> ||
                                 is_same<T, u64> || is_same<T, unsigned long>;
template <class T> constexpr bool is_integer = is_signed_int<T> || is_unsigned_int<T>;  // bool counts as one

// ---- complex numbers ------------------------------------------------------------------------------------------------

// As complex64 and complex128 lie in memory: one access of 8 or 16 bytes. complex.cuh has their arithmetic.
template <class R> struct alignas(2 * sizeof(R)) complex {
  using part = R;
  R re, im;
  complex() = default;
  BARACUDA_D complex(R re, R im = R(0)) : re(re), im(im) {}
};
template <class T> struct part_of {
  using type = T;
  static constexpr bool complex = false;
};
template <class R> struct part_of<complex<R>> {
  using type = R;
  static constexpr bool complex = true;
};
template <class T> using part_t = typename part_of<T>::type;  // of the real and imaginary part; of a real T itself
template <class T> constexpr bool is_complex = part_of<T>::complex;

template <class R> BARACUDA_D bool operator==(complex<R> z, complex<R> w) { return z.re == w.re && z.im == w.im; }
template <class R> BARACUDA_D bool operator!=(complex<R> z, complex<R> w) { return !(z == w); }

// ---- small integer helpers ------------------------------------------------------------------------------------------

// Plain `<`: for floats that must propagate NaN use math::minimum and math::maximum.
template <class T> BARACUDA_HD constexpr T min(T a, T b) { return b < a ? b : a; }
template <class T> BARACUDA_HD constexpr T max(T a, T b) { return a < b ? b : a; }

template <class A, class B> BARACUDA_HD constexpr A div_up(A n, B d) { return static_cast<A>((n + d - 1) / d); }
template <class A, class B> BARACUDA_HD constexpr A round_up(A n, B d) { return static_cast<A>(div_up(n, d) * d); }
BARACUDA_HD constexpr bool is_pow2(i64 n) { return n > 0 && (n & (n - 1)) == 0; }

// ---- limits ---------------------------------------------------------------------------------------------------------

// numeric<T>: lowest, max; for floats also infinity, nan, epsilon (gap above 1) and tiny (smallest normal).
// bottom and top are the identities of max and min: the infinities of a float, the limits of an integer.
template <class T> struct numeric {
  static_assert(is_integer<T>, "numeric<T> is not defined for this type");
  static constexpr int bits = 8 * sizeof(T);
  static BARACUDA_HD constexpr T max() { return static_cast<T>(~0ull >> (64 - bits + (is_signed_int<T> ? 1 : 0))); }
  static BARACUDA_HD constexpr T lowest() { return is_signed_int<T> ? static_cast<T>(-i64(max()) - 1) : T(0); }
  static BARACUDA_HD constexpr T top() { return max(); }
  static BARACUDA_HD constexpr T bottom() { return lowest(); }
};

template <> struct numeric<float> {
  static BARACUDA_D float max() { return 3.402823466e38f; }
  static BARACUDA_D float lowest() { return -3.402823466e38f; }
  static BARACUDA_D float infinity() { return __int_as_float(0x7f800000); }
  static BARACUDA_D float nan() { return __int_as_float(0x7fffffff); }
  static BARACUDA_D float epsilon() { return 1.1920928955078125e-07f; }
  static BARACUDA_D float tiny() { return 1.17549435e-38f; }
  static BARACUDA_D float top() { return infinity(); }
  static BARACUDA_D float bottom() { return -infinity(); }
};

template <> struct numeric<double> {
  static BARACUDA_D double max() { return 1.7976931348623157e308; }
  static BARACUDA_D double lowest() { return -1.7976931348623157e308; }
  static BARACUDA_D double infinity() { return __longlong_as_double(0x7ff0000000000000ll); }
  static BARACUDA_D double nan() { return __longlong_as_double(0x7fffffffffffffffll); }
  static BARACUDA_D double epsilon() { return 2.220446049250313e-16; }
  static BARACUDA_D double tiny() { return 2.2250738585072014e-308; }
  static BARACUDA_D double top() { return infinity(); }
  static BARACUDA_D double bottom() { return -infinity(); }
};

template <class T, class Raw, u16 MAX, u16 INF, u16 EPS, u16 TINY> struct numeric_half {
  static BARACUDA_D T bits(u16 b) {
    Raw r;
    r.x = b;
    return T(r);
  }
  static BARACUDA_D T max() { return bits(MAX); }
  static BARACUDA_D T lowest() { return bits(MAX | 0x8000); }
  static BARACUDA_D T infinity() { return bits(INF); }
  static BARACUDA_D T nan() { return bits(0x7fff); }
  static BARACUDA_D T epsilon() { return bits(EPS); }
  static BARACUDA_D T tiny() { return bits(TINY); }
  static BARACUDA_D T top() { return infinity(); }
  static BARACUDA_D T bottom() { return bits(INF | 0x8000); }
};
template <> struct numeric<f16> : numeric_half<f16, __half_raw, 0x7bff, 0x7c00, 0x1400, 0x0400> {};
template <> struct numeric<bf16> : numeric_half<bf16, __nv_bfloat16_raw, 0x7f7f, 0x7f80, 0x3c00, 0x0080> {};

// ---- casts ----------------------------------------------------------------------------------------------------------

// Truncates toward zero, saturating; NaN gives 0. The cvt instruction saturates for 32 and 64 bits, but its NaN differs
// with the width, and it has no 8 and 16 bits, hence the test and the clamp.
template <class To> BARACUDA_D To float_to_int(float x) {
  if (x != x) return To(0);
  if constexpr (is_signed_int<To>) {
    if constexpr (sizeof(To) == 8) return static_cast<To>(__float2ll_rz(x));
    else return static_cast<To>(max<i32>(numeric<To>::lowest(), min<i32>(numeric<To>::max(), __float2int_rz(x))));
  } else {
    if constexpr (sizeof(To) == 8) return static_cast<To>(__float2ull_rz(x));
    else return static_cast<To>(min<u32>(numeric<To>::max(), __float2uint_rz(x)));
  }
}
template <class To> BARACUDA_D To float_to_int(double x) {
  if (x != x) return To(0);
  if constexpr (is_signed_int<To>) {
    if constexpr (sizeof(To) == 8) return static_cast<To>(__double2ll_rz(x));
    else return static_cast<To>(max<i32>(numeric<To>::lowest(), min<i32>(numeric<To>::max(), __double2int_rz(x))));
  } else {
    if constexpr (sizeof(To) == 8) return static_cast<To>(__double2ull_rz(x));
    else return static_cast<To>(min<u32>(numeric<To>::max(), __double2uint_rz(x)));
  }
}

// Each source has its own instruction or round-to-odd sequence: by way of float, a double or a long would be rounded
// twice.
template <class From> BARACUDA_D f16 to_f16(From x) {
  if constexpr (is_same<From, float>) return __float2half_rn(x);
  else if constexpr (is_same<From, double>) return __double2half(x);
  else if constexpr (sizeof(From) <= 4 && is_signed_int<From>) return __int2half_rn(x);
  else if constexpr (sizeof(From) <= 4) return __uint2half_rn(x);
  else if constexpr (is_signed_int<From>) return __ll2half_rn(x);
  else return __ull2half_rn(x);
}
template <class From> BARACUDA_D bf16 to_bf16(From x) {
  if constexpr (is_same<From, float>) return __float2bfloat16_rn(x);
  else if constexpr (is_same<From, double>) return __double2bfloat16(x);
  else if constexpr (sizeof(From) <= 4 && is_signed_int<From>) return __int2bfloat16_rn(x);
  else if constexpr (sizeof(From) <= 4) return __uint2bfloat16_rn(x);
  else if constexpr (is_signed_int<From>) return __ll2bfloat16_rn(x);
  else return __ull2bfloat16_rn(x);
}

BARACUDA_D float widen(f16 x) { return __half2float(x); }  // exact
BARACUDA_D float widen(bf16 x) { return __bfloat162float(x); }

// Specialise Caster for a further element (fp8.cuh does).
template <class To, class From> struct Caster {
  static BARACUDA_D To run(From x) {
    if constexpr (is_same<To, From>) return x;
    else if constexpr (is_complex<From>) return Caster<To, From>::parts(x);
    else if constexpr (is_complex<To>) return To(Caster<part_t<To>, From>::run(x));
    else if constexpr (is_half<From>) return Caster<To, float>::run(widen(x));
    else if constexpr (is_same<To, bool>) return x != From(0);  // NaN is true
    else if constexpr (is_same<To, f16>) return to_f16(x);
    else if constexpr (is_same<To, bf16>) return to_bf16(x);
    else if constexpr (is_integer<To> && is_floating<From>) return float_to_int<To>(x);
    else return static_cast<To>(x);
  }
  static BARACUDA_D To parts(From x) {
    static_assert(is_complex<To> || is_same<To, bool>, "a complex number has no real value: take a part of it");
    if constexpr (is_same<To, bool>) return x != From(0);
    else return {Caster<part_t<To>, part_t<From>>::run(x.re), Caster<part_t<To>, part_t<From>>::run(x.im)};
  }
};

// cast<To>(x): to a float, to nearest even with exactly one rounding; float to integer, truncating and saturating, NaN
// to 0; integer to narrower integer, modulo 2^n; to bool, x != 0; to complex, part by part, a real x in the real part.
template <class To, class From> BARACUDA_D To cast(From x) { return Caster<To, From>::run(x); }

// cast_saturate<To>(x): as cast, but integer to integer clamps to the range of To (quantised outputs).
template <class To, class From> BARACUDA_D To cast_saturate(From x) {
  if constexpr (is_integer<To> && is_signed_int<From>) {
    if constexpr (is_unsigned_int<To>) {
      return x < 0 ? To(0) : static_cast<To>(min<u64>(numeric<To>::max(), static_cast<u64>(x)));
    } else {
      return static_cast<To>(max<i64>(numeric<To>::lowest(), min<i64>(numeric<To>::max(), x)));
    }
  } else if constexpr (is_integer<To> && is_unsigned_int<From>) {
    return static_cast<To>(min<u64>(numeric<To>::max(), x));
  } else {
    return cast<To>(x);
  }
}

// ---- accumulators ---------------------------------------------------------------------------------------------------

// The type of sums and formulas: 16-bit floats and float in float, double in double, complex in itself, integers exactly
// in 64 bits (bool counts in i64, as in NumPy and PyTorch).
template <class T> struct acc_of {
  using type = conditional<is_floating<T>, conditional<is_same<T, double>, double, float>,
                           conditional<is_unsigned_int<T> && !is_same<T, bool>, u64, i64>>;
};
template <class R> struct acc_of<complex<R>> {
  using type = complex<R>;
};
template <class T> using acc_t = typename acc_of<T>::type;

template <class T> BARACUDA_D acc_t<T> to_acc(T x) { return cast<acc_t<T>>(x); }  // always exact
template <class T, class A> BARACUDA_D T from_acc(A a) { return cast<T>(a); }     // one rounding; integers wrap

}  // namespace baracuda
