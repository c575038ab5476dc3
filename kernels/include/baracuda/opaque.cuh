#pragma once
// opaque     hides the origin of a value from the compiler, so that it computes something twice instead of keeping it.
//
// A kernel that unpacks a chunk in two passes would otherwise hold every unpacked element between them: two to four
// times the registers, and half or a quarter of the threads to hide the latency of memory.
#include <baracuda/vector.cuh>

namespace baracuda {

// No instruction: x keeps its value, but the compiler no longer relates what it derives from x to what it derived
// before.
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

// The same for an address: it turns kernel parameters into plain memory, of which a warp can read 32 different places
// at once.

template <class T> BARACUDA_D const T* opaque(const T* p) {
  asm volatile("" : "+l"(p));
  return p;
}

}  // namespace baracuda
