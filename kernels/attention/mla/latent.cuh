#pragma once
// latent    what the kernels of mla_decode and mla_sparse share: the rows of a block, its keys, partials.
//
// A cell is d_latent columns, which are key and value, and d_rope more that are key only. Which cells rows see, a source
// K says: InPages (latent_pages.cuh), the cells of a sequence in order, or InList (latent_list.cuh), those that a query
// lists. A source has entries, sequences or queries; rows of an entry are its queries times the heads, the heads of a
// query one after another. Keys have positions, in the sequence or in the list. They are cut into splits of split_keys,
// which begin at multiples of it, so that the order of a row's sums follows from the positions that it sees alone: keys
// that a row does not see add exact zeros.
//
// K::Record           how a cell is stored (latent_records.cuh)
// K::first(p)         the first entry of this launch
// K::Sequence<P>      the keys of an entry: seen(p, i), how many query i sees; report(p), of bad tables in a checked run
// K::Cell<P>          where the cell of a position is: `look` starts what is read for it, which nothing waits for before
//                     `find`, which gives the cell's offset, of either sign, or `nowhere`
// K::sink<A>(p, head) a logit that joins the row's sum and has no value; -inf: none
//
// parts[(entry of the launch, row, split)][d_latent rounded up to 8] is sum_j 2^((s_j - max(s)) c) c_j over the keys of a split that the
// row sees, with c = |scale| log2(e); stats[likewise] = {max(s), sum_j 2^((s_j - max(s)) c)}.
#include "attention/decoding/flash_decoding.cuh"
#include "attention/pages.cuh"

namespace baracuda {
namespace mla {

constexpr i64 nowhere = numeric<i64>::lowest();

struct Plain {  // a cell is its columns
  static constexpr bool plain = true;
  template <class T> using Stored = T;
};

// The rows and keys of a block: tiles of rows lie next to each other, so that blocks that read the same keys run at
// about the same time.
template <class K, class P> struct Share {
  using Cell = typename K::template Cell<P>;
  i64 b, split, begin, end;  // the entry, and the split's keys that some row of the block sees
  int first, count;          // rows
  const typename K::template Sequence<P> sequence;

  BARACUDA_D Share(const P& p, int rows) : Share(p, rows, blockIdx.x / static_cast<u32>(p.tiles)) {}
  // The number of keys that a row of the block sees; rows past the last see what it sees.
  BARACUDA_D i64 seen(const P& p, int row) const { return sequence.seen(p, (first + min(row, count - 1)) / p.heads); }
  // Where row r of the block begins in an operand of [entries, queries, heads, …].
  BARACUDA_D i64 at(const P& p, const i64 (&stride)[3], int r) const {
    const int query = (first + r) / p.heads;
    return b * stride[0] + query * stride[1] + (first + r - query * p.heads) * stride[2];
  }
  // The number of the partial of row r.
  BARACUDA_D i64 part(const P& p, int r) const {
    return ((b - K::first(p)) * p.queries * p.heads + first + r) * p.splits + split;
  }

 private:
  BARACUDA_D Share(const P& p, int rows, u32 unit)
      : b(K::first(p) + unit / static_cast<u32>(p.splits)), split(unit % static_cast<u32>(p.splits)),
        begin(split * split_keys), first(static_cast<int>(blockIdx.x % static_cast<u32>(p.tiles)) * rows),
        count(min(rows, p.queries * p.heads - first)), sequence(p, b) {
    end = min(begin + split_keys, seen(p, count - 1));
    if (threadIdx.x == 0) sequence.report(p);
  }
};

}  // namespace mla

// A block for each row adds the partials of its splits in order; a thread has columns.
template <class T, class K, class P> BARACUDA_D void mla_decode_merge(const P& p) {
  using namespace mla;
  using A = acc_t<T>;
  const int rows = p.queries * p.heads;
  const i64 b = K::first(p) + blockIdx.x / static_cast<u32>(rows);
  const int row = static_cast<int>(blockIdx.x % static_cast<u32>(rows)), query = row / p.heads;
  const i64 part = static_cast<i64>(blockIdx.x) * p.splits;
  const typename K::template Sequence<P> sequence(p, b);
  const int splits = static_cast<int>(div_up(sequence.seen(p, query), i64(split_keys)));
  const A c = static_cast<A>(p.scale * 1.4426950408889634);
  const A* const stats = static_cast<const A*>(p.stats) + 2 * part;
  const int pitch = round_up(p.d_latent, 8);
  const A* const parts = static_cast<const A*>(p.parts) + part * pitch;
  const A sink = K::template sink<A>(p, row - query * p.heads);
  A row_max = sink, total = A(0);
  for (int n = 0; n < splits; ++n) row_max = math::maximum(row_max, stats[2 * n]);
  const A base = decoding::base_of(row_max);
  for (int n = 0; n < splits; ++n) {
    total = math::fma(decoding::exp2_fast((stats[2 * n] - base) * c), stats[2 * n + 1], total);
  }
  if constexpr (K::sinks) total += decoding::exp2_fast((sink - base) * c);
  T* const y =
      static_cast<T*>(p.y) + b * p.y_stride[0] + query * p.y_stride[1] + (row - query * p.heads) * p.y_stride[2];
  for (int d = threadIdx.x; d < p.d_latent; d += blockDim.x) {
    A sum = A(0);
#pragma unroll 4
    for (int n = 0; n < splits; ++n) {
      const A weight = decoding::exp2_fast((stats[2 * n] - base) * c);  // 0 where a split's maximum is -inf
      sum = math::fma(weight, parts[static_cast<i64>(n) * pitch + d], sum);
    }
    y[d] = from_acc<T>(total == A(0) ? A(0) : sum / total);
  }
  if (p.lse != nullptr && threadIdx.x == 0) {
    const A lse = math::fma(row_max, static_cast<A>(p.scale), math::log(total));
    static_cast<A*>(p.lse)[b * rows + row] = total == A(0) ? -numeric<A>::infinity() : lse;
  }
}

}  // namespace baracuda
