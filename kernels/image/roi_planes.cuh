#pragma once
// roi_planes whole planes of an image in shared memory: a block owns one or a few of them and walks the image's regions, in
//            their order. No atomics on what is summed; geometry in ops/image/roi_planes.py.
#include <baracuda/reduce.cuh>
#include <baracuda/vector.cuh>
#include "image/roi_bins.cuh"

namespace baracuda {

// Of `roi_window` regions those that the block wants, in their order.
template <class Entry> struct RoiList {
  Entry entries[roi_window];
  i32 found[roi_threads / warp_size];

  // make(region, entry) fills the entry of a region and says whether it is wanted. All threads call it, and get how many.
  template <class F> BARACUDA_D int find(i64 start, i64 regions, F make) {
    const int thread = static_cast<int>(threadIdx.x), lane = lane_id(), warp = thread / warp_size;
    int many = 0;
#pragma unroll 1
    for (int from = 0; from < roi_window && start + from < regions; from += roi_threads) {
      Entry entry{};
      const i64 region = start + from + thread;
      const bool wanted = region < regions && make(region, entry);
      const u32 votes = __ballot_sync(full_warp, wanted);
      if (lane == 0) found[warp] = __popc(votes);
      __syncthreads();
      int before = many;
#pragma unroll
      for (int w = 0; w < roi_threads / warp_size; ++w) before += w < warp ? found[w] : 0, many += found[w];
      if (wanted) entries[before + __popc(votes & ((1u << lane) - 1u))] = entry;
      __syncthreads();
    }
    return many;
  }
};

// Where a block's planes are: `each` channels of one image, or of one bin of it.
struct RoiOwner {
  i64 image, channel;
  int bin[2], many;

  template <class P> BARACUDA_D RoiOwner(const P& p, i64 each) {
    const u32 sets = static_cast<u32>((p.channels + each - 1) / each);
    u32 rest = blockIdx.x, set, group;
    rest = divmod(rest, sets, set), rest = divmod(rest, static_cast<u32>(p.groups), group);
    image = static_cast<i64>(rest), channel = static_cast<i64>(set) * each;
    many = static_cast<int>(min(each, p.channels - channel));
    const int columns = static_cast<int>(p.bins[1]);
    bin[0] = p.groups == 1 ? 0 : static_cast<int>(group) / columns, bin[1] = static_cast<int>(group) - bin[0] * columns;
  }
  // Where they begin in an image: channels of one bin lie p.groups apart.
  template <class P> BARACUDA_D i64 begin(const P& p) const {
    return image * p.x_steps[0] + (channel * p.groups + bin[0] * p.bins[1] + bin[1]) * p.x_steps[1];
  }
};

// The row of a place: planes have less than 2^16 places, so that the quotient's error is less than half a column.
BARACUDA_D int place_row(int place, float per_column) {
  return static_cast<int>((static_cast<float>(place) + 0.5f) * per_column);
}

// What a list keeps of a region whose bins are all wanted.
struct ListedRoi {
  i32 region, start[2], size[2];

  BARACUDA_D void keep(i64 number, const PooledRoi& roi) {
    region = static_cast<i32>(number);
#pragma unroll
    for (int a = 0; a < 2; ++a) start[a] = roi.start[a], size[a] = roi.size[a];
  }
  template <class P> BARACUDA_D int low(const P& p, int a, int bin) const {
    const u32 behind = static_cast<u32>(bin * size[a]) / static_cast<u32>(p.bins[a]);
    return min(max(start[a] + static_cast<i32>(behind), 0), static_cast<i32>(p.limits[a]));
  }
  template <class P> BARACUDA_D int high(const P& p, int a, int bin) const {
    const u32 bins = static_cast<u32>(p.bins[a]);
    const u32 behind = (static_cast<u32>((bin + 1) * size[a]) + bins - 1) / bins;
    return min(max(start[a] + static_cast<i32>(behind), 0), static_cast<i32>(p.limits[a]));
  }
  // Whether a bin has a place of the image: floor(bin n / b) <= place < ceil((bin + 1) n / b), without a division.
  BARACUDA_D bool has(int a, int bins, int bin, int place) const {
    const int scaled = (place - start[a]) * bins;
    return scaled + bins > bin * size[a] && scaled < (bin + 1) * size[a];
  }
};

// What it keeps where the block has one bin: its first place, and how many places it is long along rows and columns.
struct ListedBin {
  i32 region, corner, rows, columns;

  template <class P> BARACUDA_D void keep(const P& p, i64 number, const PooledRoi& roi, const int (&bin)[2]) {
    ListedRoi all;
    all.keep(number, roi);
    const int top = all.low(p, 0, bin[0]), left = all.low(p, 1, bin[1]);
    region = all.region, corner = top * static_cast<int>(p.width) + left;
    rows = roi.image < 0 ? 0 : max(all.high(p, 0, bin[0]) - top, 0);
    columns = roi.image < 0 ? 0 : max(all.high(p, 1, bin[1]) - left, 0);
  }
};

// see(place) for the places of a bin, row by row.
template <class F> BARACUDA_D void each_place(int corner, int rows, int columns, int width, F see) {
#pragma unroll 1
  for (int row = 0; row < rows; ++row, corner += width) {
#pragma unroll 2
    for (int place = corner; place < corner + columns; ++place) see(place);
  }
}

// N planes of an image, place by place, in 16 bytes: planes past the last are the last again.
template <class T, int N, class P> BARACUDA_D void fetch_planes(const P& p, const RoiOwner& own, Vec<T, N>* planes) {
  const T* const x = static_cast<const T*>(p.x) + own.begin(p);
  const int places = static_cast<int>(p.height * p.width);
  const float per_column = 1.0f / static_cast<float>(p.width);
#pragma unroll 2
  for (int place = static_cast<int>(threadIdx.x); place < places; place += roi_threads) {
    const int row = place_row(place, per_column);
    const T* from = x + row * p.x_steps[2] + (place - row * static_cast<int>(p.width)) * p.x_steps[3];
    Vec<T, N> found;
#pragma unroll
    for (int k = 0; k < N; ++k) found[k] = from[min(k, own.many - 1) * p.groups * p.x_steps[1]];
    planes[place] = found;
  }
}

// The other way, of sums of one plane.
template <class T, class A, class P>
BARACUDA_D void hand_plane(const P& p, T* x, const A* plane, int thread, int threads) {
  const int places = static_cast<int>(p.height * p.width);
  const float per_column = 1.0f / static_cast<float>(p.width);
#pragma unroll 2
  for (int place = thread; place < places; place += threads) {
    const int row = place_row(place, per_column);
    x[row * p.x_steps[2] + (place - row * static_cast<int>(p.width)) * p.x_steps[3]] = from_acc<T>(plane[place]);
  }
}

}  // namespace baracuda
