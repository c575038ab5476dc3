// compact    elements that a mask or their own value chooses, in row-major order, in one pass.
//
// A block has a tile of elements. It counts those chosen, leaves the count for the blocks behind it, and finds how many
// are before the tile from what the blocks before it left (decoupled look-back, Merrill and Garland 2016: lookback.cuh).
// What is chosen goes to its rank, so that the result depends on the values alone. Item j of a thread is the element 32 j
// behind its own: accesses of a warp are neighbours, and ranks come from votes.
#include <baracuda/index.cuh>
#include <baracuda/lookback.cuh>

namespace baracuda {

constexpr int compact_threads = 256, compact_warps = compact_threads / warp_size;
constexpr int compact_items = 16, compact_group = 4;  // of a thread; of which so many loads are in flight
constexpr i64 compact_tile = compact_threads * compact_items;

// Where element e of the row-major order lies in operand n.
template <class P> BARACUDA_D i64 compact_at(const P& p, int n, i64 e) {
  if (p.rank <= 1) return e * p.strides[n][0];
  return offset<i64>(e, p.rank, p.shape, p.strides[n]);
}

// How many elements are chosen before the tile. The whole block calls; `total` are those of the tile.
template <class P> BARACUDA_D i64 compact_before(const P& p, i64 tile, i32 total) {
  __shared__ i64 found;
  i64* const totals = static_cast<i64*>(p.carries);
  i64* const carries = totals + p.tiles;  // of each tile, what is before the one after it
  u32* const flags = static_cast<u32*>(p.flags);
  if (threadIdx.x < warp_size) {
    const int lane = lane_id();
    i64 before = 0;
    if (tile > 0) {
      if (lane == 0) {
        totals[tile] = total;
        pass_turn(flags + tile, flag_total);
      }
      __syncwarp();
      const int count = static_cast<int>(min(tile, i64(warp_size - 1)));
      const int nearer = await_carry(flags + tile, count);
      i64 part = 0;
      if (lane < nearer) part = totals[tile - 1 - lane];
      else if (lane == nearer) part = carries[tile - 1 - lane];
      before = warp_reduce<Sum>(part);
    }
    if (lane == 0) {
      carries[tile] = before + total;
      pass_turn(flags + tile, flag_carry);
      found = before;
      if (tile == p.tiles - 1 && p.count != nullptr) *static_cast<i64*>(p.count) = before + total;
    }
  }
  __syncthreads();
  return found;
}

// test(e): whether element e is chosen. read(e, chosen, rank) loads, write(e, chosen, rank, what was read) stores; rank:
// how many are chosen before e.
template <class P, class Test, class Read, class Write>
BARACUDA_D void compact(const P& p, const Test& test, const Read& read, const Write& write) {
  __shared__ i32 sums[compact_warps];
  const int lane = lane_id(), warp = static_cast<int>(threadIdx.x) / warp_size;
  const i64 tile = blockIdx.x, first = tile * compact_tile + warp * (warp_size * compact_items) + lane;
  u32 mine = 0;  // bit j: whether item j is chosen
#pragma unroll
  for (int j = 0; j < compact_items; ++j) {
    const i64 e = first + j * warp_size;
    if (e < p.elements && test(e)) mine |= 1u << j;
  }
  u32 votes = 0;  // lane j has those of the warp's items j
  i32 sum = 0;
#pragma unroll
  for (int j = 0; j < compact_items; ++j) {
    const u32 vote = __ballot_sync(full_warp, mine >> j & 1);
    if (lane == j) votes = vote;
    sum += __popc(vote);
  }
  if (lane == 0) sums[warp] = sum;
  __syncthreads();
  const i32 own = lane < compact_warps ? sums[lane] : 0;
  const i32 total = warp_reduce<Sum>(own), earlier = warp_reduce<Sum>(lane < warp ? own : 0);
  i64 rank = compact_before(p, tile, total) + earlier;
#pragma unroll 1
  for (int at = 0; at < compact_items; at += compact_group) {
    decltype(read(i64(0), false, i64(0))) held[compact_group];
    i64 ranks[compact_group];
#pragma unroll
    for (int u = 0; u < compact_group; ++u) {
      const i64 e = first + (at + u) * warp_size;
      const u32 vote = __shfl_sync(full_warp, votes, at + u);
      ranks[u] = rank + __popc(vote & ((1u << lane) - 1u));
      rank += __popc(vote);
      if (e < p.elements) held[u] = read(e, (mine >> (at + u) & 1) != 0, ranks[u]);
    }
#pragma unroll
    for (int u = 0; u < compact_group; ++u) {
      const i64 e = first + (at + u) * warp_size;
      if (e < p.elements) write(e, (mine >> (at + u) & 1) != 0, ranks[u], held[u]);
    }
  }
}

// Zeroes the flags, before the launch that sets them.
template <class P> BARACUDA_D void compact_clear(const P& p) {
  const i64 i = thread_index();
  if (i < p.tiles) static_cast<u32*>(p.flags)[i] = 0;
}

// ---- where x is not 0 -----------------------------------------------------------------------------------------------

// Any of the bits that count; `bits` are those of eight bytes, a sign not among them.
BARACUDA_D bool any_bit(uint4 w, u64 bits) {
  const u32 low = static_cast<u32>(bits), high = static_cast<u32>(bits >> 32);
  return ((w.x | w.z) & low) != 0 || ((w.y | w.w) & high) != 0;
}
BARACUDA_D bool any_bit(uint2 w, u64 bits) { return any_bit(uint4{w.x, w.y, 0, 0}, bits); }
template <class W> BARACUDA_D bool any_bit(W w, u64 bits) { return (w & bits) != 0; }

struct Nothing {};

// y[k][r] = coordinate k of the r-th element of x that is not 0.
template <int BYTES, class P> BARACUDA_D void compact_positions(const P& p) {
  using W = Word<BYTES>;
  const auto test = [&](i64 e) {
    return any_bit(load_word<Access::readonly>(static_cast<const W*>(p.x) + compact_at(p, 0, e)), p.bits);
  };
  const auto write = [&](i64 e, bool chosen, i64 rank, Nothing) {
    if (!chosen || rank >= p.size) return;
    u64 rest = static_cast<u64>(e);
#pragma unroll 1
    for (int k = p.axes - 1; k >= 0; --k) {
      u64 coordinate = rest;
      if (k > 0) rest = divmod(rest, static_cast<u64>(p.extents[k]), coordinate);
      static_cast<i64*>(p.y)[k * p.steps[0] + rank * p.steps[1]] = static_cast<i64>(coordinate);
    }
  };
  compact(p, test, [](i64, bool, i64) { return Nothing{}; }, write);
}
// The entries of y behind those found.
template <class P> BARACUDA_D void compact_fill_positions(const P& p) {
  const i64 r = thread_index();
  if (r >= p.size || r < *static_cast<const i64*>(p.count)) return;
  for (int k = 0; k < p.axes; ++k) static_cast<i64*>(p.y)[k * p.steps[0] + r * p.steps[1]] = p.fill[0];
}

// ---- a mask ---------------------------------------------------------------------------------------------------------

// Operands: mask, x, y. `source` has an element for each rank.
template <class P> BARACUDA_D bool in_mask(const P& p, i64 e) {
  return static_cast<const u8*>(p.mask)[compact_at(p, 0, e)] != 0;
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

// source[r] = the r-th element of x that the mask chooses.
template <int BYTES, class P> BARACUDA_D void compact_select(const P& p) {
  using W = Word<BYTES>;
  const auto read = [&](i64 e, bool chosen, i64 rank) {
    W word{};
    if (chosen && rank < p.size) word = load_word<Access::readonly>(static_cast<const W*>(p.x) + compact_at(p, 1, e));
    return word;
  };
  const auto write = [&](i64, bool chosen, i64 rank, const W& word) {
    if (chosen && rank < p.size) static_cast<W*>(p.source)[source_at(p, rank)] = word;
  };
  compact(p, [&](i64 e) { return in_mask(p, e); }, read, write);
}
// The elements of source behind those chosen.
template <int BYTES, class P> BARACUDA_D void compact_fill(const P& p) {
  const i64 r = thread_index();
  if (r >= p.size || r < *static_cast<const i64*>(p.count)) return;
  static_cast<Word<BYTES>*>(p.source)[source_at(p, r)] = word_of<BYTES>(p.fill);
}

// y = the r-th element of source where the mask chooses the r-th element, else x (0 where there is no x). Where source
// has no r-th one it begins anew, if it is `cyclic`, or y is x.
template <int BYTES, class P> BARACUDA_D void compact_scatter(const P& p) {
  using W = Word<BYTES>;
  const auto read = [&](i64 e, bool chosen, i64 rank) {
    if (chosen && rank >= p.size) {
      if (p.status != nullptr) atomicOr(p.status, 1u);
      if (p.cyclic && p.size > 0) rank %= p.size;
      else chosen = false;
    }
    if (chosen) return static_cast<const W*>(p.source)[source_at(p, rank)];
    return p.x == nullptr ? W{} : static_cast<const W*>(p.x)[compact_at(p, 1, e)];
  };
  const auto write = [&](i64 e, bool, i64, const W& word) { static_cast<W*>(p.y)[compact_at(p, 2, e)] = word; };
  compact(p, [&](i64 e) { return in_mask(p, e); }, read, write);
}

// Its gradients: x is dy, y dx and source dsource, each of the last two wanted or not.
template <int BYTES, class P> BARACUDA_D void compact_scatter_backward(const P& p) {
  using W = Word<BYTES>;
  const auto read = [&](i64 e, bool, i64) { return static_cast<const W*>(p.x)[compact_at(p, 1, e)]; };
  const auto write = [&](i64 e, bool chosen, i64 rank, const W& word) {
    const bool taken = chosen && rank < p.size;
    if (p.y != nullptr) static_cast<W*>(p.y)[compact_at(p, 2, e)] = taken ? W{} : word;
    if (p.source != nullptr && taken) static_cast<W*>(p.source)[source_at(p, rank)] = word;
  };
  compact(p, [&](i64 e) { return in_mask(p, e); }, read, write);
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
