// alibi      y[b, h, i, j] = scores[b, h, i, j] + slope[b, h] * (j - i)
//
// A thread takes a chunk (strided: four elements), neighbouring threads neighbouring chunks. Product and sum are
// rounded once, so an element's bits depend on nothing but its operands. Nothing is summed over elements.
#include "alibi.cuh"

namespace baracuda {

template <class A> BARACUDA_D A alibi_add(A x, A slope, const AlibiCell& at) {
  const i64 distance = at.key - at.query;
  if (-(1 << 24) <= distance && distance <= 1 << 24) return math::fma(slope, static_cast<A>(distance), x);
  // A distance that float does not hold: double rounds the product far below the result's last place.
  return static_cast<A>(math::fma(static_cast<double>(slope), static_cast<double>(distance), static_cast<double>(x)));
}

template <class T, class P> BARACUDA_D acc_t<T> alibi_slope(const P& p, const AlibiMatrix& m) {
  const i64 at = m.batch * p.slope_strides[0] + m.head * p.slope_strides[1];
  if (p.wide_slopes) return __ldg(static_cast<const acc_t<T>*>(p.slopes) + at);
  return to_acc(static_cast<const T*>(p.slopes)[at]);
}

template <class T, int MODE> BARACUDA_D void alibi(const AlibiParams& p) {
  using A = acc_t<T>;
  constexpr int VEC = vec_elems<T>;
  const T* const scores = static_cast<const T*>(p.scores);
  T* const y = static_cast<T*>(p.y);
  const i64 c = thread_index();
  if (c >= p.chunks) return;
  i64 from = c * VEC, to = from, chunk;
  Chunk x;
  if constexpr (MODE == alibi_flat) x = load<4>(reinterpret_cast<const u32*>(scores + from));
  const AlibiMatrix m = alibi_matrix(p, c, chunk);
  AlibiCell at = alibi_cell(p, chunk * VEC);
  if constexpr (MODE == alibi_rows) {
    from = m.batch * p.strides[0][0] + m.head * p.strides[0][1] + at.query * p.strides[0][2] + at.key;
    to = m.batch * p.strides[1][0] + m.head * p.strides[1][1] + at.query * p.strides[1][2] + at.key;
    x = load<4>(reinterpret_cast<const u32*>(scores + from));
  }
  const A slope = alibi_slope<T>(p, m);
  if (alibi_plain<VEC>(p, at)) {
    const A start = alibi_start<A>(at);
    auto v = to_acc(unpack<T>(x));
#pragma unroll
    for (int k = 0; k < VEC; ++k) v[k] = math::fma(slope, start + static_cast<A>(k), v[k]);
    store_streaming(reinterpret_cast<u32*>(y + to), pack<T>(from_acc<T>(v)));
  } else {  // rolled and read again, so that this rare path takes no registers from the others
#pragma unroll 1
    for (int k = 0; k < VEC; ++k, next_cell(p, at)) {
      y[to + k] = from_acc<T>(alibi_add(to_acc(scores[from + k]), slope, at));
    }
  }
}

template <class T> BARACUDA_D void alibi_elements(const AlibiParams& p) {
  using A = acc_t<T>;
  constexpr int EACH = alibi_each;
  const i64 first = static_cast<i64>(blockIdx.x) * (alibi_threads * EACH) + threadIdx.x;
  T x[EACH];
  AlibiCell cell[EACH];
  A slope[EACH];
  i64 to[EACH];
#pragma unroll
  for (int u = 0; u < EACH; ++u) {
    const i64 c = first + u * alibi_threads;
    if (c >= p.chunks) continue;
    i64 chunk;
    const AlibiMatrix m = alibi_matrix(p, c, chunk);
    cell[u] = alibi_cell(p, chunk);
    i64 at[2];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const i64(&s)[4] = p.strides[n];
      at[n] = m.batch * s[0] + m.head * s[1] + cell[u].query * s[2] + cell[u].key * s[3];
    }
    x[u] = static_cast<const T*>(p.scores)[at[0]];
    to[u] = at[1];
    slope[u] = alibi_slope<T>(p, m);
  }
#pragma unroll
  for (int u = 0; u < EACH; ++u) {
    if (first + u * alibi_threads >= p.chunks) continue;
    static_cast<T*>(p.y)[to[u]] = from_acc<T>(alibi_add(to_acc(x[u]), slope[u], cell[u]));
  }
}

}  // namespace baracuda
