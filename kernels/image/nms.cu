// nms   the boxes that no better one that is kept overlaps by more than a threshold, in the order of their scores
//
// One block takes the boxes in tiles of 64, best first: it compares those of a tile that are alive with each other, keeps
// of them what no kept one covers, and strikes out what those cover behind the tile. What is kept depends on comparisons
// of two boxes alone.
#include <baracuda/math.cuh>
#include <baracuda/positions.cuh>

namespace baracuda {

template <class A> struct Box {
  A low[2], high[2], area;
  i64 group;
  bool known;

  BARACUDA_D bool covers(const Box& b, A most) const {
    const A w = math::fmax(math::fmin(high[0], b.high[0]) - math::fmax(low[0], b.low[0]), A(0));
    const A h = math::fmax(math::fmin(high[1], b.high[1]) - math::fmax(low[1], b.low[1]), A(0));
    const A shared = w * h;
    return group == b.group && shared / (area + b.area - shared) > most;
  }
};

template <class T> BARACUDA_D void nms(const NmsParams& p) {
  using A = acc_t<T>;
  __shared__ Box<A> tile[nms_tile];
  __shared__ u64 covered[nms_tile];
  __shared__ u64 kept;
  __shared__ i64 count;
  const A most = static_cast<A>(p.iou_threshold());
  unsigned char* const struck = static_cast<unsigned char*>(p.struck);
  const auto read = [&](i64 place) {
    Box<A> box;
    const i64 i = read_index(p.order, p.order_wide, place * p.order_step);
    box.known = i >= 0 && i < p.boxes_count;
    const T* const from = static_cast<const T*>(p.boxes) + (box.known ? i : 0) * p.box_steps[0];
#pragma unroll
    for (int a = 0; a < 2; ++a) {
      box.low[a] = to_acc(from[a * p.box_steps[1]]), box.high[a] = to_acc(from[(2 + a) * p.box_steps[1]]);
    }
    box.area = (box.high[0] - box.low[0]) * (box.high[1] - box.low[1]);
    box.group = p.groups == nullptr || !box.known ? 0 : read_index(p.groups, p.groups_wide, i * p.group_step);
    return box;
  };
  for (i64 i = threadIdx.x; i < p.places; i += nms_threads) struck[i] = 0;
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  for (i64 first = 0; first < p.places; first += nms_tile) {
    const int many = static_cast<int>(min<i64>(nms_tile, p.places - first));
    if (threadIdx.x < many) tile[threadIdx.x] = read(first + threadIdx.x);
    if (threadIdx.x < nms_tile) covered[threadIdx.x] = 0;
    __syncthreads();
    for (int pair = threadIdx.x; pair < many * nms_tile; pair += nms_threads) {
      const int a = pair / nms_tile, b = pair % nms_tile;
      if (a < b && b < many && !struck[first + a] && tile[a].covers(tile[b], most)) {
        atomicOr(reinterpret_cast<unsigned long long*>(&covered[a]), 1ull << b);
      }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      u64 gone = 0, found = 0;
      for (int a = 0; a < many; ++a) {
        if ((gone >> a & 1) || struck[first + a] || !tile[a].known) continue;
        found |= 1ull << a, gone |= covered[a];
        const i64 i = read_index(p.order, p.order_wide, (first + a) * p.order_step);
        static_cast<i64*>(p.keep)[count * p.keep_step] = i;
        ++count;
      }
      kept = found;
    }
    __syncthreads();
    for (i64 i = first + nms_tile + threadIdx.x; i < p.places; i += nms_threads) {
      if (struck[i]) continue;
      const Box<A> box = read(i);
      bool gone = false;
      for (u64 left = kept; left != 0 && !gone; left &= left - 1) gone = tile[__ffsll(left) - 1].covers(box, most);
      if (gone) struck[i] = 1;
    }
    __syncthreads();
  }
  for (i64 i = count + threadIdx.x; i < p.places; i += nms_threads) static_cast<i64*>(p.keep)[i * p.keep_step] = -1;
  if (threadIdx.x == 0) *static_cast<i64*>(p.count) = count;
}

}  // namespace baracuda
