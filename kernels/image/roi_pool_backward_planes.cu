// roi_pool_backward_planes   roi_pool_backward of planes in shared memory: dx[n, c, y, x] = the sum of dy over the bins of
//                            image n's regions whose maximum is there. Schedule roi_planes.
//
// All bins of the listed regions are one sequence, a thread has the next of it. A warp owns every eighth strip of 32 places:
// bins are dealt to the queues of their owners, each in the order of the sequence, by counts of ballots, and every warp
// adds its own while the next bins are on their way. Of bins of one place in a warp the first lane adds all, in turn: the
// order of sums is that of regions and bins.
#include "image/roi_planes.cuh"

namespace baracuda {

constexpr int roi_owners = roi_threads / warp_size, roi_stage = roi_slots * roi_threads;
constexpr u32 roi_nowhere = ~0u;
static_assert(roi_owners == 8 && roi_slots * roi_owners == warp_size,
              "a count for each thread: owner by group of bins");

template <class A> struct BinQueues {
  A values[roi_stage];
  u16 places[roi_stage];
  i32 counts[roi_threads];
  i32 begin[roi_threads + 1];  // of owner o's bins from group g on at 32 o + g
  i32 scratch[roi_owners];
};

// Deals bins to queues, which are read until the second barrier: those of slot s are group 8 s + warp. places: roi_nowhere where nothing is added.
template <class A> BARACUDA_D void deal_bins(BinQueues<A>& queues, u32 (&places)[roi_slots], A (&values)[roi_slots]) {
  const int thread = static_cast<int>(threadIdx.x), lane = lane_id(), warp = thread / warp_size;
  i32 before[roi_slots];
#pragma unroll
  for (int s = 0; s < roi_slots; ++s) {
    const u32 strip = places[s] / warp_size, all = __ballot_sync(full_warp, places[s] != roi_nowhere);
    u32 votes[3];
#pragma unroll
    for (int b = 0; b < 3; ++b) votes[b] = __ballot_sync(full_warp, (strip >> b & 1u) != 0);
    const auto of_owner = [&](u32 owner) {
      u32 mask = all;
#pragma unroll
      for (int b = 0; b < 3; ++b) mask &= (owner >> b & 1u) != 0 ? votes[b] : ~votes[b];
      return mask;
    };
    before[s] = __popc(of_owner(strip) & ((1u << lane) - 1u));
    if (lane < roi_owners)
      queues.counts[lane * warp_size + s * roi_owners + warp] = __popc(of_owner(static_cast<u32>(lane)));
  }
  __syncthreads();
  const i32 own = queues.counts[thread], sum = block_scan<Sum, roi_threads>(own, queues.scratch);
  queues.begin[thread] = sum - own;
  if (thread == roi_threads - 1) queues.begin[roi_threads] = sum;
  __syncthreads();
#pragma unroll
  for (int s = 0; s < roi_slots; ++s) {
    if (places[s] == roi_nowhere) continue;
    const u32 owner = places[s] / warp_size % roi_owners;
    const int at = queues.begin[owner * warp_size + s * roi_owners + warp] + before[s];
    queues.places[at] = static_cast<u16>(places[s]), queues.values[at] = values[s];
  }
  __syncthreads();
}

// Adds the bins of the warp's queue.
template <class A> BARACUDA_D void add_bins(A* plane, const BinQueues<A>& queues) {
  const int lane = lane_id(), warp = static_cast<int>(threadIdx.x) / warp_size;
  const int end = queues.begin[(warp + 1) * warp_size];
#pragma unroll 1
  for (int at = queues.begin[warp * warp_size] + lane; __any_sync(full_warp, at < end); at += warp_size) {
    const bool there = at < end;
    const int place = there ? queues.places[at] : -1 - lane;
    const A value = there ? queues.values[at] : A(0);
    const u32 alike = __match_any_sync(full_warp, place);
    const bool first = there && (alike & ((1u << lane) - 1u)) == 0;
    u32 rest = first ? alike & (alike - 1) : 0;
    A sum = (first ? plane[place] : A(0)) + value;
#pragma unroll 1
    while (__any_sync(full_warp, rest != 0)) {
      const A next = shuffle(value, rest != 0 ? __ffs(static_cast<int>(rest)) - 1 : lane);
      if (rest != 0) sum += next;
      rest &= rest - 1;
    }
    if (first) plane[place] = sum;
    __syncwarp();
  }
}

template <class T, class I> BARACUDA_D void roi_pool_backward_planes(const RoiPoolBackwardPlanesParams& p) {
  using A = acc_t<T>;
  BARACUDA_DYNAMIC_SMEM(A, plane);
  __shared__ RoiList<ListedRoi> list;
  __shared__ BinQueues<A> queues;
  const RoiOwner own(p, 1);
  const int thread = static_cast<int>(threadIdx.x);
  const int places = static_cast<int>(p.height * p.width), width = static_cast<int>(p.width);
  const int rows = static_cast<int>(p.bins[0]), columns = static_cast<int>(p.bins[1]), bins = rows * columns;
  const int y_row = static_cast<int>(p.y_steps[2]), y_column = static_cast<int>(p.y_steps[3]);
  const int arg_row = static_cast<int>(p.argmax_steps[2]), arg_column = static_cast<int>(p.argmax_steps[3]);
  const float per_column = 1.0f / static_cast<float>(p.width);
  const T* const dy = static_cast<const T*>(p.dy) + own.channel * p.y_steps[1];
  const I* const argmax = static_cast<const I*>(p.argmax) + own.channel * p.argmax_steps[1];
  for (int k = thread; k < places; k += roi_threads) plane[k] = A(0);
#pragma unroll 1
  for (i64 start = 0; start < p.regions; start += roi_window) {
    const int total = bins * list.find(start, p.regions, [&](i64 region, ListedRoi& entry) {
      const PooledRoi roi(p, static_cast<const T*>(p.rois), region);
      entry.keep(region, roi);
      return roi.image == own.image;
    });
    T values[roi_slots];
    I found[roi_slots];
    u32 which[roi_slots];  // entry, row and column of a bin
    const auto fetch = [&](int from) {
#pragma unroll
      for (int s = 0; s < roi_slots; ++s) {
        const int item = from + s * roi_threads + thread;
        values[s] = T{}, found[s] = -1, which[s] = 0;
        if (item >= total) continue;
        u32 bin, j;
        const u32 entry = divmod(static_cast<u32>(item), p.by_bins, bins, bin),
                  i = divmod(bin, p.by_columns, columns, j);
        which[s] = entry << 16 | i << 8 | j;
        const i64 region = list.entries[entry].region;
        const int row = static_cast<int>(i), column = static_cast<int>(j);
        values[s] = dy[region * p.y_steps[0] + (row * y_row + column * y_column)];
        found[s] = argmax[region * p.argmax_steps[0] + (row * arg_row + column * arg_column)];
      }
    };
    if (total > 0) fetch(0);
#pragma unroll 1
    for (int from = 0; from < total; from += roi_stage) {
      u32 to[roi_slots];
      A dealt[roi_slots];
#pragma unroll
      for (int s = 0; s < roi_slots; ++s) {
        to[s] = roi_nowhere, dealt[s] = to_acc(values[s]);
        if (found[s] < 0 || found[s] >= places) continue;
        const ListedRoi& roi = list.entries[which[s] >> 16];
        const int place = static_cast<int>(found[s]), row = place_row(place, per_column);
        const int i = static_cast<int>(which[s] >> 8 & 255u), j = static_cast<int>(which[s] & 255u);
        if (roi.has(0, rows, i, row) && roi.has(1, columns, j, place - row * width)) to[s] = static_cast<u32>(place);
      }
      deal_bins(queues, to, dealt);
      if (from + roi_stage < total) fetch(from + roi_stage);
      add_bins(plane, queues);
    }
    __syncthreads();
  }
  hand_plane(p, static_cast<T*>(p.x) + own.begin(p), plane, thread, roi_threads);
}

}  // namespace baracuda
