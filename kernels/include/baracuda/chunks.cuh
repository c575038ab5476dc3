#pragma once
// chunks     elements k … k + N - 1 of several operands at once, each operand of its own type.
#include <baracuda/vector.cuh>

namespace baracuda {

template <int N, class... Ts> struct Chunks {};
template <int N, class T, class... Rest> struct Chunks<N, T, Rest...> {
  Vec<T, N> first;
  Chunks<N, Rest...> rest;
};

// f(element k of each operand), in the operands' order.
template <class F, int N, class... Taken> BARACUDA_D auto apply(const F& f, const Chunks<N>&, int, Taken... taken) {
  return f(taken...);
}
template <class F, int N, class T, class... Rest, class... Taken>
BARACUDA_D auto apply(const F& f, const Chunks<N, T, Rest...>& x, int k, Taken... taken) {
  return apply(f, x.rest, k, taken..., x.first[k]);
}

// Makes the compiler hold a chunk as words, in as few registers as it has bytes. No instruction.
template <class T, int N> BARACUDA_D void keep_packed(Vec<T, N>& x) {
  if constexpr (sizeof(T) < 4 && sizeof(x) % 4 == 0) {
    u32* const words = reinterpret_cast<u32*>(&x);
#pragma unroll
    for (int k = 0; k < static_cast<int>(sizeof(x) / 4); ++k) asm volatile("" : "+r"(words[k]));
  }
}
template <int N, class... Ts> BARACUDA_D void keep_packed(Chunks<N, Ts...>&) {}  // of several: no registers to spare

// ---- reading: operand I is at `from[I] + at[I]`, bit I of `splat` says that all N elements are the one there ---------

template <class T, int N> BARACUDA_D Vec<T, N> spread(T x) {
  Vec<T, N> out;
#pragma unroll
  for (int k = 0; k < N; ++k) out[k] = x;
  return out;
}

// Dense chunks, 16 bytes at a time; where fewer than N elements are left, one at a time, and nothing beyond them.
template <int I, int N> BARACUDA_D void load_chunks(const void* const*, const i64*, u32, i64, Chunks<N>&) {}
template <int I, int N, class T, class... Rest>
BARACUDA_D void load_chunks(const void* const* from, const i64* at, u32 splat, i64 left, Chunks<N, T, Rest...>& x) {
  const T* const p = static_cast<const T*>(from[I]) + at[I];
  if (splat >> I & 1) x.first = spread<T, N>(left > 0 ? *p : T{});
  else x.first = load_vec<T, N, true>(p, left);
  load_chunks<I + 1>(from, at, splat, left, x.rest);
}

// Whole chunks.
template <int I, int N> BARACUDA_D void load_chunks(const void* const*, const i64*, u32, Chunks<N>&) {}
template <int I, int N, class T, class... Rest>
BARACUDA_D void load_chunks(const void* const* from, const i64* at, u32 splat, Chunks<N, T, Rest...>& x) {
  const T* const p = static_cast<const T*>(from[I]) + at[I];
  if (N > 1 && (splat >> I & 1)) x.first = spread<T, N>(*p);
  else x.first = load<N>(p);
  load_chunks<I + 1>(from, at, splat, x.rest);
}

// Elements `strides[I]` apart, of which `left` exist.
template <int I, int N, class S>
BARACUDA_D void load_strided_chunks(const void* const*, const i64*, S, i64, Chunks<N>&) {}
template <int I, int N, class S, class T, class... Rest>
BARACUDA_D void load_strided_chunks(const void* const* from, const i64* at, const S& stride, i64 left,
                                    Chunks<N, T, Rest...>& x) {
  x.first = load_strided<T, N>(static_cast<const T*>(from[I]) + at[I], stride(I), left);
  load_strided_chunks<I + 1>(from, at, stride, left, x.rest);
}

// Element k alone.
template <int I, int N> BARACUDA_D void load_element(const void* const*, const i64*, int, Chunks<N>&) {}
template <int I, int N, class T, class... Rest>
BARACUDA_D void load_element(const void* const* from, const i64* at, int k, Chunks<N, T, Rest...>& x) {
  x.first[k] = static_cast<const T*>(from[I])[at[I]];
  load_element<I + 1>(from, at, k, x.rest);
}

}  // namespace baracuda
