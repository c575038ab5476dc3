#pragma once
// combine   parts of R ranks as one: neighbours combine until one is left, ((0 + 1) + (2 + 3)) + …, in the accumulator,
//           rounded once. The order is that of distributed/tree.py, whatever the size, the rank and the place.
#include <baracuda/math.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {

template <PeerOp OP, class A> BARACUDA_D A combined(A a, A b) {
  if constexpr (OP == PeerOp::min) return math::minimum(a, b);
  else if constexpr (OP == PeerOp::max) return math::maximum(a, b);
  else if constexpr (is_integer<A>) {  // integers wrap
    const u64 x = static_cast<u64>(a), y = static_cast<u64>(b);
    return static_cast<A>(OP == PeerOp::prod ? x * y : x + y);
  } else {
    return OP == PeerOp::prod ? a * b : a + b;
  }
}

template <PeerOp OP, class T, int N, int R> BARACUDA_D Vec<acc_t<T>, N> combine_parts(const Vec<T, N> (&parts)[R]) {
  using A = acc_t<T>;
  Vec<A, N> made;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    A v[R];
#pragma unroll
    for (int r = 0; r < R; ++r) v[r] = cast<A>(parts[r][k]);
#pragma unroll
    for (int step = 1; step < R; step *= 2) {
#pragma unroll
      for (int r = 0; r + step < R; r += 2 * step) v[r] = combined<OP>(v[r], v[r + step]);
    }
    made[k] = v[0];
    if constexpr (OP == PeerOp::mean) made[k] = v[0] / static_cast<A>(R);
  }
  return made;
}

// The chunk at a place of every rank's data, all loads in flight at once; L1 is passed by, as nothing is read twice.
template <class T, int N, int R, class P> BARACUDA_D void load_parts(const P& peers, i64 place, Vec<T, N> (&parts)[R]) {
  static_assert(sizeof(Vec<T, N>) == peer_chunk, "one access");
#pragma unroll
  for (int r = 0; r < R; ++r) *reinterpret_cast<uint4*>(&parts[r]) = __ldcg(peers.chunk(r, place));
}

}  // namespace baracuda
