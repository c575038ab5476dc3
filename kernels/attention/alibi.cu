// alibi      y[b, h, i, j] = scores[b, h, i, j] + slope[b, h] * (j - i)
//
// A chunk a thread (strided: four elements), a block's threads next to each other. The product and the sum are rounded
// once, so an element's bits depend on nothing but its operands. There are no sums over elements.
#include "alibi.cuh"

namespace baracuda {

template <class A> BARACUDA_D A alibi_add(A x, A slope, A distance) { return math::fma(slope, distance, x); }
// A distance that A does not hold: in double the product's rounding lies far below the result's.
template <class A> BARACUDA_D A alibi_add(A x, A slope, i64 distance) {
  return static_cast<A>(math::fma(static_cast<double>(slope), static_cast<double>(distance), static_cast<double>(x)));
}

template <class T, int MODE> BARACUDA_D void alibi(const AlibiParams& p) {
  using A = acc_t<T>;
  constexpr bool WIDE = MODE != alibi_strided;
  constexpr int VEC = WIDE ? vec_elems<T> : 1, EACH = WIDE ? 1 : 4;
  using Held = conditional<WIDE, Chunk, Vec<T, 1>>;
  const i64 first = static_cast<i64>(blockIdx.x) * (alibi_threads * EACH) + threadIdx.x;
  const T* const scores = static_cast<const T*>(p.scores);
  Held x[EACH];
  AlibiCell cell[EACH];
  A slope[EACH];
  i64 to[EACH];
#pragma unroll
  for (int u = 0; u < EACH; ++u) {
    const i64 c = first + u * alibi_threads;
    if (c >= p.chunks) continue;
    i64 chunk;
    const AlibiMatrix m = alibi_matrix(p, c, chunk);
    cell[u] = alibi_cell(p, chunk * VEC);
    i64 at[2];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const i64(&s)[4] = p.strides[n];
      if constexpr (MODE == alibi_flat) at[n] = c * VEC;
      else at[n] = m.batch * s[0] + m.head * s[1] + cell[u].query * s[2] + cell[u].key * (WIDE ? 1 : s[3]);
    }
    to[u] = at[1];
    if constexpr (WIDE) x[u] = load<4>(reinterpret_cast<const u32*>(scores + at[0]));
    else x[u][0] = scores[at[0]];
    slope[u] = static_cast<const A*>(p.slopes)[m.batch * p.slope_strides[0] + m.head * p.slope_strides[1]];
  }
#pragma unroll
  for (int u = 0; u < EACH; ++u) {
    if (first + u * alibi_threads >= p.chunks) continue;
    Vec<A, VEC> v;
    if constexpr (WIDE) v = to_acc(unpack<T>(x[u]));
    else v = to_acc(x[u]);
    each_distance<A, VEC>(p, cell[u], [&](int k, auto distance) { v[k] = alibi_add(v[k], slope[u], distance); });
    store_streaming(static_cast<T*>(p.y) + to[u], from_acc<T>(v));
  }
}

}  // namespace baracuda
