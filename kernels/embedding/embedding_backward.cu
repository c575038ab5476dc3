// embedding_backward   dweight[v, :] = sum of dy[t, :] over the tokens t with indices[t] = v, in token order; divided by
//                      their number where the gradient is scaled by frequency
//
// count, place   a stable counting sort of the tokens by row (segments.cuh).
// sum            the sorted tokens of a row are cut into chunks of 32 from the row's start. Slot k owns the chunks that
//                start at places [32 k, 32 k + 32): at most one chunk of a row from before, then the rows that start
//                there. A row of one chunk is written at once; the chunks of others go to `partial`. Further blocks
//                write the rows without tokens.
// merge          adds the chunks of a row: eight stripes, chunk j to stripe j % 8, then the stripes in order.
//
// The order of a row's sum is fixed by its number of tokens alone.
#include <baracuda/index.cuh>
#include <baracuda/segments.cuh>
#include <baracuda/vector.cuh>
#include <baracuda/wanted.cuh>

namespace baracuda {

// The page has the sizes of blocks and chunks.
constexpr int max_groups = sum_threads / sum_least_lanes;  // slots of a block
constexpr int merge_stripes = merge_threads / warp_size;
constexpr int merge_loads = 4;

// ---- the sort -------------------------------------------------------------------------------------------------------

// The offset of a token in operand n (0 the indices, 1 dy).
BARACUDA_D i64 token_offset(const EmbeddingBackwardParams& p, int n, i64 token) {
  if (p.token_rank <= 1) return token * p.token_strides[n][0];
  return offset<i64>(token, p.token_rank, p.token_shape, p.token_strides[n]);
}

// The row of a token, or -1 where the token does not count.
BARACUDA_D i64 token_row(const EmbeddingBackwardParams& p, i64 token) {
  const i64 at = token_offset(p, 0, token);
  const i64 row = p.indices_wide ? static_cast<const i64*>(p.indices)[at] : static_cast<const i32*>(p.indices)[at];
  const bool known = row >= 0 && row < p.num_embeddings;
  if (!known && p.status != nullptr) atomicOr(p.status, 1u);
  return known && row != p.padding_row ? row : -1;
}

BARACUDA_D SegmentSort token_sort(const EmbeddingBackwardParams& p) {
  return {p.tokens,
          p.num_embeddings,
          p.ranges,
          p.parts,
          range_rows,
          static_cast<i32*>(p.counts),
          static_cast<i32*>(p.totals),
          static_cast<i32*>(p.starts),
          static_cast<i32*>(p.order),
          static_cast<i32*>(p.rows)};
}
BARACUDA_D void embedding_count(const EmbeddingBackwardParams& p) {
  segment_count(token_sort(p), static_cast<int>(blockIdx.x), [&](i64 token) { return token_row(p, token); });
}
BARACUDA_D void embedding_place(const EmbeddingBackwardParams& p) {
  segment_place(token_sort(p), static_cast<int>(blockIdx.x), [&](i64 token) { return token_row(p, token); });
}

// ---- the sums -------------------------------------------------------------------------------------------------------

// VEC elements of one row from a column on; `left` columns remain.
template <int VEC, bool WIDE, class T> BARACUDA_D void sum_store(T* p, i64 stride, const Vec<T, VEC>& x, i64 left) {
  if constexpr (!WIDE) store_strided<T, VEC>(p, stride, x, left);
  else if (left > 0) store_streaming(p, x);
}

// The sum of a row of n tokens, as it is written.
template <class A, int N> BARACUDA_D Vec<A, N> row_sum(const EmbeddingBackwardParams& p, Vec<A, N> sum, i32 n) {
  if (p.by_frequency) {
#pragma unroll
    for (int k = 0; k < N; ++k) sum[k] /= static_cast<A>(n);
  }
  return sum;
}

// Writes zeros to rows without tokens.
template <class T, bool WIDE> BARACUDA_D void fill_empty(const EmbeddingBackwardParams& p, i64 block, i32* bound) {
  constexpr int VEC = vec_elems<T>;
  const i64 first = block * p.fill_rows;
  const int n = static_cast<int>(min(first + p.fill_rows, p.num_embeddings) - first);
  for (int i = threadIdx.x; i <= n; i += sum_threads) bound[i] = static_cast<const i32*>(p.starts)[first + i];
  __syncthreads();
  Vec<T, VEC> zero;
#pragma unroll
  for (int k = 0; k < VEC; ++k) zero[k] = T(0.0f);
  const i64 chunks = div_up(p.dim, static_cast<i64>(VEC));
  for (i64 item = threadIdx.x; item < n * chunks; item += sum_threads) {
    u64 chunk;
    const int row = static_cast<int>(divmod(static_cast<u64>(item), static_cast<u64>(chunks), chunk));
    if (bound[row] != bound[row + 1]) continue;
    const i64 column = static_cast<i64>(chunk) * VEC;
    T* out = static_cast<T*>(p.dweight) + ((first + row) * p.row_stride + column * p.column_stride);
    sum_store<VEC, WIDE>(out, p.column_stride, zero, p.dim - column);
  }
}

template <class T, bool WIDE> BARACUDA_D void embedding_sum(const EmbeddingBackwardParams& p) {
  using A = acc_t<T>;
  constexpr int VEC = vec_elems<T>;
  constexpr int loads = WIDE ? 6 : 4;      // rows of dy in flight
  constexpr int reach = 2 * chunk_tokens;  // a slot's tokens, and as many of the chunk that runs past its end
  __shared__ i64 source[max_groups * reach];
  __shared__ i32 owner[max_groups * (reach + 1)];
  if (static_cast<int>(blockIdx.x) >= p.sum_blocks) {
    fill_empty<T, WIDE>(p, static_cast<int>(blockIdx.x) - p.sum_blocks, owner);
    return;
  }
  // A group of `lanes` threads has a slot; `tiles` blocks share its columns.
  const int lanes = p.lanes, groups = sum_threads / lanes;
  const int group = static_cast<int>(threadIdx.x) / lanes, lane = static_cast<int>(threadIdx.x) % lanes;
  const int tile = static_cast<int>(blockIdx.x) % p.tiles;
  const i64 slot = static_cast<i64>(static_cast<int>(blockIdx.x) / p.tiles) * groups + group;
  const i32* starts = static_cast<const i32*>(p.starts);
  const i32* rows = static_cast<const i32*>(p.rows);
  const i64 valid = starts[p.num_embeddings];
  const i64 low = slot * chunk_tokens, high = min(low + chunk_tokens, valid);

  // The sorted places [begin, end) of the slot's chunks. `carried`: the first one is a later chunk of row `first`;
  // `split`: the last one is the first of several chunks of row `last`.
  i64 begin = 0, end = 0;
  i32 first = -1, last = -1;
  bool carried = false, split = false;
  if (low < high) {
    first = rows[low];
    last = rows[high - 1];
    const i64 start = starts[first], stop = starts[first + 1];
    const i64 next = start + round_up(low - start, static_cast<i64>(chunk_tokens));
    begin = min(next, stop);
    if (begin < high) {
      carried = start < low && next < stop;
      const i64 last_start = starts[last], last_stop = starts[last + 1];
      end = min((last_start < low ? next : last_start) + chunk_tokens, last_stop);
      split = last_start >= low && last_stop - last_start > chunk_tokens;
    }
  }
  const int count = end > begin ? static_cast<int>(end - begin) : 0;
  const int from = group * reach, row_of = group * (reach + 1);  // the group's entries
  for (int i = lane; i < count; i += lanes) {
    source[from + i] = token_offset(p, 1, static_cast<const i32*>(p.order)[begin + i]);
    owner[row_of + i] = rows[begin + i];
  }
  if (lane == 0) {
    owner[row_of + count] = -1;
    if (tile == 0 && slot < p.slots) static_cast<i32*>(p.split)[slot] = split ? last : -1;
  }
  __syncthreads();

  const i64 column = (static_cast<i64>(tile) * lanes + lane) * VEC, left = p.dim - column;
  const T* dy = static_cast<const T*>(p.dy) + column * p.dy_column;
  Vec<A, VEC> sum;
#pragma unroll
  for (int k = 0; k < VEC; ++k) sum[k] = A(0);
  for (int base = 0; base < count; base += loads) {
    Packed<T, VEC> x[loads];
#pragma unroll
    for (int u = 0; u < loads; ++u) {
      const T* row = dy + source[from + min(base + u, count - 1)];
      if constexpr (WIDE) x[u].load_if(row, base + u < count && left > 0);
      else if (base + u < count) x[u] = Packed<T, VEC>::of(load_strided<T, VEC>(row, p.dy_column, left));
    }
#pragma unroll
    for (int u = 0; u < loads; ++u) {
      if (base + u < count) {
        const auto v = to_acc(x[u].unpacked());
#pragma unroll
        for (int k = 0; k < VEC; ++k) sum[k] += v[k];
        const i32 row = owner[row_of + base + u];
        if (row != owner[row_of + base + u + 1]) {
          const bool later = carried && row == first;
          if (later || (split && row == last)) {
            A* out = static_cast<A*>(p.partial) + ((2 * slot + (later ? 0 : 1)) * p.dim + column);
            store_vec<A, VEC, WIDE>(out, sum, left);
          } else {
            T* out = static_cast<T*>(p.dweight) + (row * p.row_stride + column * p.column_stride);
            const auto found = row_sum(p, sum, starts[row + 1] - starts[row]);
            sum_store<VEC, WIDE>(out, p.column_stride, from_acc<T>(found), left);
          }
#pragma unroll
          for (int k = 0; k < VEC; ++k) sum[k] = A(0);
        }
      }
    }
  }
}

// ---- rows of several chunks -----------------------------------------------------------------------------------------

template <class T, bool WIDE> BARACUDA_D void embedding_merge(const EmbeddingBackwardParams& p) {
  using A = acc_t<T>;
  constexpr int VEC = merge_block_columns / warp_size;
  __shared__ Vec<A, VEC> part[merge_stripes][warp_size];
  __shared__ i32 row_of[merge_slots];
  const int lane = lane_id(), stripe = threadIdx.x / warp_size;
  const i64 tiles = div_up(p.dim, static_cast<i64>(warp_size * VEC));
  const i64 first = blockIdx.x / tiles * merge_slots;
  const i64 column = (blockIdx.x % tiles * warp_size + lane) * VEC, left = p.dim - column;
  if (threadIdx.x < merge_slots) {
    const i64 slot = first + threadIdx.x;
    row_of[threadIdx.x] = slot < p.slots ? static_cast<const i32*>(p.split)[slot] : -1;
  }
  __syncthreads();
  for (int i = 0; i < merge_slots; ++i) {
    const i64 row = row_of[i];
    if (row < 0) continue;
    const i32* starts = static_cast<const i32*>(p.starts) + row;
    const i32 chunks = div_up(starts[1] - starts[0], chunk_tokens);
    // Chunk 0 is the second entry of its slot, a later chunk the first entry of the slot it starts in.
    const A* from = static_cast<const A*>(p.partial) + column;
    Vec<A, VEC> sum;
#pragma unroll
    for (int k = 0; k < VEC; ++k) sum[k] = A(0);
    for (i32 base = stripe; base < chunks; base += merge_stripes * merge_loads) {
      Vec<A, VEC> x[merge_loads];
#pragma unroll
      for (int u = 0; u < merge_loads; ++u) {
        const i64 chunk = base + u * merge_stripes;
        const i64 entry = 2 * (first + i + chunk) + (chunk == 0);
        if (chunk < chunks) x[u] = load_vec<A, VEC, WIDE>(from + entry * p.dim, left);
      }
#pragma unroll
      for (int u = 0; u < merge_loads; ++u) {
        if (base + u * merge_stripes < chunks) {
#pragma unroll
          for (int k = 0; k < VEC; ++k) sum[k] += x[u][k];
        }
      }
    }
    part[stripe][lane] = sum;
    __syncthreads();
    if (stripe == 0) {
#pragma unroll
      for (int other = 1; other < merge_stripes; ++other) {
#pragma unroll
        for (int k = 0; k < VEC; ++k) sum[k] += part[other][lane][k];
      }
      sum = row_sum(p, sum, starts[1] - starts[0]);
      T* out = static_cast<T*>(p.dweight) + (row * p.row_stride + column * p.column_stride);
      if constexpr (WIDE) store_vec<T, VEC, true>(out, from_acc<T>(sum), left);
      else store_strided<T, VEC>(out, p.column_stride, from_acc<T>(sum), left);
    }
    __syncthreads();
  }
}

}  // namespace baracuda
