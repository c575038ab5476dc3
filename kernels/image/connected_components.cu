// connected_components   labels of the connected parts of images and volumes: 1 + the lowest place of each, or compact
//
// Places are joined by a forest in which a parent is a lower place (Playne and Hawick 2018). A tile of 32 rows of 32
// places, a warp a row, joins its own in shared memory, beginning from the runs of its rows; then tiles join across their
// borders, and a place goes up to its root. Roots only sink, by atomicMin of integers, and end as the lowest place of
// their part, in whatever order they meet. Compact labels count the roots before a place.
#include <baracuda/reduce.cuh>
#include "image/volumes.cuh"

namespace baracuda {

constexpr int tile_rows = 32, tile_warps = label_threads / warp_size, chunk_words = label_chunk / warp_size;

BARACUDA_D i32 root_of(const volatile i32* parents, i32 at) {
  for (i32 up = parents[at]; up != at; up = parents[at]) at = up;
  return at;
}
// If another thread has meanwhile hung the higher root below a place, that place and the lower root are left to join.
BARACUDA_D void join(i32* parents, i32 a, i32 b) {
  while (true) {
    a = root_of(parents, a), b = root_of(parents, b);
    if (a == b) return;
    const i32 high = max(a, b), low = min(a, b), was = atomicMin(parents + high, low);
    if (was == high) return;
    a = low, b = was;
  }
}

// The tile of a block: its sample, its first place, and the place of its row `row` that this lane has.
struct LabelTile {
  i64 batch;
  VolumePlace first;

