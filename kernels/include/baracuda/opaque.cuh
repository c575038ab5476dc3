#pragma once
// opaque     hides where a value came from, so that the compiler computes something twice instead of keeping it.
//
// A kernel that unpacks a chunk in two passes would otherwise hold every unpacked element between them: twice to four
// times the registers, and a half or a quarter of the threads that wait for memory.
#include <baracuda/vector.cuh>

namespace baracuda {

// No instruction: x is the same afterwards, but nothing derived from it before is taken for what is derived from it now.
template <class T, int N> BARACUDA_D void forget(Vec<T, N>& x) {
  static_assert(sizeof(x) % 4 == 0, "whole 32-bit words");
  u32* word = reinterpret_cast<u32*>(&x);
#pragma unroll
  for (int k = 0; k < static_cast<int>(sizeof(x) / 4); ++k) asm volatile("" : "+r"(word[k]));
}

// The same for an index: without it a loop keeps a running address for every access of its unrolled body.
BARACUDA_D int forgotten(int x) {
  asm volatile("" : "+r"(x));
  return x;
}
BARACUDA_D u64 forgotten(u64 x) {
  asm volatile("" : "+l"(x));
  return x;
}

// The same for an address: of a kernel's parameters it makes plain memory, which a warp reads at 32 places at once.
template <class T> BARACUDA_D const T* opaque(const T* p) {
  asm volatile("" : "+l"(p));
  return p;
}

}  // namespace baracuda
