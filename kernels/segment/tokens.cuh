#pragma once
// tokens     one number a token and column from its own operands and what its segment has. G says what is read: x and z of
//            the token, g and h of the segment, `planes` numbers of the workspace, `counts` how many tokens it has.
//
// A token of no segment gets 0.
#include "segment/combine.cuh"

namespace baracuda {

template <class G, class T, int VEC, class P> BARACUDA_D void segment_tokens(const P& p) {
  using A = acc_t<T>;
  const i64 item = thread_index(), chunks = p.dim / VEC;
  if (item >= p.tokens * chunks) return;
  u64 chunk;
  const i64 token = static_cast<i64>(divmod(static_cast<u64>(item), static_cast<u64>(chunks), chunk));
  const i64 column = static_cast<i64>(chunk) * VEC;
  const i64 segment = p.owners != nullptr ? static_cast<const i32*>(p.owners)[token] : token_segment(p, token);
  Vec<T, VEC> out;
#pragma unroll
  for (int k = 0; k < VEC; ++k) out[k] = T(0.0f);
  if (segment >= 0) {
    Vec<T, VEC> x{}, z{}, g{}, h{};
    if constexpr (G::x) x = load<VEC>(static_cast<const T*>(p.x) + (token * p.x_row + column_at<VEC>(p, 1, column)));
    if constexpr (G::z) z = load<VEC>(static_cast<const T*>(p.z) + (token * p.z_row + column_at<VEC>(p, 2, column)));
    if constexpr (G::g) g = load<VEC>(static_cast<const T*>(p.g) + (segment * p.g_row + column_at<VEC>(p, 3, column)));
    if constexpr (G::h) h = load<VEC>(static_cast<const T*>(p.h) + (segment * p.h_row + column_at<VEC>(p, 4, column)));
    Vec<A, VEC> aux[G::planes > 0 ? G::planes : 1];
    if constexpr (G::planes > 0) {
      const A* from = static_cast<const A*>(p.aux) + (segment * p.pitch + column);
#pragma unroll
      for (int plane = 0; plane < G::planes; ++plane) aux[plane] = load<VEC>(from + plane * p.segments * p.pitch);
    }
    i64 n = 1;
    if constexpr (G::counts) {
      const i32* starts = static_cast<const i32*>(p.starts) + segment;
      n = max(starts[1] - starts[0], 1);
    }
    Vec<A, VEC> made;
#pragma unroll
    for (int k = 0; k < VEC; ++k) {
      A s[G::planes > 0 ? G::planes : 1];
#pragma unroll
      for (int plane = 0; plane < G::planes; ++plane) s[plane] = aux[plane][k];
      made[k] = G::apply(to_acc(x[k]), to_acc(z[k]), to_acc(g[k]), to_acc(h[k]), s, static_cast<A>(n));
    }
    out = from_acc<T>(made);
  }
  store(static_cast<T*>(p.y) + (token * p.y_row + column_at<VEC>(p, 0, column)), out);
}

}  // namespace baracuda
