#pragma once
// wanted     loads of words that may not be there, without a branch: several stay in flight.
//
// A guarded load of 16-bit elements becomes a branch in which the compiler takes the words apart, so that each load is
// waited for before the next one is issued. These give the word, or zeros, untouched.
#include <baracuda/vector.cuh>

namespace baracuda {

// PTX ISA, Data Movement and Conversion Instructions: ld (PTX 1.0). The word at p in global memory if `wanted`, else 0.
// clang-format off
BARACUDA_D void load_wanted(uint4& x, const void* p, bool wanted) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %5, 0;\nmov.u32 %0, 0;\nmov.u32 %1, 0;\nmov.u32 %2, 0;\nmov.u32 %3, 0;\n"
               "@p ld.global.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
               : "=&r"(x.x), "=&r"(x.y), "=&r"(x.z), "=&r"(x.w)
               : "l"(__cvta_generic_to_global(p)), "r"(static_cast<u32>(wanted)) : "memory");
}
BARACUDA_D void load_wanted(uint2& x, const void* p, bool wanted) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %3, 0;\nmov.u32 %0, 0;\nmov.u32 %1, 0;\n"
               "@p ld.global.v2.u32 {%0, %1}, [%2];\n}"
               : "=&r"(x.x), "=&r"(x.y)
               : "l"(__cvta_generic_to_global(p)), "r"(static_cast<u32>(wanted)) : "memory");
}
BARACUDA_D void load_wanted(u32& x, const void* p, bool wanted) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %2, 0;\nmov.u32 %0, 0;\n@p ld.global.u32 %0, [%1];\n}"
               : "=&r"(x) : "l"(__cvta_generic_to_global(p)), "r"(static_cast<u32>(wanted)) : "memory");
}
BARACUDA_D void load_wanted(u16& x, const void* p, bool wanted) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %2, 0;\nmov.u16 %0, 0;\n@p ld.global.u16 %0, [%1];\n}"
               : "=&h"(x) : "l"(__cvta_generic_to_global(p)), "r"(static_cast<u32>(wanted)) : "memory");
}
BARACUDA_D void load_wanted(u8& x, const void* p, bool wanted) {
  u16 word;
  asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %2, 0;\nmov.u16 %0, 0;\n@p ld.global.u8 %0, [%1];\n}"
               : "=&h"(word) : "l"(__cvta_generic_to_global(p)), "r"(static_cast<u32>(wanted)) : "memory");
  x = static_cast<u8>(word);
}
// clang-format on

// N elements, in words as they lie in memory, until somebody asks for them.
template <class T, int N> struct Packed {
  using W = Word<N * sizeof(T)>;
  static constexpr int words = N * static_cast<int>(sizeof(T)) / static_cast<int>(sizeof(W));
  W word[words];
  BARACUDA_D void load_if(const T* p, bool wanted) {
#pragma unroll
    for (int k = 0; k < words; ++k) load_wanted(word[k], reinterpret_cast<const W*>(p) + k, wanted);
  }
  static BARACUDA_D Packed of(const Vec<T, N>& x) {
    Packed packed;
#pragma unroll
    for (int k = 0; k < words; ++k) packed.word[k] = reinterpret_cast<const W*>(&x)[k];
    return packed;
  }
  BARACUDA_D Vec<T, N> unpacked() const {
    Vec<T, N> x;
#pragma unroll
    for (int k = 0; k < words; ++k) reinterpret_cast<W*>(&x)[k] = word[k];
    return x;
  }
};

}  // namespace baracuda
