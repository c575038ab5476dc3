#pragma once
// scan_neighbours  rows whose neighbours lie side by side; see baracuda/scan_axis.cuh.
//
// A block has one tile of a strip of neighbouring rows, here called columns: a thread a chunk of W of them, V elements
// down by W across, which it reads W at a time and keeps as they came. Chunks' totals go through shared memory to warps
// that scan them along the tile. A strip of several tiles is scanned in one pass: tiles of a segment leave their totals
// and, when they know it, what is before the tile after them; whoever comes later merges totals in the order of tiles,
// from wherever that is known, so that bits do not depend on who was first. Before the first tile of a segment stands
// what baracuda/scan_ahead.cuh finds.
#include <baracuda/scan_ahead.cuh>
#include <baracuda/scan_axis.cuh>

namespace baracuda {

template <class T> constexpr int scan_wide = min(vec_elems<T>, 4);  // columns of a thread
constexpr int scan_most_across = 16;                                // threads across: rows have at least 16 chunks

// Keeps what was read as it was read: else the compiler keeps what it made of it, in more registers. No instruction.
// Beside wider operands a few bytes may be less than a word.
template <class T, int N> BARACUDA_D void keep_read(Vec<T, N>& x) {
  if constexpr (sizeof(x) % 4 == 0) {
    u32* const words = reinterpret_cast<u32*>(&x);
#pragma unroll
    for (int k = 0; k < static_cast<int>(sizeof(x) / 4); ++k) asm volatile("" : "+r"(words[k]));
  } else if constexpr (sizeof(x) == 2) {
    asm volatile("" : "+h"(*reinterpret_cast<u16*>(&x)));
  }
}

// As `scan_lanes`, of several rows at once.
template <class K, int N, class S> BARACUDA_D void scan_lanes_of(S (&x)[N], int lanes) {
  const int lane = lane_id(), first = lane & (lanes - 1);
#pragma unroll 1
  for (int step = 1; step < lanes; step *= 2) {
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const S before = shuffle(x[n], (lane - step) & (warp_size - 1));
      if (first >= step) x[n] = K::merge(before, x[n]);
    }
  }
}

// A block's tile, in shared memory, so that threads hold none of it while they wait. A strip's columns are counted by
// place, those of a thread across: column c of place k is column c across + k of what the block holds.
struct ScanTile {
  i64 tile, unit, columns;  // columns: of the array, from the strip's first on
  ScanPlaces at;            // of the strip's first column

  template <class P> BARACUDA_D void find(const P& p, int strip) {
    u64 rest, piece;
    tile = static_cast<i64>(divmod(static_cast<u64>(scan_block_number()), static_cast<u64>(p.units), rest));
    const i64 all = p.outer_shape[p.outer_rank - 1], outer = divmod(rest, static_cast<u64>(p.pieces), piece);
    const i64 column = static_cast<i64>(piece) * strip;
    unit = static_cast<i64>(rest), columns = all - column;
    row_offsets(p, outer * all + column, at);
  }
  // The kind of column `column` of the strip.
  template <class K, class P> BARACUDA_D K kind(const P& p, int column) const {
    ScanPlaces own;
#pragma unroll
    for (int n = 0; n < scan_operands; ++n) own[n] = at[n] + column * p.outer[n][p.outer_rank - 1];
    return K(p, own);
  }
};

