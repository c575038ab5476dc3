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
template <class T, int N> BARACUDA_D void keep_read(Vec<T, N>& x) {
  static_assert(sizeof(x) % 4 == 0, "whole words");
  u32* const words = reinterpret_cast<u32*>(&x);
#pragma unroll
  for (int k = 0; k < static_cast<int>(sizeof(x) / 4); ++k) asm volatile("" : "+r"(words[k]));
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

// A thread's part of a tile: elements r … r + V - 1 of W columns, of which `left` and `width` exist.
template <class K, bool WIDE> struct ScanPatch {
  using S = typename K::State;
  using Ins = typename K::Ins;
  using Outs = typename K::Outs;
  static constexpr int V = scan_vec<typename K::element>, W = scan_wide<typename K::element>;
  ScanPlaces at;
  i64 r;
  int left, width;
  ScanChunks<W, Ins> x[V];

  template <class P> BARACUDA_D K kind(const P& p, int c) const {
    ScanPlaces own;
#pragma unroll
    for (int n = 0; n < scan_operands; ++n) own[n] = at[n] + (c < width ? c : 0) * p.outer[n][p.outer_rank - 1];
    return K(p, own);
  }
  template <class P> BARACUDA_D void read(const P& p) {
    const K kind(p, at);
    const bool whole = width > 0 && left >= V && (!K::halo || (r > 0 && r + V < p.cols));
    each_of<Ins::count>([&](auto number) {
      constexpr int n = decltype(number)::value;
      using X = Pick<n, Ins>;
      const i64 step = p.step[n], by = K::halo ? kind.shift(n) : 0, beside = p.outer[n][p.outer_rank - 1];
      const X* const from = static_cast<const X*>(scan_input<n>(p)) + at[n] + scan_place(p, r + by) * step;
      const i64 down = p.reverse ? -step : step;
      if (whole) {  // all loads are issued before the first is used
#pragma unroll
        for (int k = 0; k < V; ++k) x[k].template get<n>() = across<X>(from + k * down, beside);
      } else {
#pragma unroll
        for (int k = 0; k < V; ++k) {
          const i64 q = r + k + by;
          const bool exists = width > 0 && k < left && q >= 0 && q < p.cols;
          x[k].template get<n>() = exists ? across<X>(from + k * down, beside) : Vec<X, W>{};
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
  // The leaves of column c, and what it has of each input.
  BARACUDA_D ScanChunks<V, Ins> column(int c) {
    ScanChunks<V, Ins> out;
    each_of<Ins::count>([&](auto number) {
      constexpr int n = decltype(number)::value;
#pragma unroll
      for (int k = 0; k < V; ++k) out.template get<n>()[k] = x[k].template get<n>()[c];
    });
    return out;
  }
  // s[k]: what is up to element k of a column within the chunk. ENDS: some elements do not exist.
  template <int ENDS> BARACUDA_D void scan(const K& kind, ScanChunks<V, Ins>& own, S (&s)[V]) const {
    scan_leaves(kind, own, r, ENDS ? left : V, s);
#pragma unroll
    for (int k = 1; k < V; ++k) s[k] = K::merge(s[k - 1], s[k]);
  }
  template <class P> BARACUDA_D void write(const P& p, ScanChunks<W, Outs> (&y)[V]) const {
    each_of<Outs::count>([&](auto number) {
      constexpr int n = decltype(number)::value;
      using X = Pick<n, Outs>;
      X* const array = static_cast<X*>(scan_output<n>(p));
      if (array == nullptr || width <= 0) return;
      const i64 step = p.step[scan_outs + n], beside = p.outer[scan_outs + n][p.outer_rank - 1];
      X* const to = array + at[scan_outs + n] + scan_place(p, r) * step;
      const i64 down = p.reverse ? -step : step;
#pragma unroll
      for (int k = 0; k < V; ++k) {
        if (k >= left) continue;
        if constexpr (WIDE) store_streaming(to + k * down, y[k].template get<n>());
        else store_strided(to + k * down, beside, y[k].template get<n>(), width);
      }
    });
  }

 private:
  template <class X> BARACUDA_D Vec<X, W> across(const X* from, i64 beside) const {
    if constexpr (WIDE) return load<W>(from);
    else return load_strided<X, W>(from, beside, width);
  }
};

template <class K, bool WIDE, class P> BARACUDA_D void scan_neighbours(const P& p) {
  using S = typename K::State;
  using Patch = ScanPatch<K, WIDE>;
  constexpr int V = Patch::V, W = Patch::W;
  static_assert(sizeof(S) <= max_scan_state, "the host sizes the workspace by max_scan_state");
  __shared__ __align__(16) unsigned char scratch[(scan_threads * W + warp_size + scan_most_across * W) * sizeof(S)];
  const int thread = static_cast<int>(threadIdx.x), lane = lane_id(), first = lane & (p.lanes - 1);
  const int across = scan_threads >> scan_log2(p.lanes), strip = across * W, pitch = strip + 1;
  const int place = thread & (across - 1), chunk = thread >> scan_log2(across), group = thread >> scan_log2(p.lanes);
  S* const totals = reinterpret_cast<S*>(scratch);  // of columns; column c of place k is c across + k
  S* const before = totals + scan_most_across * W;  // chunks: their totals, then what is before them within the tile;
                                                    // of chunk 0: what is before the tile
  u64 unit, piece;
  const i64 tile = divmod(static_cast<u64>(scan_block_number()), static_cast<u64>(p.units), unit);
  if (tile >= p.tiles) return;  // the grid is rounded up
  const i64 columns = p.outer_shape[p.outer_rank - 1], row = divmod(unit, static_cast<u64>(p.pieces), piece) * columns;
  const i64 column = piece * strip;  // the strip's first
  const auto begin = [&](int local) {
    const i64 c = column + (local & (across - 1)) * W + (local >> scan_log2(across));
    return c < columns ? scan_row<K>(p, row + c).begin() : K::empty();
  };

  Patch patch{};
  patch.r = (tile * p.lanes + chunk) * V;
  patch.left = static_cast<int>(min<i64>(p.cols - patch.r, V));
  patch.width = static_cast<int>(max<i64>(min<i64>(columns - column - place * W, W), 0));
  if (patch.width > 0) row_offsets(p, row + column + place * W, patch.at);
  patch.read(p);
  const auto sum = [&](auto ends) {
#pragma unroll
    for (int c = 0; c < W; ++c) {
      auto own = patch.column(c);
      S s[V];
      patch.template scan<decltype(ends)::value>(patch.kind(p, c), own, s);
      before[chunk * pitch + c * across + place] = s[V - 1];
    }
  };
  if (tile + 1 < p.tiles) sum(Number<0>{});
  else sum(Number<1>{});
  __syncthreads();

  S* memory = static_cast<S*>(p.carries);
  u32* marks = static_cast<u32*>(p.flags);
  const i64 inner = static_cast<i64>(unit);
  const ScanAhead<K> ahead(memory, marks, p.units, inner, p.segments, strip);
  const ScanLevel<S> carries(memory, marks, 0, inner, p.tiles, strip);
  memory += p.units * p.tiles * strip;
  const ScanLevel<S> sums(memory, marks, 0, inner, p.tiles, strip);
  const i64 segment = tile / scan_tiles;
  const int in_segment = static_cast<int>(tile % scan_tiles);
  const bool several = p.tiles > 1;
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
      const i64 c = column + (local & (across - 1)) * W + (local >> scan_log2(across));
      if (!last) carries.at(tile, local) = after;
      else if (c < columns) scan_row<K>(p, row + c).end(after);
    }
    __syncwarp();
    if (!last && lane == 0) pass_turn(sums.flags + tile, flag_carry);
  }

  patch.keep();
  ScanChunks<W, typename K::Outs> y[V];
#pragma unroll
  for (int c = 0; c < W; ++c) {
    const K kind = patch.kind(p, c);
    auto own = patch.column(c);
    S s[V];
    patch.template scan<0>(kind, own, s);  // what is beyond the end is not written
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
      kind.put(ScanItem<V, typename K::Outs>{made, k}, s[k], ScanItem<V, typename K::Ins>{own, k}, patch.r + k);
      each_of<K::Outs::count>([&](auto number) {
        constexpr int n = decltype(number)::value;
        y[k].template get<n>()[c] = made.template get<n>()[k];
      });
    }
  }
  patch.write(p, y);
}

}  // namespace baracuda
