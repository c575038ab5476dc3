#pragma once
// pairs      arithmetic of two f16 or bf16 numbers in a word, the first in its lower half: each result is rounded once, to
//            nearest even, subnormal ones too.
#include <baracuda/mma.cuh>

namespace baracuda {

template <class T> struct Pair_;
template <> struct Pair_<f16> {
  using type = __half2;
};
template <> struct Pair_<bf16> {
  using type = __nv_bfloat162;
};

template <class T> BARACUDA_D u32 multiply_pairs(u32 a, u32 b) {
  using Pair = typename Pair_<T>::type;
  const Pair y = __hmul2(*reinterpret_cast<const Pair*>(&a), *reinterpret_cast<const Pair*>(&b));
  return *reinterpret_cast<const u32*>(&y);
}

// a b + c
template <class T> BARACUDA_D u32 multiply_add_pairs(u32 a, u32 b, u32 c) {
  using Pair = typename Pair_<T>::type;
  const Pair y = __hfma2(*reinterpret_cast<const Pair*>(&a), *reinterpret_cast<const Pair*>(&b),
                         *reinterpret_cast<const Pair*>(&c));
  return *reinterpret_cast<const u32*>(&y);
}

template <class T> BARACUDA_D u32 add_pairs(u32 a, u32 b) {
  constexpr u32 ones = is_same<T, f16> ? 0x3c003c00u : 0x3f803f80u;
  return multiply_add_pairs<T>(a, ones, b);
}

template <class T> BARACUDA_D float lower_of(u32 pair) {
  using Pair = typename Pair_<T>::type;
  return to_acc((*reinterpret_cast<const Pair*>(&pair)).x);
}

}  // namespace baracuda
