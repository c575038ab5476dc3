// compact    elements that a mask or their own value chooses, in row-major order, in one pass.
//
// A block has a tile of elements, of which a thread has runs of 16 neighbours: 16 bytes of a mask. It counts those chosen,
// and finds how many are before the tile from what the blocks before it left (tile_counts.cuh). What is chosen goes to its
// rank within the tile in shared memory and from there to neighbours in memory, or comes the other way. The result
// depends on the values alone. Operands that are not dense, or not aligned, are read and written one by one.
#include <baracuda/index.cuh>
#include <baracuda/tile_counts.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {

constexpr int compact_warps = compact_threads / warp_size;  // schedules/compact.py has compact_threads and compact_run
// Runs of a thread: what a tile chooses takes up to 32 KB of shared memory, of elements of 16 bytes 64.
template <int BYTES> constexpr int compact_runs = BYTES <= 2 ? 4 : BYTES == 4 ? 2 : 1;

// Where element e of the row-major order lies in operand n.
template <class P> BARACUDA_D i64 compact_at(const P& p, int n, i64 e) {
  if (p.rank <= 1) return e * p.strides[n][0];
  return offset<i64>(e, p.rank, p.shape, p.strides[n]);
}
// Whether the 16 elements from e on are neighbours in operand n that wide accesses move.
template <class P> BARACUDA_D bool is_run(const P& p, int n, i64 e) {
  return (p.wide >> n & 1) != 0 && e + compact_run <= p.elements;
}

// A tile of RUNS runs a thread: which of its elements are chosen, and the rank within the tile of those of each run.
template <int RUNS> struct Tile {
  i64 number, first;  // the tile, and the thread's first element; runs lie 32 runs apart
  u32 chosen[RUNS];   // bit j: element j of the run
  int rank[RUNS];
  int total;
  // bits_of(e): the bits of the run from e on. The whole block calls.
  template <class P, class F> BARACUDA_D Tile(const P& p, const F& bits_of) {
    __shared__ int sums[compact_warps];
    constexpr int pairs = (RUNS + 1) / 2;  // counts of two runs in a word
    const int lane = lane_id(), warp = static_cast<int>(threadIdx.x) / warp_size;
    number = blockIdx.x;
    first = ((number * compact_warps + warp) * (RUNS * warp_size) + lane) * compact_run;
#pragma unroll
    for (int c = 0; c < RUNS; ++c) chosen[c] = element(c) < p.elements ? bits_of(element(c)) : 0;
    u32 count[pairs] = {};
#pragma unroll
    for (int c = 0; c < RUNS; ++c) count[c / 2] += static_cast<u32>(__popc(chosen[c])) << 16 * (c % 2);
#pragma unroll
    for (int step = 1; step < warp_size; step *= 2) {
#pragma unroll
      for (int k = 0; k < pairs; ++k) {
        const u32 before = __shfl_up_sync(full_warp, count[k], step);
        if (lane >= step) count[k] += before;
      }
    }
    int sum = 0;
#pragma unroll
    for (int c = 0; c < RUNS; ++c) {
      rank[c] = sum + static_cast<int>(count[c / 2] >> 16 * (c % 2) & 0xffff) - __popc(chosen[c]);
      sum += static_cast<int>(__shfl_sync(full_warp, count[c / 2], warp_size - 1) >> 16 * (c % 2) & 0xffff);
    }
    if (lane == 0) sums[warp] = sum;
    __syncthreads();
    const int own = lane < compact_warps ? sums[lane] : 0;
    total = warp_reduce<Sum>(own);
    const int earlier = warp_reduce<Sum>(lane < warp ? own : 0);
#pragma unroll
    for (int c = 0; c < RUNS; ++c) rank[c] += earlier;
  }
  BARACUDA_D i64 element(int c) const { return first + c * (warp_size * compact_run); }
  // The first warp finds how many elements are chosen before the tile, for all to read behind the next barrier.
  template <class P> BARACUDA_D void find(const P& p, i64& before) const {
    if (threadIdx.x >= warp_size) return;
    const i64 found = count_before(static_cast<u64*>(p.states), number, total);
    if (threadIdx.x != 0) return;
    before = found;
    if (number == p.tiles - 1 && p.count != nullptr) *static_cast<i64*>(p.count) = found + total;
  }
};

// Zeroes what tiles leave, before the launch that does.
template <class P> BARACUDA_D void compact_clear(const P& p) {
  const i64 i = thread_index();
  if (i < p.tiles) static_cast<u64*>(p.states)[i] = 0;
}