// A thread's part of a tile: elements r … r + V - 1 of W columns, of which `left` and `width` exist.
template <class K, bool WIDE> struct ScanPatch {
  using S = typename K::State;
  using Ins = typename K::Ins;
  using Outs = typename K::Outs;
  static constexpr int V = scan_vec<typename K::element>, W = scan_wide<typename K::element>;
  const ScanTile& tile;
  int column, chunk;
  ScanChunks<W, Ins> x[V];

  template <class P> BARACUDA_D i64 r(const P& p) const { return (tile.tile * p.lanes + chunk) * V; }
  BARACUDA_D int width() const { return static_cast<int>(max<i64>(min<i64>(tile.columns - column, W), 0)); }
  template <class P> BARACUDA_D int left(const P& p) const { return static_cast<int>(min<i64>(p.cols - r(p), V)); }
  template <class P> BARACUDA_D K kind(const P& p, int c) const {
    return tile.template kind<K>(p, column + (c < width() ? c : 0));
  }
  // Operand n at element q of the scan.
  template <class X, class P> BARACUDA_D X* place(const P& p, X* array, int n, i64 q) const {
    return array + tile.at[n] + column * p.outer[n][p.outer_rank - 1] + scan_place(p, q) * p.step[n];
  }

  template <class P> BARACUDA_D void read(const P& p) {
    const K own = kind(p, 0);
    const i64 first = r(p);
    const int count = left(p), across = width();
    const bool whole = across > 0 && count >= V && (!K::halo || (first > 0 && first + V < p.cols));
    each_of<Ins::count>([&](auto number) {
      constexpr int n = decltype(number)::value;
      using X = Pick<n, Ins>;
      const i64 by = K::halo ? own.shift(n) : 0, beside = p.outer[n][p.outer_rank - 1];
      const X* const from = place(p, static_cast<const X*>(scan_input<n>(p)), n, first + by);
      const i64 down = p.reverse ? -p.step[n] : p.step[n];
      if (whole) {  // all loads are issued before the first is used
#pragma unroll
        for (int k = 0; k < V; ++k) x[k].template get<n>() = beside_each_other<X>(from + k * down, beside, across);
      } else {
#pragma unroll
        for (int k = 0; k < V; ++k) {
          const i64 q = first + k + by;
          const bool exists = across > 0 && k < count && q >= 0 && q < p.cols;
          x[k].template get<n>() = exists ? beside_each_other<X>(from + k * down, beside, across) : Vec<X, W>{};
        }
      }
    });
    keep();
  }
  BARACUDA_D void keep() {
#pragma unroll
    for (int k = 0; k < V; ++k) {
      each_of<Ins::count>([&](auto number) { keep_read(x[k].template get<decltype(number)::value>()); });
    }
  }
  // What column c has of each input.
  BARACUDA_D ScanChunks<V, Ins> own(int c) {
    ScanChunks<V, Ins> out;
    each_of<Ins::count>([&](auto number) {
      constexpr int n = decltype(number)::value;
#pragma unroll
      for (int k = 0; k < V; ++k) out.template get<n>()[k] = x[k].template get<n>()[c];
    });
    return out;
  }
  template <class P> BARACUDA_D void write(const P& p, ScanChunks<W, Outs> (&y)[V]) const {
    const int count = left(p), across = width();
    if (across == 0) return;
    each_of<Outs::count>([&](auto number) {
      constexpr int n = decltype(number)::value;
      using X = Pick<n, Outs>;
      X* const array = static_cast<X*>(scan_output<n>(p));
      if (array == nullptr) return;
      X* const to = place(p, array, scan_outs + n, r(p));
      const i64 down = p.reverse ? -p.step[scan_outs + n] : p.step[scan_outs + n];
#pragma unroll
      for (int k = 0; k < V; ++k) {
        if (k >= count) continue;
        if constexpr (WIDE) store_streaming(to + k * down, y[k].template get<n>());
        else store_strided(to + k * down, p.outer[scan_outs + n][p.outer_rank - 1], y[k].template get<n>(), across);
      }
    });
  }

 private:
  template <class X> static BARACUDA_D Vec<X, W> beside_each_other(const X* from, i64 step, int count) {
    if constexpr (WIDE) return load<W>(from);
    else return load_strided<X, W>(from, step, count);
  }
};

// s[k], leaves of a column, become what is up to each within the chunk.
template <class K, class S, int V> BARACUDA_D void scan_down(S (&s)[V]) {
#pragma unroll
  for (int k = 1; k < V; ++k) s[k] = K::merge(s[k - 1], s[k]);
}

