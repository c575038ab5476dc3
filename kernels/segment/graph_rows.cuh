#pragma once
// graph_rows   where a node's edges are: by offsets, cut to what there is.
#include <baracuda/math.cuh>
#include "random/streams.cuh"

namespace baracuda {

struct Edges {
  i64 begin, degree;
};
template <class I, class P> BARACUDA_D Edges edges_of(const P& p, i64 node) {
  if (node < 0 || node >= p.nodes) return Edges{0, 0};
  const I* const indptr = static_cast<const I*>(p.indptr);
  const i64 begin = max<i64>(0, min<i64>(p.edges, indptr[node * p.indptr_step]));
  const i64 end = max<i64>(begin, min<i64>(p.edges, indptr[(node + 1) * p.indptr_step]));
  return Edges{begin, end - begin};
}
template <class I, class P> BARACUDA_D i64 edge_end(const P& p, i64 edge) {
  return static_cast<const I*>(p.indices)[edge * p.indices_step];
}
// A whole number below n, of 64 random bits.
BARACUDA_D i64 among(u64 word, i64 n) { return static_cast<i64>(__umul64hi(word, static_cast<u64>(n))); }

}  // namespace baracuda