// f(r) for the entries behind those found, of which a block looks at 16 a thread.
template <class P, class F> BARACUDA_D void behind_found(const P& p, const F& f) {
  const i64 found = *static_cast<const i64*>(p.count);
  const i64 first = static_cast<i64>(blockIdx.x) * (compact_threads * compact_run),
            end = first + compact_threads * compact_run;
  if (end <= found) return;
#pragma unroll 4
  for (i64 r = first + threadIdx.x; r < min(end, p.size); r += compact_threads) {
    if (r >= found) f(r);
  }
}

// ---- runs -----------------------------------------------------------------------------------------------------------

// Bit k: whether byte k of the word is not 0.
BARACUDA_D u32 bytes_set(u32 w) {
  const u32 high = (((w & 0x7f7f7f7fu) + 0x7f7f7f7fu) | w) & 0x80808080u;
  return (high >> 7) * 0x01020408u >> 24 & 0xf;
}
BARACUDA_D u32 bytes_set(const uint4& w) {
  return bytes_set(w.x) | bytes_set(w.y) << 4 | bytes_set(w.z) << 8 | bytes_set(w.w) << 12;
}
// Bit j: test(e + j), of the elements that there are.
template <class P, class F> BARACUDA_D u32 bits_one_by_one(const P& p, i64 e, const F& test) {
  u32 bits = 0;
#pragma unroll 1
  for (int j = 0; j < compact_run && e + j < p.elements; ++j) bits |= static_cast<u32>(test(e + j)) << j;
  return bits;
}
// Calls part(j, words) for the words j, j + 1, … of a run, as many at once as 64 bytes hold.
template <class W> constexpr int run_part = sizeof(W) <= 4 ? compact_run : 64 / static_cast<int>(sizeof(W));
template <class W, class F> BARACUDA_D void by_parts(const F& part) {
#pragma unroll 1
  for (int j = 0; j < compact_run; j += run_part<W>) {
    Vec<W, run_part<W>> words;
    part(j, words);
  }
}

// ---- where x is not 0 -----------------------------------------------------------------------------------------------

// Any of the bits that count; `bits` are those of eight bytes, a sign not among them.
BARACUDA_D bool any_bit(uint4 w, u64 bits) {
  const u32 low = static_cast<u32>(bits), high = static_cast<u32>(bits >> 32);
  return ((w.x | w.z) & low) != 0 || ((w.y | w.w) & high) != 0;
}
BARACUDA_D bool any_bit(uint2 w, u64 bits) { return any_bit(uint4{w.x, w.y, 0, 0}, bits); }
template <class W> BARACUDA_D bool any_bit(W w, u64 bits) { return (w & bits) != 0; }

template <int BYTES, class P> BARACUDA_D u32 nonzero_bits(const P& p, i64 e) {
  using W = Word<BYTES>;
  const W* x = static_cast<const W*>(p.x);
  if (!is_run(p, 0, e)) {
    return bits_one_by_one(p, e, [&](i64 at) { return any_bit(x[compact_at(p, 0, at)], p.bits); });
  }
  if constexpr (BYTES == 1) {
    const uint4 w = *reinterpret_cast<const uint4*>(x + e);
    const u32 bits = static_cast<u32>(p.bits) * 0x01010101u;
    return bytes_set(uint4{w.x & bits, w.y & bits, w.z & bits, w.w & bits});
  } else {
    u32 found = 0;
    by_parts<W>([&](int j, Vec<W, run_part<W>>& words) {
      words = load<run_part<W>>(x + e + j);
#pragma unroll
      for (int k = 0; k < run_part<W>; ++k) found |= static_cast<u32>(any_bit(words[k], p.bits)) << (j + k);
    });
    return found;
  }
}