template <class K, bool WIDE, class P> BARACUDA_D void scan_neighbours(const P& p) {
  using S = typename K::State;
  using Patch = ScanPatch<K, WIDE>;
  constexpr int V = Patch::V, W = Patch::W;
  static_assert(sizeof(S) <= max_scan_state, "the host sizes the workspace by max_scan_state");
  __shared__ __align__(16) unsigned char scratch[(scan_threads * W + warp_size + scan_most_across * W) * sizeof(S)];
  __shared__ ScanTile here;
  const int thread = static_cast<int>(threadIdx.x), lane = lane_id(), first = lane & (p.lanes - 1);
  const int across = scan_threads >> scan_log2(p.lanes), strip = across * W, pitch = strip + 1;
  const int place = thread & (across - 1), chunk = thread >> scan_log2(across), group = thread >> scan_log2(p.lanes);
  S* const totals = reinterpret_cast<S*>(scratch);  // of columns
  S* const before = totals + scan_most_across * W;  // chunks: their totals, then what is before them within the tile;
                                                    // of chunk 0: what is before the tile
  if (thread == 0) here.find(p, strip);
  __syncthreads();
  if (here.tile >= p.tiles) return;  // the grid is rounded up

  Patch patch{here, place * W, chunk};
  patch.read(p);
  const auto sum = [&](int count) {
#pragma unroll
    for (int c = 0; c < W; ++c) {
      auto own = patch.own(c);
      S s[V];
      scan_leaves(patch.kind(p, c), own, patch.r(p), count, s);
      scan_down<K>(s);
      before[chunk * pitch + c * across + place] = s[V - 1];
    }
  };
  if (here.tile + 1 < p.tiles) sum(V);
  else sum(patch.left(p));
  __syncthreads();

  const ScanAhead<K> ahead(p, here.unit, strip);
  const ScanLevel<S> sums(p, level_tiles, here.unit, p.tiles, strip);  // carries share their flags
  const ScanLevel<S> carries(p, level_carries, here.unit, p.tiles, strip);
  const i64 tile = here.tile, segment = tile / scan_tiles;
  const int in_segment = static_cast<int>(tile % scan_tiles);
  const bool several = p.tiles > 1;
  const auto column_of = [&](int local) { return (local & (across - 1)) * W + (local >> scan_log2(across)); };
  const auto begin = [&](int local) {
    const int column = column_of(local);
    return column < here.columns ? here.template kind<K>(p, column).begin() : K::empty();
  };
  {
    S up[W];
#pragma unroll
    for (int c = 0; c < W; ++c) up[c] = before[first * pitch + c * across + group];
    scan_lanes_of<K>(up, p.lanes);
#pragma unroll
    for (int c = 0; c < W; ++c) {
      const S left = shuffle(up[c], (lane - 1) & (warp_size - 1));
      if (first > 0) before[first * pitch + c * across + group] = left;
      if (first != p.lanes - 1) continue;
      totals[c * across + group] = up[c];
      if (several) sums.at(tile, c * across + group) = up[c];
    }
  }
  __syncthreads();
  if (several && thread == 0) pass_turn(sums.flags + tile, flag_total);
  if (in_segment == 0) {
    if (segment > 0) ahead.await(segment);
#pragma unroll 1
    for (int c = 0; c < W; ++c) {
      const int local = c * across + group;
      S carry = begin(local);
      if (segment > 0) carry = ahead.before(segment, local, carry);
      if (first == 0) before[local] = carry;
    }
  }
  if (several && thread < warp_size) {
    if (in_segment == scan_tiles - 1 && tile + 1 < p.tiles) {  // the segment's total
      await_flags(sums.flags + tile - in_segment, in_segment);
#pragma unroll 1
      for (int local = lane; local < strip; local += warp_size) {
        S total = K::empty();
#pragma unroll 4
        for (int k = in_segment; k > 0; --k) total = K::merge(total, sums.at(tile - k, local));
        ahead.segments.at(segment, local) = K::merge(total, totals[local]);
      }
      ahead.leave(segment, begin);
    }
    if (in_segment > 0) {
      const int nearer = await_carry(sums.flags + tile, in_segment);
#pragma unroll 1
      for (int local = lane; local < strip; local += warp_size) {
        S carry = carries.at(tile - 1 - nearer, local);
#pragma unroll 4
        for (int k = nearer; k > 0; --k) carry = K::merge(carry, sums.at(tile - k, local));
        before[local] = carry;
      }
    }
  }
  __syncthreads();
  if (thread < warp_size) {
    const bool last = tile + 1 == p.tiles;
#pragma unroll 1
    for (int local = lane; local < strip; local += warp_size) {
      const S after = K::merge(before[local], totals[local]);
      if (!last) carries.at(tile, local) = after;
      else if (column_of(local) < here.columns) here.template kind<K>(p, column_of(local)).end(after);
    }
    __syncwarp();
    if (!last && lane == 0) pass_turn(sums.flags + tile, flag_carry);
  }

  patch.keep();
  ScanChunks<W, typename K::Outs> y[V];
#pragma unroll
  for (int c = 0; c < W; ++c) {
    const K kind = patch.kind(p, c);
    auto own = patch.own(c);
    S s[V];
    scan_leaves(kind, own, patch.r(p), V, s);  // what is beyond the end is not written
    scan_down<K>(s);
    S carry = before[c * across + place];
    if (chunk > 0) carry = K::merge(carry, before[chunk * pitch + c * across + place]);
    if (p.exclusive) {
#pragma unroll
      for (int k = V - 1; k > 0; --k) s[k] = K::merge(carry, s[k - 1]);
      s[0] = carry;
    } else {
#pragma unroll
      for (int k = 0; k < V; ++k) s[k] = K::merge(carry, s[k]);
    }
    ScanChunks<V, typename K::Outs> made;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      kind.put(ScanItem<V, typename K::Outs>{made, k}, s[k], ScanItem<V, typename K::Ins>{own, k}, patch.r(p) + k);
      each_of<K::Outs::count>([&](auto number) {
        constexpr int n = decltype(number)::value;
        y[k].template get<n>()[c] = made.template get<n>()[k];
      });
    }
  }
  patch.write(p, y);
}

}  // namespace baracuda
