#pragma once
// latent    what the kernels of mla_decode share: a sequence in a paged cache of latents, the rows of a block, partials.
//
// A cell is d_latent columns, which are key and value, and d_rope more that are key only. The rows of a sequence are
// its queries times the heads, the heads of a query one after another. Query i of n sees the cells before
// length - n + i + 1. Keys are cut into splits of split_keys, which begin at multiples of it, so that the order of a
// row's sums follows from the positions that it sees alone: keys that a row does not see add exact zeros.
//
// parts[(b, row, split)][d_latent rounded up to 8] is sum_j 2^((s_j - max(s)) c) c_j over the keys of a split that the
// row sees, with c = |scale| log2(e); stats[(b, row, split)] = {max(s), sum_j 2^((s_j - max(s)) c)}.
#include "attention/decoding/flash_decoding.cuh"
#include "attention/pages.cuh"

namespace baracuda {
namespace mla {

enum LatentTable { lengths = own_tables };

// The cells of sequence b.
struct Sequence {
  Pages pages;
  i64 length;
  bool bad;  // whether the given length had to be clamped

  template <class P> BARACUDA_D Sequence(const P& p, i64 b) : pages(p, b) {
    const bool given = p.kv_last_page_len == nullptr;
    const i64 last = read_table(p, given ? lengths : kv_last_page_len, given ? p.lengths : p.kv_last_page_len, b);
    const i64 n = given ? last : pages.named == 0 ? 0 : static_cast<i64>(pages.held(p, last));
    length = min(min(p.max_len, pages.count * p.page_size), max<i64>(0, n));
    bad = length != n;
  }
  // The number of cells that query i sees.
  template <class P> BARACUDA_D i64 seen(const P& p, int i) const { return max<i64>(0, length - p.queries + i + 1); }
};

// Where the cell of a position is: its page's entry as the table has it, which nothing waits for before `find`.
constexpr i64 nowhere = numeric<i64>::lowest();
template <class P> struct Cell {
  Pages::Entry entry;
  i64 cell;
  BARACUDA_D void look(const P& p, const Sequence& of, i64 position) {
    const i64 slot = slot_of<i32>(p, static_cast<u64>(position), cell);  // positions lie below 2^31
    entry = of.pages.entry(position < of.length ? slot : -1);
  }
  // The cell's offset, of either sign, or `nowhere` where the page is missing, which a checked run reports.
  BARACUDA_D i64 find(const P& p, const Sequence& of, bool wanted) const {
    const i64 page = of.pages.index(entry);
    if (wanted && of.pages.exists(page)) return page * p.cache_stride[0] + cell * p.cache_stride[1];
    if (wanted && p.status != nullptr) atomicOr(p.status, 1u);
    return nowhere;
  }
};

// The rows and keys of a block: tiles of rows lie next to each other, so that blocks that read the same keys run at
// about the same time.
template <class P> struct Share {
  i64 b, split, begin, end;  // the split's keys that some row of the block sees
  int first, count;          // rows
  const Sequence sequence;

  BARACUDA_D Share(const P& p, int rows) : Share(p, rows, blockIdx.x / static_cast<u32>(p.tiles)) {}
  // The number of keys that a row of the block sees; rows past the last see what it sees.
  BARACUDA_D i64 seen(const P& p, int row) const { return sequence.seen(p, (first + min(row, count - 1)) / p.heads); }
  // Where row r of the block begins in an operand of [batch, queries, heads, …].
  BARACUDA_D i64 at(const P& p, const i64 (&stride)[3], int r) const {
    const int query = (first + r) / p.heads;
    return b * stride[0] + query * stride[1] + (first + r - query * p.heads) * stride[2];
  }
  // The number of the partial of row r.
  BARACUDA_D i64 part(const P& p, int r) const { return (b * p.queries * p.heads + first + r) * p.splits + split; }

 private:
  BARACUDA_D Share(const P& p, int rows, u32 unit)
      : b(unit / static_cast<u32>(p.splits)), split(unit % static_cast<u32>(p.splits)), begin(split * split_keys),
        first(static_cast<int>(blockIdx.x % static_cast<u32>(p.tiles)) * rows),
        count(min(rows, p.queries * p.heads - first)), sequence(p, b) {
    end = min(begin + split_keys, seen(p, count - 1));
    if (sequence.bad && p.status != nullptr && threadIdx.x == 0) atomicOr(p.status, 1u);
  }
};

}  // namespace mla

// A block for each row adds the partials of its splits in order; a thread has columns.
template <class T, class P> BARACUDA_D void mla_decode_merge(const P& p) {
  using namespace mla;
  using A = acc_t<T>;
  const int rows = p.queries * p.heads;
  const i64 b = blockIdx.x / static_cast<u32>(rows);
  const int row = static_cast<int>(blockIdx.x % static_cast<u32>(rows)), query = row / p.heads;
  const i64 part = static_cast<i64>(blockIdx.x) * p.splits;
  const int splits = static_cast<int>(div_up(Sequence(p, b).seen(p, query), i64(split_keys)));
  const A c = static_cast<A>(p.scale * 1.4426950408889634);
  const A* const stats = static_cast<const A*>(p.stats) + 2 * part;
  const int pitch = round_up(p.d_latent, 8);
  const A* const parts = static_cast<const A*>(p.parts) + part * pitch;
  A row_max = -numeric<A>::infinity(), total = A(0);
  for (int n = 0; n < splits; ++n) row_max = math::maximum(row_max, stats[2 * n]);
  const A base = decoding::base_of(row_max);
  for (int n = 0; n < splits; ++n) {
    total = math::fma(decoding::exp2_fast((stats[2 * n] - base) * c), stats[2 * n + 1], total);
  }
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
    static_cast<A*>(p.lse)[blockIdx.x] = total == A(0) ? -numeric<A>::infinity() : lse;
  }
}

}  // namespace baracuda
