#pragma once
// roi_tiles  gradients of regions, by tiles of the images: a block owns 8 x 32 places in N channels and walks the regions
//            that reach them, in their order. No atomics on what is summed.
//
// The block looks for its regions itself, 256 at a time, a thread each, and has of a few of them at once the weights of
// all bins at its rows and at its columns in shared memory, computed once for all its places and channels. A place then
// visits the bins that have it, row by row. A warp has 32 neighbours of a row.
#include <baracuda/reduce.cuh>
#include <baracuda/vector.cuh>
#include <baracuda/index.cuh>

namespace baracuda {

// What a block knows of a few regions. Bits of row_bins and column_bins: the bins whose weight there is not 0.
template <class Region> struct RoiTables {
  double row_weights[roi_batch][roi_bins][roi_rows], column_weights[roi_batch][roi_bins][roi_columns];
  Region regions[roi_batch];
  u32 row_bins[roi_batch][roi_rows], column_bins[roi_batch][roi_columns];
  i32 listed[roi_threads];
  i32 found[roi_threads / warp_size];
};

// Which tile a block has: axes 0 rows, 1 columns. Bins [first, last) read its channels.
struct RoiTile {
  i64 image, group, channel, low[2], high[2];
  int first[2], last[2];

  template <class P> BARACUDA_D RoiTile(const P& p, int channels) {
    u32 rest = blockIdx.x, digit;
#pragma unroll
    for (int a = 1; a >= 0; --a) {
      rest = divmod(rest, static_cast<u32>(p.tiles[a]), digit);
      low[a] = static_cast<i64>(digit) * (a == 0 ? roi_rows : roi_columns);
      high[a] = min(low[a] + (a == 0 ? roi_rows : roi_columns), p.places[a]) - 1;
    }
    rest = divmod(rest, static_cast<u32>(p.groups), digit), group = static_cast<i64>(digit);
    rest = divmod(rest, static_cast<u32>(p.images), digit), image = static_cast<i64>(digit);
    channel = static_cast<i64>(rest) * channels;
    const int bins[2] = {static_cast<int>(p.bins[0]), static_cast<int>(p.bins[1])};
    const int row = static_cast<int>(group) / bins[1], column = static_cast<int>(group) % bins[1];
    const bool all = p.groups == 1;
    first[0] = all ? 0 : row, last[0] = all ? bins[0] : row + 1;
    first[1] = all ? 0 : column, last[1] = all ? bins[1] : column + 1;
  }
};

// Calls use(k, element) for the first `count` of N channels; TOGETHER: they are neighbours and come 16 bytes at a time.
// All N are loaded without a branch, so that their loads are in flight at once.
template <int N, bool TOGETHER, class T, class F>
BARACUDA_D void each_channel(const T* x, i64 apart, int count, F use) {
  constexpr int wide = TOGETHER ? vec_elems<T> : 1;
  const i64 step = TOGETHER ? wide : apart;
  const auto some = [&](auto wanted) {
#pragma unroll
    for (int v = 0; v < N; v += wide, x += step) {
      if (!wanted(v)) continue;
      const auto part = to_acc(load<wide>(x));
#pragma unroll
      for (int k = 0; k < wide; ++k) use(v + k, part[k]);
    }
  };
  if (count == N) some([](int) { return true; });
  else some([&](int v) { return v < count; });
}

// add(sum, weight, region, i, j, channel, count) adds what bin (i, j) of a region hands back to the thread's place, whose
// weight there is that of its row times that of its column.
template <class Region, class T, int N, bool TOGETHER, class P, class F> BARACUDA_D void roi_tiles(const P& p, F add) {
  using A = acc_t<T>;
  __shared__ RoiTables<Region> tables;
  const T* const rois = static_cast<const T*>(p.rois);
  const RoiTile tile(p, N);
  const int thread = static_cast<int>(threadIdx.x), lane = lane_id(), warp = thread / warp_size;
  const i64 y = tile.low[0] + warp, x = tile.low[1] + lane;
  const bool there = y < p.places[0] && x < p.places[1];
  const int count = static_cast<int>(min<i64>(N, p.channels - tile.channel));
  const int columns = (tile.last[1] - tile.first[1]) * roi_columns;
  const int weights = columns + (tile.last[0] - tile.first[0]) * roi_rows;
  A sum[N];
#pragma unroll
  for (int k = 0; k < N; ++k) sum[k] = A(0);
#pragma unroll 1
  for (i64 start = 0; start < p.regions; start += roi_threads) {
    bool reached = false;
    if (start + thread < p.regions) {
      const Region roi(p, rois, start + thread);
      reached = roi.image == tile.image;
#pragma unroll
      for (int a = 0; a < 2; ++a) {
        reached = reached && roi.reaches(p, a, tile.first[a], tile.last[a], tile.low[a], tile.high[a]);
      }
    }
    const u32 votes = __ballot_sync(full_warp, reached);
    if (lane == 0) tables.found[warp] = __popc(votes);
    __syncthreads();
    int before = 0, many = 0;
#pragma unroll
    for (int w = 0; w < roi_threads / warp_size; ++w) {
      before += w < warp ? tables.found[w] : 0, many += tables.found[w];
    }
    if (reached) tables.listed[before + __popc(votes & ((1u << lane) - 1u))] = thread;
    __syncthreads();
#pragma unroll 1
    for (int at = 0; at < many; at += roi_batch) {
      const int batch = min(roi_batch, many - at);
      if (thread < batch) tables.regions[thread] = Region(p, rois, start + tables.listed[at + thread]);
      for (int k = thread; k < roi_batch * roi_rows; k += roi_threads) tables.row_bins[k / roi_rows][k % roi_rows] = 0;
      for (int k = thread; k < roi_batch * roi_columns; k += roi_threads) {
        tables.column_bins[k / roi_columns][k % roi_columns] = 0;
      }
      __syncthreads();
#pragma unroll 1
      for (int item = thread; item < batch * weights; item += roi_threads) {
        const int e = item / weights, k = item % weights;
        if (k < columns) {
          const int bin = tile.first[1] + k / roi_columns, place = k % roi_columns;
          const double w = tables.regions[e].share(p, 1, bin, tile.low[1] + place);
          tables.column_weights[e][bin][place] = w;
          if (w != 0.0) atomicOr(&tables.column_bins[e][place], 1u << bin);
        } else {
          const int bin = tile.first[0] + (k - columns) / roi_rows, place = (k - columns) % roi_rows;
          const double w = tables.regions[e].share(p, 0, bin, tile.low[0] + place);
          tables.row_weights[e][bin][place] = w;
          if (w != 0.0) atomicOr(&tables.row_bins[e][place], 1u << bin);
        }
      }
      __syncthreads();
#pragma unroll 1
      for (int e = 0; there && e < batch; ++e) {
        const i64 region = start + tables.listed[at + e];
#pragma unroll 1
        for (u32 rows = tables.row_bins[e][warp]; rows != 0; rows &= rows - 1) {
          const int i = __ffs(rows) - 1;
          const double row = tables.row_weights[e][i][warp];
#pragma unroll 1
          for (u32 own = tables.column_bins[e][lane]; own != 0; own &= own - 1) {
            const int j = __ffs(own) - 1;
            add(sum, static_cast<A>(row * tables.column_weights[e][j][lane]), region, i, j, tile.channel, count);
          }
        }
      }
      __syncthreads();
    }
  }
  if (!there) return;
  T* dx = static_cast<T*>(p.dx) + tile.image * p.dx_steps[0] + tile.channel * p.dx_steps[1] +
          tile.group * p.dx_steps[2] + y * p.dx_steps[3] + x * p.dx_steps[4];
  if constexpr (TOGETHER) {
    constexpr int wide = vec_elems<T>;
#pragma unroll
    for (int v = 0; v < N; v += wide) {
      Vec<A, wide> part;
#pragma unroll
      for (int k = 0; k < wide; ++k) part[k] = sum[v + k];
      const Vec<T, wide> made = from_acc<T>(part);
      store_whole(dx + v, *reinterpret_cast<const uint4*>(&made), v < count);
    }
  } else {
#pragma unroll
    for (int k = 0; k < N; ++k, dx += p.dx_steps[1]) {
      if (k < count) *dx = from_acc<T>(sum[k]);
    }
  }
}

// Where bin (i, j) of a region begins in an operand of the shape of dy, from `channel` on.
BARACUDA_D i64 bin_offset(const i64 (&steps)[4], i64 region, int i, int j, i64 channel) {
  return region * steps[0] + channel * steps[1] + i * steps[2] + j * steps[3];
}

}  // namespace baracuda
