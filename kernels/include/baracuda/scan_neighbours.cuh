#pragma once
// scan_neighbours  rows whose neighbours lie side by side, 16 a block, through shared memory; see baracuda/scan_axis.cuh.
//
// A tile of every input comes to shared memory along the kept axis and is read along the scanned one; results go back the
// same way. Element q of a row's tile lies in line (q % V) * span + q / V, so that the lanes of a group, which hold V
// elements each, read neighbouring lines; an odd pitch spreads those over the banks. With a halo a tile has an element
// more on either side, which fit into one more line of each of several V.
#include <baracuda/scan_axis.cuh>

namespace baracuda {

constexpr int scan_columns = 16;  // rows of a block

template <class K> struct Turned {
  static constexpr int V = scan_vec<typename K::element>, pitch = scan_columns + 1;
  static constexpr int halo = K::halo ? 1 : 0, span = warp_size + (V == 1 ? 1 + halo : 1);
  static constexpr int elements = V * span * pitch;

  template <class X> static constexpr int bytes = round_up(elements * static_cast<int>(sizeof(X)), 16);
  // Where input N begins; N = count: what all of them take.
  template <int N> static constexpr int input() {
    if constexpr (N == 0) return 0;
    else return input<N - 1>() + bytes<Pick<N - 1, typename K::Ins>>;
  }
  // Output N takes the place of input N where they are of one size, so that a column's are its group's own; else it has its own.
  template <int N> static constexpr bool in_place() {
    if constexpr (N >= K::Ins::count) return false;
    else return sizeof(Pick<N, typename K::Outs>) == sizeof(Pick<N, typename K::Ins>);
  }
  template <int N> static constexpr int own() {  // bytes of the outputs before N that have their own
    if constexpr (N == 0) return 0;
    else return own<N - 1>() + (in_place<N - 1>() ? 0 : bytes<Pick<N - 1, typename K::Outs>>);
  }
  template <int N> static constexpr int output() {
    if constexpr (in_place<N>()) return input<N>();
    else return input<K::Ins::count>() + own<N>();
  }
  static constexpr int size(bool totals) {
    return totals ? input<K::leaves>() : input<K::Ins::count>() + own<K::Outs::count>();
  }

  static BARACUDA_D int at(int q, int column) { return (q % V * span + q / V) * pitch + column; }
};

template <class K, bool TOTALS, class P> BARACUDA_D void scan_neighbours(const P& p) {
  using S = typename K::State;
  using Ins = typename K::Ins;
  using Outs = typename K::Outs;
  using Tile = Turned<K>;
  constexpr int V = Tile::V, halo = Tile::halo, inputs = TOTALS ? K::leaves : Ins::count;
  constexpr int rounds = scan_columns / (scan_threads / warp_size), strips = scan_threads / scan_columns;
  __shared__ __align__(16) unsigned char tile_bytes[Tile::size(TOTALS)];
  const int thread = static_cast<int>(threadIdx.x), first = thread & (p.lanes - 1), shift = scan_log2(p.lanes);
  const int group = thread >> shift, groups = scan_threads >> shift, height = p.lanes * V;
  const i64 columns = p.outer_shape[p.outer_rank - 1];
  u64 segment, piece;
  const u64 tiles = divmod(static_cast<u64>(scan_block_number()), static_cast<u64>(p.segments), segment);
  const i64 outer = divmod(tiles, static_cast<u64>(p.pieces), piece), column = piece * scan_columns;
  if (outer * columns >= p.rows) return;  // the grid is rounded up
  const int width = static_cast<int>(min<i64>(columns - column, scan_columns));
  const bool last = static_cast<i64>(segment) == p.segments - 1;
  const i64 row = outer * columns + column;  // of column 0
  ScanPlaces at;
  row_offsets(p, row, at);
  S* const carries = static_cast<S*>(p.carries) + row * p.segments + segment;
  S carry[rounds];
#pragma unroll
  for (int k = 0; k < rounds; ++k) {
    const int c = k * groups + group;
    carry[k] = K::empty();
    if (!TOTALS && c < width) carry[k] = p.segments > 1 ? carries[c * p.segments] : scan_row<K>(p, row + c).begin();
  }
  const int across = thread % scan_columns, down = thread / scan_columns;
#pragma unroll 1
  for (int t = 0; t < scan_tiles; ++t) {
    const i64 start = (static_cast<i64>(segment) * scan_tiles + t) * height;
    if (start >= p.cols) break;
    const int count = static_cast<int>(min<i64>(p.cols - start, height));
    each_of<inputs>([&](auto number) {
      constexpr int n = decltype(number)::value;
      using X = Pick<n, Ins>;
      X* const tile = reinterpret_cast<X*>(tile_bytes + Tile::template input<n>());
      const X* const x = static_cast<const X*>(scan_input<n>(p)) + at[n] + across * p.outer[n][p.outer_rank - 1];
#pragma unroll 4
      for (int q = down; q < count + 2 * halo; q += strips) {
        const i64 r = start + q - halo;
        if (across < width && r >= 0 && r < p.cols) tile[Tile::at(q, across)] = x[scan_place(p, r) * p.step[n]];
      }
    });
    __syncthreads();
#pragma unroll
    for (int k = 0; k < rounds; ++k) {
      const int c = k * groups + group;
      const int left = c < width ? count - first * V : 0;
      const i64 r = start + first * V;
      ScanPlaces own;
#pragma unroll
      for (int n = 0; n < scan_operands; ++n) own[n] = at[n] + (c < width ? c : 0) * p.outer[n][p.outer_rank - 1];
      const K kind(p, own);
      ScanChunks<V, Ins> x;
      each_of<inputs>([&](auto number) {
        constexpr int n = decltype(number)::value;
        using X = Pick<n, Ins>;
        const X* const tile = reinterpret_cast<const X*>(tile_bytes + Tile::template input<n>());
        const int by = K::halo ? kind.shift(n) : 0;
#pragma unroll
        for (int v = 0; v < V; ++v) {
          const bool exists = v < left && r + v + by >= 0 && r + v + by < p.cols;
          x.template get<n>()[v] = exists ? tile[Tile::at(first * V + v + by + halo, c)] : X{};
        }
      });
      __syncwarp();  // results may take the place of what the group read
      S s[V];
      scan_leaves(kind, x, r, left, s);
      const S up = scan_chunk<K>(s, p.lanes);
      if constexpr (!TOTALS) {
        scan_tile<K>(s, up, carry[k], p.lanes, p.exclusive);
        ScanChunks<V, Outs> y;
#pragma unroll
        for (int v = 0; v < V; ++v) {
          kind.put(ScanItem<V, Outs>{y, v}, s[v], ScanItem<V, Ins>{x, v}, r + v);
          each_of<Outs::count>([&](auto number) {
            constexpr int n = decltype(number)::value;
            using X = Pick<n, Outs>;
            X* const tile = reinterpret_cast<X*>(tile_bytes + Tile::template output<n>());
            if (v < left) tile[Tile::at(first * V + v, c)] = y.template get<n>()[v];
          });
        }
      }
      carry[k] = K::merge(carry[k], tile_total(up, p.lanes));
    }
    __syncthreads();
    if constexpr (!TOTALS) {
      each_of<Outs::count>([&](auto number) {
        constexpr int n = decltype(number)::value;
        using X = Pick<n, Outs>;
        const X* const tile = reinterpret_cast<const X*>(tile_bytes + Tile::template output<n>());
        X* const y =
            scan_own<X>(scan_output<n>(p), at[scan_outs + n] + across * p.outer[scan_outs + n][p.outer_rank - 1]);
        if (y == nullptr || across >= width) return;
#pragma unroll 4
        for (int q = down; q < count; q += strips) {
          y[scan_place(p, start + q) * p.step[scan_outs + n]] = tile[Tile::at(q, across)];
        }
      });
      __syncthreads();
    }
  }
#pragma unroll
  for (int k = 0; k < rounds; ++k) {
    const int c = k * groups + group;
    if (c >= width || first != 0) continue;
    if constexpr (TOTALS) carries[c * p.segments] = carry[k];
    else if (last) scan_row<K>(p, row + c).end(carry[k]);
  }
}

}  // namespace baracuda
