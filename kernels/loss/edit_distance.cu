// edit_distance   Levenshtein distances of pairs of token sequences
//
// d[i, j] = min(d[i - 1, j] + 1, d[i, j - 1] + 1, d[i - 1, j - 1] + (a[i - 1] != b[j - 1])). A block has a pair and goes along
// diagonals i + j, of which three in turn are kept, in shared memory or, of long sequences, in the workspace.
#include <baracuda/math.cuh>
#include <baracuda/positions.cuh>

namespace baracuda {

BARACUDA_D i64 edit_end(const void* lengths, bool wide, i64 n, i64 most) {
  return lengths == nullptr ? most : max<i64>(0, min<i64>(most, read_index(lengths, wide, n)));
}

template <class I> BARACUDA_D void edit_distance(const EditParams& p) {
  __shared__ i32 held[3 * edit_held];
  const i64 n = blockIdx.x, extent = p.a_length + 1;
  i32* const rows = p.staged ? held : static_cast<i32*>(p.rows) + n * 3 * extent;
  const i64 x = edit_end(p.a_lengths, p.wide_a, n, p.a_length), y = edit_end(p.b_lengths, p.wide_b, n, p.b_length);
  const I* const a = static_cast<const I*>(p.a) + n * p.a_steps[0];
  const I* const b = static_cast<const I*>(p.b) + n * p.b_steps[0];
  for (i64 diagonal = 0; diagonal <= x + y; ++diagonal) {
    i32* const now = rows + diagonal % 3 * extent;
    const i32* const last = rows + (diagonal + 2) % 3 * extent;
    const i32* const older = rows + (diagonal + 1) % 3 * extent;
    const i64 first = max<i64>(0, diagonal - y), end = min<i64>(x, diagonal);
    for (i64 i = first + threadIdx.x; i <= end; i += edit_threads) {
      const i64 j = diagonal - i;
      i32 least = static_cast<i32>(diagonal);  // of an empty beginning
      if (i > 0 && j > 0) {
        least = older[i - 1] + (a[(i - 1) * p.a_steps[1]] != b[(j - 1) * p.b_steps[1]]);
        least = min(least, min(last[i - 1], last[i]) + 1);
      }
      now[i] = least;
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) static_cast<i32*>(p.distance)[n * p.distance_step] = rows[(x + y) % 3 * extent + x];
}

}  // namespace baracuda
