#pragma once
// aqlm     weights that are sums of vectors of codebooks: of the vector of out_group x in_group weights at (of, group)
//
//   sum over m = 0, 1, … of codebooks[m, codes[of, group, m] mod entries]
//
// in float, in the order of m.
#include <baracuda/index.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {

// The code, which has one, two or four bytes; what lies beyond the entries, a power of two, is cut off.
template <class P> BARACUDA_D u32 aqlm_code(const P& p, i64 at) {
  const u32 code = p.code_bytes == 1   ? static_cast<const u8*>(p.codes)[at]
                   : p.code_bytes == 2 ? static_cast<const unsigned short*>(p.codes)[at]
                                       : static_cast<const u32*>(p.codes)[at];
  return code & (static_cast<u32>(p.entries) - 1u);
}

// N neighbours along the inputs, from `first` on, of row `row` of the weights without their scale.
template <class T, int N, class P> BARACUDA_D Vec<float, N> aqlm_values(const P& p, i64 row, i64 first) {
  u64 o, j;
  const u64 of = divmod(static_cast<u64>(row), static_cast<u64>(p.out_group), o);
  const u64 group = divmod(static_cast<u64>(first), static_cast<u64>(p.in_group), j);
  const i64 size = static_cast<i64>(p.out_group) * p.in_group, codes = (of * p.groups + group) * p.books;
  const T* const vectors = static_cast<const T*>(p.codebooks) + o * p.in_group + j;
  Vec<float, N> sum{};
#pragma unroll 2
  for (int m = 0; m < p.books; ++m) {
    const i64 at = (static_cast<i64>(m) * p.entries + aqlm_code(p, codes + m)) * size;
    const auto vector = cast_vec<float>(load_readonly<N>(vectors + at));
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] = m == 0 ? vector[i] : sum[i] + vector[i];
  }
  return sum;
}

template <class T, class P> BARACUDA_D float aqlm_scale(const P& p, i64 row) {
  return p.scales == nullptr ? 1.0f : to_acc(static_cast<const T*>(p.scales)[row / p.out_group * p.scale_step]);
}

}  // namespace baracuda
