#pragma once
// vector     N elements loaded or stored together: accesses of 1 to 16 bytes, several where N * sizeof(T) > 16.
//
// WIDE only says how elements are loaded. Element k of a chunk is the same element, and is combined in the same order,
// whether it came in a 16-byte access or alone; so alignment and tails never change the bits of a result.
#include <baracuda/types.cuh>

namespace baracuda {

template <class T, int N> struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Vec {
  static_assert(N * sizeof(T) >= 16 ? N * sizeof(T) % 16 == 0 : is_pow2(N * sizeof(T)),
                "a power of two, or whole 16-byte accesses");
  static constexpr int size = N;
  using element = T;
  T v[N];
  BARACUDA_D T& operator[](int k) { return v[k]; }  // index with constants of unrolled loops: registers have no address
  BARACUDA_D const T& operator[](int k) const { return v[k]; }
};

// Elements of T in one access of BYTES.
template <class T, int BYTES = 16> constexpr int vec_elems = BYTES / static_cast<int>(sizeof(T));

// ---- one access -----------------------------------------------------------------------------------------------------

template <int BYTES> struct Word_;
// clang-format off
template <> struct Word_<1> { using type = u8; };
template <> struct Word_<2> { using type = u16; };
template <> struct Word_<4> { using type = u32; };
template <> struct Word_<8> { using type = uint2; };
template <> struct Word_<16> { using type = uint4; };
// clang-format on
template <int BYTES> using Word = typename Word_<(BYTES < 16 ? BYTES : 16)>::type;

enum class Access {
  plain,      // default caching; global or shared memory
  streaming,  // global memory touched once: stores are evict-first. Loads are plain, as L1::no_allocate and .cs cost
              // bandwidth (docs/design/map.md)
  readonly,   // global memory that nobody writes while the kernel runs (ld.global.nc); loads only
};

template <Access A, class W> BARACUDA_D W load_word(const W* p) {
  if constexpr (A == Access::readonly) return __ldg(p);
  else return *p;
}
template <Access A, class W> BARACUDA_D void store_word(W* p, const W& w) {
  if constexpr (A == Access::streaming) __stcs(p, w);
  else *p = w;
}

// Stores 16 bytes to global memory if `wanted`, in one store and without a branch: from a plain store the compiler of
// 13.0 sometimes makes four.
// PTX ISA, Data Movement and Conversion Instructions: st (PTX 1.0).
BARACUDA_D void store_whole(void* p, const uint4& x, bool wanted) {
  // clang-format off
  asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %5, 0;\n@p st.global.v4.u32 [%0], {%1, %2, %3, %4};\n}"
               :: "l"(__cvta_generic_to_global(p)), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w), "r"(static_cast<u32>(wanted))
               : "memory");
  // clang-format on
}

// ---- aligned chunks: p must be aligned to alignof(Vec<T, N>) --------------------------------------------------------

template <int N, Access A = Access::plain, class T> BARACUDA_D Vec<T, N> load(const T* p) {
  using W = Word<N * sizeof(T)>;
  Vec<T, N> out;
#pragma unroll
  for (int k = 0; k < static_cast<int>(sizeof(out) / sizeof(W)); ++k) {
    reinterpret_cast<W*>(&out)[k] = load_word<A>(reinterpret_cast<const W*>(p) + k);
  }
  return out;
}
template <Access A = Access::plain, class T, int N> BARACUDA_D void store(T* p, const Vec<T, N>& x) {
  using W = Word<N * sizeof(T)>;
#pragma unroll
  for (int k = 0; k < static_cast<int>(sizeof(x) / sizeof(W)); ++k) {
    store_word<A>(reinterpret_cast<W*>(p) + k, reinterpret_cast<const W*>(&x)[k]);
  }
}
template <int N, class T> BARACUDA_D Vec<T, N> load_streaming(const T* p) { return load<N, Access::streaming>(p); }
template <int N, class T> BARACUDA_D Vec<T, N> load_readonly(const T* p) { return load<N, Access::readonly>(p); }
template <class T, int N> BARACUDA_D void store_streaming(T* p, const Vec<T, N>& x) { store<Access::streaming>(p, x); }

// ---- chunks of any alignment, with tails ----------------------------------------------------------------------------

// Elements 0 .. min(N, left) - 1 at p, p + stride, …; the others are fill. Nothing beyond `left` is touched.
template <class T, int N, Access A = Access::plain, class I, class L>
BARACUDA_D Vec<T, N> load_strided(const T* p, I stride, L left, T fill = T{}) {
  using W = Word<sizeof(T)>;
  Vec<T, N> out;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    out[k] = fill;
    if (k < left) reinterpret_cast<W*>(&out)[k] = load_word<A>(reinterpret_cast<const W*>(p + k * stride));
  }
  return out;
}
template <class T, int N, Access A = Access::plain, class I, class L>
BARACUDA_D void store_strided(T* p, I stride, const Vec<T, N>& x, L left) {
  using W = Word<sizeof(T)>;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    if (k < left) store_word<A>(reinterpret_cast<W*>(p + k * stride), reinterpret_cast<const W*>(&x)[k]);
  }
}

// Dense chunks. WIDE: p is aligned to alignof(Vec<T, N>); a whole chunk is loaded in wide accesses, a tail one by one.
// `left` is i32 or i64 and may be <= 0.
template <class T, int N, bool WIDE, Access A = Access::plain, class L = i32>
BARACUDA_D Vec<T, N> load_vec(const T* p, L left = N, T fill = T{}) {
  if constexpr (WIDE) {
    if (left >= N) return load<N, A>(p);
  }
  return load_strided<T, N, A>(p, 1, left, fill);
}
template <class T, int N, bool WIDE, Access A = Access::plain, class L = i32>
BARACUDA_D void store_vec(T* p, const Vec<T, N>& x, L left = N) {
  if constexpr (WIDE) {
    if (left >= N) {
      store<A>(p, x);
      return;
    }
  }
  store_strided<T, N, A>(p, 1, x, left);
}

// ---- whole-vector casts ---------------------------------------------------------------------------------------------

// As cast<To> element by element, with the same bits; float to a 16-bit float goes by pairs, one instruction for two.
template <class To, class From, int N> BARACUDA_D Vec<To, N> cast_vec(const Vec<From, N>& x) {
  Vec<To, N> out;
  if constexpr (is_same<From, float> && is_half<To> && N % 2 == 0) {
#pragma unroll
    for (int k = 0; k < N; k += 2) {
      if constexpr (is_same<To, f16>) {
        const __half2 h = __floats2half2_rn(x[k], x[k + 1]);
        out[k] = __low2half(h), out[k + 1] = __high2half(h);
      } else {
        const __nv_bfloat162 h = __floats2bfloat162_rn(x[k], x[k + 1]);
        out[k] = __low2bfloat16(h), out[k + 1] = __high2bfloat16(h);
      }
    }
  } else {
#pragma unroll
    for (int k = 0; k < N; ++k) out[k] = cast<To>(x[k]);
  }
  return out;
}
template <class T, int N> BARACUDA_D Vec<acc_t<T>, N> to_acc(const Vec<T, N>& x) { return cast_vec<acc_t<T>>(x); }
template <class T, class A, int N> BARACUDA_D Vec<T, N> from_acc(const Vec<A, N>& x) { return cast_vec<T>(x); }

}  // namespace baracuda