  BARACUDA_D explicit LabelTile(const ComponentsParams& p) {
    u32 tile, row, column;
    batch = static_cast<i64>(divmod(blockIdx.x, static_cast<u32>(p.tiles[0] * p.tiles[1] * p.tiles[2]), tile));
    const u32 line = divmod(tile, static_cast<u32>(p.tiles[2]), column);
    first.z = static_cast<i32>(divmod(line, static_cast<u32>(p.tiles[1]), row)) * (tile_rows / p.tile_height);
    first.y = static_cast<i32>(row) * p.tile_height, first.x = static_cast<i32>(column) * warp_size;
  }
  BARACUDA_D VolumePlace place(const ComponentsParams& p, int row, int lane) const {
    return {first.z + row / p.tile_height, first.y + row % p.tile_height, first.x + lane};
  }
};

// meet(dz, dy, dx) for neighbours on the lines before a place. left, right: whether its neighbours along the row are there
// and in its tile; what they and the runs of other lines join anyway is left out.
template <class Has, class Meet>
BARACUDA_D void each_before(const ComponentsParams& p, bool left, bool right, Has has, Meet meet) {
#pragma unroll 1
  for (int dz = p.extents[0] > 1 ? -1 : 0; dz <= 0; ++dz) {
#pragma unroll 1
    for (int dy = -1; dy <= (dz < 0 ? 1 : -1); ++dy) {
      const int hops = (dz != 0) + (dy != 0);
      if (hops > p.hops) continue;
      if (has(dz, dy, 0)) {
        if (!(left && has(dz, dy, -1))) meet(dz, dy, 0);
      } else if (hops < p.hops) {
        if (!left && has(dz, dy, -1)) meet(dz, dy, -1);
        if (!right && has(dz, dy, 1)) meet(dz, dy, 1);
      }
    }
  }
}

template <class T> BARACUDA_D void components_tile(const ComponentsParams& p) {
  __shared__ u32 rows[tile_rows];
  __shared__ i32 parents[tile_rows * warp_size];
  const LabelTile tile(p);
  const int lane = lane_id(), warp = static_cast<int>(threadIdx.x) / warp_size;
  const T* const x = static_cast<const T*>(p.x) + sample_offset<0>(p, tile.batch);
#pragma unroll
  for (int row = warp; row < tile_rows; row += tile_warps) {
    const VolumePlace place = tile.place(p, row, lane);
    const u32 votes = __ballot_sync(full_warp, place.within(p) && is_there(x[place.step<0>(p)]));
    const u32 gaps = ~votes & ((1u << lane) - 1u);
    if (lane == 0) rows[row] = votes;
    parents[row * warp_size + lane] = row * warp_size + warp_size - __clz(static_cast<int>(gaps));
  }
  __syncthreads();
  const auto there = [&](int row, int column) { return (rows[row] >> column & 1u) != 0; };
#pragma unroll 1
  for (int row = warp; row < tile_rows; row += tile_warps) {
    if (!there(row, lane)) continue;
    const int height = p.tile_height, y = row % height, own = row * warp_size + lane;
    const auto has = [&](int dz, int dy, int dx) {
      const int other = row + dz * height + dy, column = lane + dx;
      return other >= 0 && y + dy >= 0 && y + dy < height && column >= 0 && column < warp_size && there(other, column);
    };
    each_before(p, has(0, 0, -1), has(0, 0, 1), has,
                [&](int dz, int dy, int dx) { join(parents, own, own + (dz * height + dy) * warp_size + dx); });
  }
  __syncthreads();
  i32* const to = static_cast<i32*>(p.parents) + tile.batch * p.places;
#pragma unroll 1
  for (int row = warp; row < tile_rows; row += tile_warps) {
    const VolumePlace place = tile.place(p, row, lane);
    if (!place.within(p)) continue;
    const i32 root = there(row, lane) ? root_of(parents, row * warp_size + lane) : -1;
    to[place.number(p)] = root < 0 ? -1 : tile.place(p, root / warp_size, root % warp_size).number(p);
  }
}

// A place that is not there has the parent -1.
BARACUDA_D void components_merge(const ComponentsParams& p) {
  const LabelTile tile(p);
  const int lane = lane_id(), warp = static_cast<int>(threadIdx.x) / warp_size, height = p.tile_height;
  i32* const parents = static_cast<i32*>(p.parents) + tile.batch * p.places;
#pragma unroll 1
  for (int row = warp; row < tile_rows; row += tile_warps) {
    const int y = row % height;
    const bool flat = p.extents[0] == 1;
    const bool behind = p.hops > 1 && (lane == warp_size - 1 || (!flat && y == height - 1));
    if (lane > 0 && y > 0 && (flat || row >= height) && !behind) continue;
    const VolumePlace place = tile.place(p, row, lane);
    const auto has = [&](int dz, int dy, int dx) {
      const VolumePlace other{place.z + dz, place.y + dy, place.x + dx};
      return other.within(p) && const_cast<const volatile i32*>(parents)[other.number(p)] >= 0;
    };
    if (!has(0, 0, 0)) continue;
    const i32 own = place.number(p);
    const auto meet = [&](int dz, int dy, int dx) {
      const bool inside =
          row + dz * height >= 0 && y + dy >= 0 && y + dy < height && lane + dx >= 0 && lane + dx < warp_size;
      if (!inside) join(parents, own, VolumePlace{place.z + dz, place.y + dy, place.x + dx}.number(p));
    };
    const bool left = has(0, 0, -1);
    if (lane == 0 && left) meet(0, 0, -1);
    each_before(p, lane > 0 && left, lane < warp_size - 1 && has(0, 0, 1), has, meet);
  }
}

// The chunk of a block: its sample, and its place among the chunks of all samples.
BARACUDA_D i64 chunk_of(const ComponentsParams& p, i32& begin) {
  u32 chunk;
  const i64 batch = static_cast<i64>(divmod(blockIdx.x, static_cast<u32>(p.chunks), chunk));
  begin = static_cast<i32>(chunk) * label_chunk;
  return batch;
}

// Of each 32 places which are roots, and how many are before them in the chunk.
BARACUDA_D void components_roots(const ComponentsParams& p) {
  __shared__ u32 words[chunk_words];
  i32 begin;
  const i64 batch = chunk_of(p, begin);
  const i32* const parents = static_cast<const i32*>(p.parents) + batch * p.places;
#pragma unroll
  for (int k = static_cast<int>(threadIdx.x); k < label_chunk; k += label_threads) {
    const u32 votes = __ballot_sync(full_warp, k < p.places - begin && parents[begin + k] == begin + k);
    if (lane_id() == 0) words[k / warp_size] = votes;
  }
  __syncthreads();
  if (threadIdx.x >= chunk_words) return;
  const u32 word = words[threadIdx.x];
  i32 sum = __popc(word);
#pragma unroll
  for (int step = 1; step < warp_size; step *= 2) {
    const i32 before = __shfl_up_sync(full_warp, sum, step);
    if (lane_id() >= step) sum += before;
  }
  const i64 at = static_cast<i64>(blockIdx.x) * chunk_words + threadIdx.x;
  static_cast<u32*>(p.roots)[at] = word, static_cast<i32*>(p.before)[at] = sum - __popc(word);
  if (threadIdx.x == chunk_words - 1) static_cast<i32*>(p.totals)[blockIdx.x] = sum;
}

// Roots in the chunks before each, in place of those in it.
BARACUDA_D void components_scan(const ComponentsParams& p) {
  __shared__ i32 scratch[scan_threads / warp_size];
  __shared__ i32 all;
  i32* const totals = static_cast<i32*>(p.totals) + static_cast<i64>(blockIdx.x) * p.chunks;
  i32 count = 0;
#pragma unroll 1
  for (i32 first = 0; first < p.chunks; first += scan_threads) {
    const i32 at = first + static_cast<i32>(threadIdx.x), own = at < p.chunks ? totals[at] : 0;
    const i32 sum = block_scan<Sum, scan_threads>(own, scratch);
    if (at < p.chunks) totals[at] = count + sum - own;
    if (threadIdx.x == scan_threads - 1) all = sum;
    __syncthreads();
    count += all;
    __syncthreads();
  }
  if (p.counts != nullptr && threadIdx.x == 0) {
    static_cast<i32*>(p.counts)[sample_offset<2>(p, blockIdx.x)] = count;
  }
}

template <class I> BARACUDA_D void components_label(const ComponentsParams& p) {
  i32 begin;
  const i64 batch = chunk_of(p, begin), words = batch * p.chunks * chunk_words;
  const i32* const parents = static_cast<const i32*>(p.parents) + batch * p.places;
  I* const labels = static_cast<I*>(p.labels) + sample_offset<1>(p, batch);
#pragma unroll 1
  for (int k = static_cast<int>(threadIdx.x); k < label_chunk && k < p.places - begin; k += label_threads) {
    i32 label = parents[begin + k];
    if (label >= 0) label = root_of(parents, label);
    if (label >= 0 && p.compact) {
      const i64 at = words + label / warp_size;
      const u32 below = static_cast<const u32*>(p.roots)[at] & ((1u << label % warp_size) - 1u);
      label = static_cast<const i32*>(p.totals)[batch * p.chunks + label / label_chunk] +
              static_cast<const i32*>(p.before)[at] + __popc(below);
    }
    labels[VolumePlace(p, begin + k).step<1>(p)] = static_cast<I>(label + 1);
  }
}

}  // namespace baracuda
