#pragma once
// block_mask    which tiles of scores a kernel visits under the block mask of a formula, and where it evaluates the
//               formula.
//
// A block mask is a grid of bytes over the scores of a head, one byte for each block of query_block x key_block scores,
// both powers of 2: 0 says that none of its pairs is seen, 1 that the formula says which are, all else that all are. P
// has the fields of schedules/attention/block_masks.py: FIELDS.
#include "attention/block_pattern.cuh"

namespace baracuda::attention {

// Whether kernels with a formula have a block mask.
template <class P, class = void> constexpr bool has_block_mask = false;
template <class P> constexpr bool has_block_mask<P, decltype(static_cast<void>(P::query_shift))> = true;

enum class TileKind { partial, whole, mixed };  // mixed: of blocks that differ, each pair is looked up

// What the block mask says of the tile that a thread works on. Without one the formula is asked for every pair.
template <class P, bool = has_block_mask<P>> struct TileMask {
  static constexpr bool may_hide = false;
  static constexpr TileKind kind = TileKind::partial;
  BARACUDA_D void enter(const P&, u32, u32) {}
  BARACUDA_D u32 byte(const P&, int, int) const { return 1; }
};
template <class P> struct TileMask<P, true> {
  static constexpr bool may_hide = true;
  TileKind kind;
  const u8* bytes;  // of the head
  BARACUDA_D void enter(const P& p, u32 b, u32 h) {
    kind = TileKind::mixed;
    bytes = static_cast<const u8*>(p.pattern) + b * p.pattern_stride[0] + h * p.pattern_stride[1];
  }
  BARACUDA_D u32 byte(const P& p, int i, int j) const {
    return bytes[(i >> p.query_shift) * p.pattern_stride[2] + (j >> p.key_shift) * p.pattern_stride[3]];
  }
};

// A head's block mask. Tiles without a block that is seen are skipped; of others, terms are told the kind.
template <class P> struct MaskedBlocks : BlockPattern<P, false> {
  using Base = BlockPattern<P, false>;
  using Base::Base;
  static constexpr bool sums_dq = true;
  template <int, int> static BARACUDA_D constexpr bool cuts() { return false; }
  template <int, bool> BARACUDA_D u32 hidden(i64, i64) const { return 0; }
  BARACUDA_D bool hides(i64, i64) const { return false; }

  // The last tile of N keys from key `from` down to `first`, both where tiles begin, of which queries [q, q + queries)
  // see anything; below `first` where there is none.
  template <int N> BARACUDA_D int visit_down(Search& search, i64 q, int queries, int from, int first) const {
    return N * search.down_from(from / N, first / N,
                                [&](int n) { return this->any(static_cast<int>(q), queries, n * N, N); });
  }
  template <class Terms> BARACUDA_D void settle(Terms& terms, i64 q, int queries, i64 k, int keys) const {
    terms.tile.kind = kind(static_cast<int>(q), queries, static_cast<int>(k), keys);
  }

 private:
  BARACUDA_D u32 byte(int row, int column) const {  // at most 2
    return min<u32>(this->blocks[row * this->p.pattern_stride[2] + column * this->p.pattern_stride[3]], 2);
  }
  BARACUDA_D TileKind kind(int q, int queries, int k, int keys) const {
    const int right = this->key_column(k + keys - 1), bottom = this->query_row(q + queries - 1);
    const u32 first = byte(this->query_row(q), this->key_column(k));
    for (int row = this->query_row(q); row <= bottom; ++row) {
      for (int column = this->key_column(k); column <= right; ++column) {
        if (byte(row, column) != first) return TileKind::mixed;
      }
    }
    return first == 1 ? TileKind::partial : first == 0 ? TileKind::mixed : TileKind::whole;
  }
};

// Blocks find their work as for dense operands, and skip by a block mask.
struct BlockMasked : Dense {};

template <class P> struct BlocksOf_<BlockMasked, P> {
  using type = MaskedBlocks<P>;
};

}  // namespace baracuda::attention