// y[k][r] = coordinate k of the r-th element of x that is not 0.
template <int BYTES, class P> BARACUDA_D void compact_positions(const P& p) {
  constexpr int runs = compact_runs<BYTES>;
  __shared__ i64 before;
  BARACUDA_DYNAMIC_SMEM(u16, places);  // within the tile
  const Tile<runs> tile(p, [&](i64 e) { return nonzero_bits<BYTES>(p, e); });
  const int own = static_cast<int>(tile.first - tile.number * (compact_threads * runs * compact_run));
#pragma unroll
  for (int c = 0; c < runs; ++c) {
    int rank = tile.rank[c];
    for (u32 rest = tile.chosen[c]; rest != 0; rest &= rest - 1) {
      places[rank++] = static_cast<u16>(own + c * (warp_size * compact_run) + __ffs(rest) - 1);
    }
  }
  tile.find(p, before);
  __syncthreads();
  const i64 first = tile.number * (compact_threads * runs * compact_run);
  const int end = static_cast<int>(min(static_cast<i64>(tile.total), p.size - before));
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < end; i += compact_threads) {
    i64* const y = static_cast<i64*>(p.y) + (before + i) * p.steps[1];
    u64 rest = static_cast<u64>(first + places[i]);
#pragma unroll 1
    for (int k = p.axes - 1; k >= 0; --k) {
      u64 coordinate = rest;
      if (k > 0) rest = divmod(rest, static_cast<u64>(p.extents[k]), coordinate);
      y[k * p.steps[0]] = static_cast<i64>(coordinate);
    }
  }
}
// The entries of y behind those found.
template <class P> BARACUDA_D void compact_fill_positions(const P& p) {
  behind_found(p, [&](i64 r) {
    for (int k = 0; k < p.axes; ++k) static_cast<i64*>(p.y)[k * p.steps[0] + r * p.steps[1]] = p.fill[0];
  });
}

// ---- a mask ---------------------------------------------------------------------------------------------------------

// Operands: mask, x, y. `source` has an element for each rank.
template <class P> BARACUDA_D bool in_mask(const P& p, i64 e) {
  return static_cast<const u8*>(p.mask)[compact_at(p, 0, e)] != 0;
}
template <class P> BARACUDA_D u32 mask_bits(const P& p, i64 e) {
  if (is_run(p, 0, e)) return bytes_set(*reinterpret_cast<const uint4*>(static_cast<const u8*>(p.mask) + e));
  return bits_one_by_one(p, e, [&](i64 at) { return in_mask(p, at); });
}
template <class P> BARACUDA_D i64 source_at(const P& p, i64 rank) {
  if (p.source_rank <= 1) return rank * p.source_strides[0];
  return offset<i64>(rank, p.source_rank, p.source_shape, p.source_strides);
}
template <int BYTES> BARACUDA_D Word<BYTES> word_of(const i64 (&bits)[2]) {
  if constexpr (BYTES <= 4) return static_cast<Word<BYTES>>(bits[0]);
  else {
    const u32 words[4] = {static_cast<u32>(bits[0]), static_cast<u32>(bits[0] >> 32), static_cast<u32>(bits[1]),
                          static_cast<u32>(bits[1] >> 32)};
    if constexpr (BYTES == 8) return {words[0], words[1]};
    else return {words[0], words[1], words[2], words[3]};
  }
}
// Elements 0 … end - 1 of the tile's ranks go to source.
template <class W, class P> BARACUDA_D void put_ranks(const P& p, const W* kept, i64 before, int total) {
  const int end = static_cast<int>(max(min(static_cast<i64>(total), p.size - before), i64(0)));
  for (int i = static_cast<int>(threadIdx.x); i < end; i += compact_threads) {
    static_cast<W*>(p.source)[source_at(p, before + i)] = kept[i];
  }
}

// source[r] = the r-th element of x that the mask chooses.
template <int BYTES, class P> BARACUDA_D void compact_select(const P& p) {
  using W = Word<BYTES>;
  constexpr int runs = compact_runs<BYTES>;
  __shared__ i64 before;
  BARACUDA_DYNAMIC_SMEM(W, kept);
  const W* x = static_cast<const W*>(p.x);
  const Tile<runs> tile(p, [&](i64 e) { return mask_bits(p, e); });
  tile.find(p, before);
#pragma unroll
  for (int c = 0; c < runs; ++c) {
    const i64 e = tile.element(c);
    int rank = tile.rank[c];
    if (tile.chosen[c] == 0) continue;
    if (is_run(p, 1, e)) {
      by_parts<W>([&](int j, Vec<W, run_part<W>>& words) {
        words = load_readonly<run_part<W>>(x + e + j);
#pragma unroll
        for (int k = 0; k < run_part<W>; ++k) {
          if (tile.chosen[c] >> (j + k) & 1) kept[rank++] = words[k];
        }
      });
    } else {
#pragma unroll 1
      for (u32 rest = tile.chosen[c]; rest != 0; rest &= rest - 1) {
        kept[rank++] = x[compact_at(p, 1, e + __ffs(rest) - 1)];
      }
    }
  }
  __syncthreads();
  put_ranks(p, kept, before, tile.total);
}
// The elements of source behind those chosen.
template <int BYTES, class P> BARACUDA_D void compact_fill(const P& p) {
  behind_found(p, [&](i64 r) { static_cast<Word<BYTES>*>(p.source)[source_at(p, r)] = word_of<BYTES>(p.fill); });
}

