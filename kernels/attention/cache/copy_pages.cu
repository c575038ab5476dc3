// copy_pages   caches[c][pairs[i, 1]] = sources[c][pairs[i, 0]] for every pair i and cache c, in words of BYTES bytes.
//
// blockIdx.y is the cache; a pair has `chunks` blocks along x, each of copy_pages_in_flight words a thread, whose loads
// are in flight together. Each word is written by one thread, so their order does not matter.
#include <baracuda/index.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {

template <int BYTES> BARACUDA_D void copy_pages(const CopyPagesParams& p) {
  const i64 pair = static_cast<i64>(blockIdx.x) / p.chunks;
  if (pair >= p.num_pairs) return;
  const i64 chunk = static_cast<i64>(blockIdx.x) - pair * p.chunks;
  i64 page[2];  // source, destination
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const i64 at = pair * p.pair_strides[0] + k * p.pair_strides[1];
    page[k] = p.pairs_wide ? static_cast<const i64*>(p.pairs)[at] : static_cast<const i32*>(p.pairs)[at];
  }
  if (page[1] < 0) return;  // padding
  if (page[0] < 0 || page[0] >= p.pages[0] || page[1] >= p.pages[1]) {
    if (p.status != nullptr && threadIdx.x == 0) atomicOr(p.status, 1u);
    return;
  }
  using W = Word<BYTES>;
  const W* const from = static_cast<const W*>(p.sources[blockIdx.y]) + page[0] * p.steps[0];
  W* const to = static_cast<W*>(p.caches[blockIdx.y]) + page[1] * p.steps[1];
  const i64 first = chunk * copy_pages_in_flight * blockDim.x + threadIdx.x;
  W held[copy_pages_in_flight];
  i64 at[copy_pages_in_flight];
#pragma unroll
  for (int k = 0; k < copy_pages_in_flight; ++k) {
    const i64 word = first + k * static_cast<i64>(blockDim.x);
    if (word >= p.words) continue;
    i64 places[2];  // in a page of the cache, and of its source
    offsets<i64, 2>(word, p.rank, p.shape, p.strides, places);
    held[k] = load_word<Access::streaming>(from + places[1]);
    at[k] = places[0];
  }
#pragma unroll
  for (int k = 0; k < copy_pages_in_flight; ++k) {
    if (first + k * static_cast<i64>(blockDim.x) < p.words) to[at[k]] = held[k];
  }
}

}  // namespace baracuda
