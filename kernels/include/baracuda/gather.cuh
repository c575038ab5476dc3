#pragma once
// gather     y[i] = x[base(i) + index[i] * step] in words of BYTES bytes; geometry in schedules/gather.py.
//
// Words of y in the order of schedule map, whose offsets serve here, too: operand 0 is y, 1 the index, 2 x without the
// axis that is indexed. Where an index stays for a run of neighbours the run moves in words of up to 16 bytes. A thread
// has four words in flight: four indices, then four words of x, then the stores. An index outside [-extent, extent)
// reads nothing and gives 0; a checked run is told (`status`).
#include <baracuda/map.cuh>
#include <baracuda/positions.cuh>

namespace baracuda {

template <int BYTES, class P> BARACUDA_D void gather_words_of(const P& p) {
  using W = Word<BYTES>;
  const i64 first = static_cast<i64>(blockIdx.x) * (map_threads * gather_words) + threadIdx.x;
  if (first >= p.chunks) return;
  i64 c[gather_words], at[gather_words][3], index[gather_words], row[gather_words];
#pragma unroll
  for (int u = 0; u < gather_words; ++u) c[u] = min(first + u * map_threads, p.chunks - 1);
  map_offsets(p, c, at);
#pragma unroll
  for (int u = 0; u < gather_words; ++u) {
    index[u] = read_index(p.index, p.index_wide, at[u][1]);
    row[u] = position_of(index[u], p.extent);
  }
  W word[gather_words];
#pragma unroll
  for (int u = 0; u < gather_words; ++u) {
    word[u] = W{};
    if (row[u] >= 0) {
      word[u] = load_word<Access::readonly>(static_cast<const W*>(p.x) + (at[u][2] + row[u] * p.step));
    }
  }
#pragma unroll
  for (int u = 0; u < gather_words; ++u) {
    if (first + u * map_threads >= p.chunks) break;
    report_index(p.status, index[u], row[u]);
    store_word<Access::streaming>(static_cast<W*>(p.y) + at[u][0], word[u]);
  }
}

}  // namespace baracuda
