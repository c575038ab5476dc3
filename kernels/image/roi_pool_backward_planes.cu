// roi_pool_backward_planes   roi_pool_backward of planes in shared memory: dx[n, c, y, x] = the sum of dy over the bins of
//                            image n's regions whose maximum is there. Schedule roi_planes.
//
// All warps read the bins of the next regions, a bin a lane, while the first adds those of the last. Of bins of a warp with
// one place a lane knows how many come before its own, and adds in that turn: the order of sums is that of regions and bins.
#include "image/roi_planes.cuh"

namespace baracuda {

template <class A> struct StagedBins {
  A values[roi_slots * roi_threads];
  u32 places[roi_slots * roi_threads];  // the turn in the upper bits, roi_nowhere where nothing is added
};

constexpr u32 roi_turn = 1u << 24, roi_nowhere = ~0u;

template <class A> BARACUDA_D void add_staged(A* plane, const StagedBins<A>& staged, int tasks) {
  constexpr int some = 4;
  const int lane = lane_id();
#pragma unroll 1
  for (int task = 0; task < tasks; task += some) {
    u32 places[some];
    A values[some];
#pragma unroll
    for (int s = 0; s < some; ++s) {
      places[s] = staged.places[(task + s) * warp_size + lane],
      values[s] = staged.values[(task + s) * warp_size + lane];
    }
#pragma unroll
    for (int s = 0; s < some; ++s) {
      const bool there = places[s] != roi_nowhere;
      u32 left = there ? places[s] / roi_turn : 0;
      const u32 place = places[s] % roi_turn;
      if (there && left == 0) plane[place] += values[s];
      __syncwarp();
#pragma unroll 1
      while (__any_sync(full_warp, left > 0)) {
        if (left == 1) plane[place] += values[s];
        __syncwarp();
        left -= left > 0;
      }
    }
  }
}

template <class T, class I> BARACUDA_D void roi_pool_backward_planes(const RoiPoolBackwardPlanesParams& p) {
  using A = acc_t<T>;
  constexpr int warps = roi_threads / warp_size;
  BARACUDA_DYNAMIC_SMEM(A, plane);
  __shared__ RoiList<ListedRoi> list;
  __shared__ StagedBins<A> stages[2];
  const RoiOwner own(p, 1);
  const int thread = static_cast<int>(threadIdx.x), lane = lane_id(), warp = thread / warp_size;
  const int places = static_cast<int>(p.height * p.width), width = static_cast<int>(p.width);
  const int rows = static_cast<int>(p.bins[0]), columns = static_cast<int>(p.bins[1]);
  const float per_column = 1.0f / static_cast<float>(p.width);
  // A region is so many tasks of a warp, and a stage has whole regions.
  const int parts = (rows * columns + warp_size - 1) / warp_size, each = roi_slots * warps / parts;
  const T* const dy = static_cast<const T*>(p.dy) + own.channel * p.y_steps[1];
  const I* const argmax = static_cast<const I*>(p.argmax) + own.channel * p.argmax_steps[1];
  for (int k = thread; k < places; k += roi_threads) plane[k] = A(0);
#pragma unroll 1
  for (i64 start = 0; start < p.regions; start += roi_window) {
    const int many = list.find(start, p.regions, [&](i64 region, ListedRoi& entry) {
      const PooledRoi roi(p, static_cast<const T*>(p.rois), region);
      entry.keep(region, roi);
      return roi.image == own.image;
    });
    T values[roi_slots];
    I found[roi_slots];
    // The entry and the bin of a task, or none.
    const auto bin_of = [&](int first, int slot, int& i, int& j) {
      const int task = slot * warps + warp, ahead = task / parts, bin = (task - ahead * parts) * warp_size + lane;
      i = bin / columns, j = bin - i * columns;
      return ahead < each && first + ahead < many && i < rows ? first + ahead : -1;
    };
    const auto fetch = [&](int first) {
#pragma unroll
      for (int s = 0; s < roi_slots; ++s) {
        int i, j;
        const int entry = bin_of(first, s, i, j);
        values[s] = T{}, found[s] = -1;
        if (entry < 0) continue;
        const i64 region = list.entries[entry].region;
        values[s] = dy[region * p.y_steps[0] + i * p.y_steps[2] + j * p.y_steps[3]];
        found[s] = argmax[region * p.argmax_steps[0] + i * p.argmax_steps[2] + j * p.argmax_steps[3]];
      }
    };
    const auto stage = [&](StagedBins<A>& staged, int first) {
#pragma unroll
      for (int s = 0; s < roi_slots; ++s) {
        int i, j;
        const int entry = bin_of(first, s, i, j);
        bool there = entry >= 0 && found[s] >= 0 && found[s] < places;
        const int place = there ? static_cast<int>(found[s]) : -1 - lane;
        if (there) {
          const ListedRoi& roi = list.entries[entry];
          const int row = place_row(place, per_column);
          there = roi.has(0, rows, i, row) && roi.has(1, columns, j, place - row * width);
        }
        const u32 alike = __match_any_sync(full_warp, there ? place : -1 - lane);
        const u32 turn = static_cast<u32>(__popc(alike & ((1u << lane) - 1u)));
        const int at = s * roi_threads + thread;
        staged.places[at] = there ? turn * roi_turn + static_cast<u32>(place) : roi_nowhere;
        staged.values[at] = to_acc(values[s]);
      }
    };
    if (many > 0) fetch(0), stage(stages[0], 0);
    __syncthreads();
    int turn = 0;
#pragma unroll 1
    for (int first = 0; first < many; first += each, turn ^= 1) {
      const bool more = first + each < many;
      if (more) fetch(first + each);
      if (warp == 0) add_staged(plane, stages[turn], min(each, many - first) * parts);
      if (more) stage(stages[turn ^ 1], first + each);
      __syncthreads();
    }
  }
  __syncthreads();
  hand_plane(p, static_cast<T*>(p.x) + own.begin(p), plane, thread, roi_threads);
}

}  // namespace baracuda