// Calls change(word, chosen, rank) for the elements of a run of x, or zeros where there is no x, and writes what becomes
// of them to y, if there is one.
template <class W, class P, class F>
BARACUDA_D void change_run(const P& p, i64 e, u32 chosen, int rank, const F& change) {
  const W* x = static_cast<const W*>(p.x);
  W* const y = static_cast<W*>(p.y);
  if ((x == nullptr || is_run(p, 1, e)) && (y == nullptr || is_run(p, 2, e))) {
    by_parts<W>([&](int j, Vec<W, run_part<W>>& words) {
#pragma unroll
      for (int k = 0; k < run_part<W>; ++k) words[k] = W{};
      if (x != nullptr) words = load<run_part<W>>(x + e + j);
#pragma unroll
      for (int k = 0; k < run_part<W>; ++k) {
        const bool now = chosen >> (j + k) & 1;
        change(words[k], now, rank);
        rank += now;
      }
      if (y != nullptr) store(y + e + j, words);
    });
  } else {
#pragma unroll 1
    for (int j = 0; j < compact_run && e + j < p.elements; ++j) {
      W word{};
      if (x != nullptr) word = x[compact_at(p, 1, e + j)];
      const bool now = chosen >> j & 1;
      change(word, now, rank);
      rank += now;
      if (y != nullptr) y[compact_at(p, 2, e + j)] = word;
    }
  }
}

// y = the r-th element of source where the mask chooses the r-th element, else x (0 where there is no x). Where source
// has no r-th one it begins anew, if it is `cyclic`, or y is x.
template <int BYTES, class P> BARACUDA_D void compact_scatter(const P& p) {
  using W = Word<BYTES>;
  constexpr int runs = compact_runs<BYTES>;
  __shared__ i64 before;
  BARACUDA_DYNAMIC_SMEM(W, kept);
  const Tile<runs> tile(p, [&](i64 e) { return mask_bits(p, e); });
  tile.find(p, before);
  __syncthreads();
  const bool short_of = before + tile.total > p.size, anew = short_of && p.cyclic && p.size > 0;
  if (short_of && threadIdx.x == 0 && p.status != nullptr) atomicOr(p.status, 1u);
  const int most = short_of && !anew ? static_cast<int>(max(p.size - before, i64(0))) : tile.total;
  for (int i = static_cast<int>(threadIdx.x); i < most; i += compact_threads) {
    const i64 rank = anew ? (before + i) % p.size : before + i;
    kept[i] = static_cast<const W*>(p.source)[source_at(p, rank)];
  }
  __syncthreads();
#pragma unroll
  for (int c = 0; c < runs; ++c) {
    if (tile.element(c) >= p.elements) break;
    change_run<W>(p, tile.element(c), tile.chosen[c], tile.rank[c], [&](W& word, bool chosen, int rank) {
      if (chosen && rank < most) word = kept[rank];
    });
  }
}

// Its gradients: x is dy, y dx and source dsource, each of the last two wanted or not.
template <int BYTES, class P> BARACUDA_D void compact_scatter_backward(const P& p) {
  using W = Word<BYTES>;
  constexpr int runs = compact_runs<BYTES>;
  __shared__ i64 before;
  BARACUDA_DYNAMIC_SMEM(W, kept);
  const Tile<runs> tile(p, [&](i64 e) { return mask_bits(p, e); });
  tile.find(p, before);
  __syncthreads();
  const i64 left = p.size - before;  // ranks that source has
#pragma unroll
  for (int c = 0; c < runs; ++c) {
    if (tile.element(c) >= p.elements) break;
    change_run<W>(p, tile.element(c), tile.chosen[c], tile.rank[c], [&](W& word, bool chosen, int rank) {
      if (!chosen) return;
      kept[rank] = word;
      if (rank < left) word = W{};
    });
  }
  __syncthreads();
  if (p.source != nullptr) put_ranks(p, kept, before, tile.total);
}

// y = element e mod `size` of source where the mask chooses element e, else x.
template <int BYTES, class P> BARACUDA_D void compact_cycle(const P& p) {
  using W = Word<BYTES>;
  const i64 e = thread_index();
  if (e >= p.elements) return;
  const bool chosen = p.size > 0 && in_mask(p, e);
  const W word = chosen ? static_cast<const W*>(p.source)[source_at(p, e % p.size)]
                        : static_cast<const W*>(p.x)[compact_at(p, 1, e)];
  static_cast<W*>(p.y)[compact_at(p, 2, e)] = word;
}

}  // namespace baracuda
