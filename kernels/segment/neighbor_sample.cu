// neighbor_sample   k neighbours of each seed, drawn with or without replacement
//
// A thread for each seed. What it has drawn without replacement is in the workspace, seeds side by side.
#include "segment/graph_rows.cuh"

namespace baracuda {

template <class I> BARACUDA_D void neighbor_sample(const NeighborParams& p) {
  const i64 s = static_cast<i64>(blockIdx.x) * neighbor_threads + threadIdx.x;
  if (s >= p.count) return;
  const Edges row = edges_of<I>(p, static_cast<const I*>(p.seeds)[s * p.seeds_step]);
  const bool all = !p.replace && row.degree <= p.k;
  const i64 found = row.degree == 0 ? 0 : all ? row.degree : p.k;
  i64* const chosen = static_cast<i64*>(p.chosen) + s;
  for (i64 j = 0; j < p.k; ++j) {
    i64 edge = -1, neighbor = -1;
    if (j < found) {
      i64 drawn = j;
      if (!all) {
        u64 word[1];
        random::words<1>(p.seed(), p.offset(), s * p.k + j, word);
        const i64 last = p.replace ? row.degree - 1 : row.degree - p.k + j;
        drawn = among(word[0], last + 1);
        if (!p.replace) {
          for (i64 i = 0; i < j; ++i) {
            if (chosen[i * p.count] != drawn) continue;
            drawn = last;  // which nobody before could draw
            break;
          }
          chosen[j * p.count] = drawn;
        }
      }
      edge = row.begin + drawn;
      neighbor = edge_end<I>(p, edge);
    }
    static_cast<I*>(p.neighbors)[s * p.neighbor_steps[0] + j * p.neighbor_steps[1]] = static_cast<I>(neighbor);
    if (p.edge_ids != nullptr) {
      static_cast<I*>(p.edge_ids)[s * p.edge_steps[0] + j * p.edge_steps[1]] = static_cast<I>(edge);
    }
  }
  if (p.counts != nullptr) static_cast<i32*>(p.counts)[s * p.counts_step] = static_cast<i32>(found);
}

}  // namespace baracuda
