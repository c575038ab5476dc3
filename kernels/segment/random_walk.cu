// random_walk   walks over a graph, an edge a step, by node2vec's weights
//
// A thread for each walk. A step tries edges until one is taken with the chance that its weight gives; where 32 tries take
// none it adds up the weights of all edges, so that it ends.
#include "segment/graph_rows.cuh"

namespace baracuda {

template <class I> struct Walk {
  const WalkParams& p;
  const double back, away;

  BARACUDA_D explicit Walk(const WalkParams& params) : p(params), back(1.0 / p.p()), away(1.0 / p.q()) {}

  // The weight of an edge after the node `before`, -1 at the first step.
  BARACUDA_D double weight(i64 edge, bool first, i64 before, const Edges& known) const {
    if (first) return 1.0;
    const i64 to = edge_end<I>(p, edge);
    if (to == before) return back;
    for (i64 k = 0; k < known.degree; ++k) {
      if (edge_end<I>(p, known.begin + k) == to) return 1.0;
    }
    return away;
  }
  BARACUDA_D i64 choose(const Edges& row, u64 element, bool first, i64 before) const {
    const Edges known = first ? Edges{0, 0} : edges_of<I>(p, before);
    const bool uniform = first || (back == 1.0 && away == 1.0);
    const double most = math::fmax(1.0, math::fmax(back, away));
    const random::Tries draw{static_cast<u64>(p.seed()), static_cast<u64>(p.offset()), element};
    double u = 0.0;
    for (int j = 0; j < walk_tries; ++j) {
      const Philox4 words = draw.block(j);
      const i64 edge = row.begin + among(static_cast<u64>(words.y) << 32 | words.x, row.degree);
      u = static_cast<double>((static_cast<u64>(words.w) << 32 | words.z) >> 11) * 0x1p-53;
      if (u * most < (uniform ? 1.0 : weight(edge, first, before, known))) return edge;
    }
    double sum = 0.0, aim = 0.0;
    for (i64 k = 0; k < row.degree; ++k) sum += weight(row.begin + k, first, before, known);
    aim = u * sum, sum = 0.0;
    for (i64 k = 0; k < row.degree; ++k) {
      sum += weight(row.begin + k, first, before, known);
      if (sum > aim) return row.begin + k;
    }
    return row.begin + row.degree - 1;
  }
};

template <class I> BARACUDA_D void random_walk(const WalkParams& p) {
  const i64 w = static_cast<i64>(blockIdx.x) * walk_threads + threadIdx.x;
  if (w >= p.walks) return;
  const Walk<I> walk(p);
  I* const path = static_cast<I*>(p.path) + w * p.path_steps[0];
  i64 node = static_cast<const I*>(p.starts)[w * p.starts_step], before = -1;
  bool first = true;
  path[0] = static_cast<I>(node);
  for (i64 t = 0; t < p.length; ++t) {
    const Edges row = edges_of<I>(p, node);
    i64 edge = -1;
    if (row.degree > 0) {
      edge = walk.choose(row, static_cast<u64>(w * p.length + t), first, before);
      before = node, first = false;
      node = edge_end<I>(p, edge);
    }
    path[(t + 1) * p.path_steps[1]] = static_cast<I>(node);
    if (p.edge_ids != nullptr) {
      static_cast<I*>(p.edge_ids)[w * p.edge_steps[0] + t * p.edge_steps[1]] = static_cast<I>(edge);
    }
  }
}

}  // namespace baracuda
