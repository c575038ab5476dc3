// ctc_collapse   a path of classes without its repetitions and blanks
//
// A block for each sequence takes some steps at a time; the tokens that begin there follow one another in their order.
#include <baracuda/math.cuh>
#include <baracuda/positions.cuh>
#include <baracuda/reduce.cuh>

namespace baracuda {

template <class I> BARACUDA_D void ctc_collapse(const CollapseParams& p) {
  __shared__ i32 sums[collapse_threads / warp_size];
  __shared__ i32 found;
  const i64 n = blockIdx.x;
  const i64 end =
      p.lengths == nullptr ? p.steps : max<i64>(0, min<i64>(p.steps, read_index(p.lengths, p.wide_lengths, n)));
  const I* const path = static_cast<const I*>(p.path) + n * p.path_steps[1];
  I* const tokens = static_cast<I*>(p.tokens) + n * p.token_steps[0];
  i32* const starts = p.starts == nullptr ? nullptr : static_cast<i32*>(p.starts) + n * p.start_steps[0];
  i64 before = 0;
  for (i64 start = 0; start < end; start += collapse_threads) {
    const i64 t = start + threadIdx.x;
    const i64 own = t < end ? static_cast<i64>(path[t * p.path_steps[0]]) : p.blank;
    const bool begins = own != p.blank && (t == 0 || path[(t - 1) * p.path_steps[0]] != own);
    const i32 upto = block_scan<Sum, collapse_threads>(static_cast<i32>(begins), sums);
    if (begins) {
      const i64 at = before + upto - 1;
      tokens[at * p.token_steps[1]] = static_cast<I>(own);
      if (starts != nullptr) starts[at * p.start_steps[1]] = static_cast<i32>(t);
    }
    if (threadIdx.x == collapse_threads - 1) found = upto;
    __syncthreads();
    before += found;
    __syncthreads();
  }
  if (threadIdx.x == 0) static_cast<i32*>(p.counts)[n * p.counts_step] = static_cast<i32>(before);
  for (i64 t = before + threadIdx.x; t < p.steps; t += collapse_threads) {
    tokens[t * p.token_steps[1]] = static_cast<I>(-1);
    if (starts != nullptr) starts[t * p.start_steps[1]] = -1;
  }
}

}  // namespace baracuda
