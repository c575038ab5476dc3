#pragma once
// extend_simt    batch_paged_extend without tensor cores, whatever its caches hold: a block of four warps takes a unit of
//                keys of one key head, and each warp one row after the other.
//
// A lane has a key of 32 for the scores, each one chain of fma over d, and columns lane, lane + 32, … of the outputs,
// which take the 32 weights one after the other. Order of sums: 32 keys from a multiple of 32 on, the last ones of the block
// first, each block's sum added to those of the blocks after it.
#include "attention/paged/extend_tables.cuh"

namespace baracuda {
namespace attention {

constexpr int simt_warps = 4;

// The sum of a row over some of its keys, columns lane + 32 n.
template <class A, int D> struct RowSum {
  PartialSum<A> sum{-numeric<A>::infinity(), A(0)};
  A acc[D / warp_size] = {};

  BARACUDA_D void add_after(const RowSum& block, A c) {
    const Added<A> added(sum, block.sum.closed(), c);
    sum = added.both;
#pragma unroll
    for (int n = 0; n < D / warp_size; ++n) acc[n] = added.add(acc[n], block.acc[n]);
  }
};

// One row, and its keys and values: rows of elements by position.
template <class T, int D, class Keys, class Values, class P> struct SimtRow {
  using A = acc_t<T>;
  const P& p;
  const Extended& sequence;
  const Keys& keys;
  const Values& values;
  const A* q;  // in shared memory
  const Extended::Reach seen;
  const TreeRow tree;
  const int position;
  const A slope;

  BARACUDA_D bool sees(int key) const { return key >= seen.low && key < seen.high && !tree.hides(key); }

  // The score of a key that exists.
  BARACUDA_D A score(int key) const {
    const auto k = keys.row(key);
    A x = A(0);
#pragma unroll 4
    for (int d = 0; d < p.d_k; ++d) x = math::fma(q[d], to_acc(k[d]), x);
    x *= static_cast<A>(p.sign);
    return p.has_terms ? with_terms(p, x, slope, position, key) : x;
  }
  // Adds the keys k0 … k0 + 31 to a block's sum.
  BARACUDA_D void add(RowSum<A, D>& block, int k0, A c) const {
    const A none = -numeric<A>::infinity();
    const int key = k0 + lane_id();
    const bool mine = sees(key);
    const A x = mine ? score(key) : none;
    const u32 seen_keys = __ballot_sync(full_warp, mine);
    const A high = math::maximum(block.sum.base, warp_reduce<Max>(x));
    const A from = base_or_0(high), factor = exp2_fast((block.sum.base - from) * c);
    const A weight = mine ? exp2_fast((x - from) * c) : A(0);
    block.sum.base = high;
    block.sum.sum = math::fma(block.sum.sum, factor, warp_reduce<Sum>(weight));
#pragma unroll
    for (int n = 0; n < D / warp_size; ++n) block.acc[n] *= factor;
#pragma unroll 1
    for (u32 rest = seen_keys; rest != 0; rest &= rest - 1) {
      const int j = __ffs(rest) - 1;
      const A w = __shfl_sync(full_warp, weight, j);
      const auto v = values.row(k0 + j);
#pragma unroll
      for (int n = 0; n < D / warp_size; ++n) {
        const int column = lane_id() + n * warp_size;
        if (column < p.d_v) block.acc[n] = math::fma(w, to_acc(v[column]), block.acc[n]);
      }
    }
  }
};

}  // namespace attention

// keys_of(pages, kv) and values_of(pages, kv): those of a key head.
template <class T, int D, class P, class KeysOf, class ValuesOf>
BARACUDA_D void extend_simt(const P& p, const KeysOf& keys_of, const ValuesOf& values_of) {
  using namespace attention;
  using A = acc_t<T>;
  __shared__ A queries[simt_warps][D];
  const Unit unit = Unit::of(p);
  const Extended sequence = Extended::of(p, unit.b);
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const u32 group = static_cast<u32>(p.group);
  const Extended::Part part = sequence.part(p);
  const A c = static_cast<A>(p.unit_log2);
  if (sequence.keys <= 0) return;
  const Pages pages(p, unit.b);
  const auto keys = keys_of(pages, unit.kv);
  const auto values = values_of(pages, unit.kv);
#pragma unroll 1
  for (u32 r = part.begin * group + unit.tile * simt_warps + warp; r < part.end * group;
       r += static_cast<u32>(p.row_tiles) * simt_warps) {
    const int query = static_cast<int>(r / group);
    const u32 head = unit.kv * group + r % group;
    const Extended::Reach seen = sequence.reach(p, query);
    const int begin = max(unit.begin(p), seen.low), end = min(unit.end(p), seen.high);
    if (begin >= end) continue;
    const T* const q = static_cast<const T*>(p.q) + unit.b * p.stride[0][0] + (sequence.row + query) * p.stride[0][2] +
                       head * p.stride[0][1];
    __syncwarp();
    for (int d = lane_id(); d < p.d_k; d += warp_size) queries[warp][d] = to_acc(q[d]);
    __syncwarp();
    const SimtRow<T, D, decltype(keys), decltype(values), P> row{p,
                                                                 sequence,
                                                                 keys,
                                                                 values,
                                                                 queries[warp],
                                                                 seen,
                                                                 TreeRow(p, sequence, query),
                                                                 sequence.position(p, query),
                                                                 slope_of<A>(p, unit.b, head)};
    RowSum<A, D> total, of_block;
#pragma unroll 1
    for (int k0 = (end - 1) / warp_size * warp_size; k0 > begin - warp_size; k0 -= warp_size) {
      row.add(of_block, k0, c);
      if (k0 > begin && k0 != block_start(block_of(k0))) continue;
      total.add_after(of_block, c);
      of_block = {};
    }
    const i64 at = first_sum(p, sequence.row + query, head) + unit.unit;
    A* const out = static_cast<A*>(p.parts) + at * round_up(p.d_v, 4);
#pragma unroll
    for (int n = 0; n < D / warp_size; ++n) {
      const int column = lane_id() + n * warp_size;
      if (column < p.d_v) out[column] = total.acc[n];
    }
    if (lane_id() == 0) static_cast<PartialSum<A>*>(p.stats)[at] = total.sum;
  }
}

}  // namespace baracuda
