// nms   the boxes that no better one that is kept overlaps by more than a threshold, in the order of their scores
//
// Boxes are taken in tiles of 64, best first; what is kept depends on comparisons of two boxes alone. nms_pairs compares
// all of them, a bit each, and the one block of nms_walk goes through the tiles. nms does both in one block, which
// compares only with boxes that are kept.
#include <baracuda/math.cuh>
#include <baracuda/positions.cuh>
#include <baracuda/reduce.cuh>

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

template <class T> BARACUDA_D Box<acc_t<T>> read_box(const NmsParams& p, i64 place) {
  Box<acc_t<T>> box;
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
}

// Bit b of word w of the box at place a: whether it and the box at place 64 w + b cover each other. Words are those from
// the box's own tile on, which has the bits of places before a. Neighbouring threads have neighbouring places of a word.
template <class T> BARACUDA_D void nms_pairs(const NmsParams& p) {
  using A = acc_t<T>;
  __shared__ Box<A> others[nms_words][nms_tile];
  const i64 tile = blockIdx.y, first = static_cast<i64>(blockIdx.x) * nms_words;
  if (first + nms_words <= tile) return;
  const int part = static_cast<int>(threadIdx.x) / nms_tile, own = static_cast<int>(threadIdx.x) % nms_tile;
  const i64 word = first + part, place = tile * nms_tile + own, other = word * nms_tile + own;
  if (other < p.places) others[part][own] = read_box<T>(p, other);
  __syncthreads();
  if (word < tile || word >= p.words || place >= p.places) return;
  const A most = static_cast<A>(p.iou_threshold());
  const Box<A> box = read_box<T>(p, place);
  const int many = word == tile ? own : static_cast<int>(min<i64>(nms_tile, p.places - word * nms_tile));
  u64 bits = 0;
  for (int b = 0; b < many; ++b) bits |= static_cast<u64>(others[part][b].covers(box, most)) << b;
  static_cast<u64*>(p.masks)[word * p.places + place] = bits;
}

BARACUDA_D u64 ballots(bool low, bool high) {
  const u64 under = __ballot_sync(full_warp, low);
  return static_cast<u64>(__ballot_sync(full_warp, high)) << warp_size | under;
}

// A lane of the first warp has two boxes of the tile. Of those left a box stays if none left before it covers it; what it
// covers goes, and so on until none is left: as many rounds as the longest chain in the tile. A warp then strikes out in
// its words, every 32nd behind the tile.
BARACUDA_D void nms_walk(const NmsParams& p) {
  constexpr int warps = nms_walkers / warp_size, ahead = 2;
  __shared__ u64 struck[nms_most / nms_tile];
  __shared__ u64 kept;
  __shared__ i64 total;
  const int lane = lane_id(), warp = static_cast<int>(threadIdx.x) / warp_size;
  const u64* const masks = static_cast<const u64*>(p.masks);
  for (i64 w = threadIdx.x; w < p.words; w += nms_walkers) struck[w] = 0;
  __syncthreads();
  i64 count = 0;
  const auto has = [](u64 bits, int at) { return (bits >> at & 1) != 0; };
  for (i64 tile = 0; tile < p.words; ++tile) {
    const i64 place = tile * nms_tile + lane;
    const auto word_of = [&](i64 word, int half) {
      const i64 at = place + half * warp_size;
      return word < p.words && at < p.places ? masks[word * p.places + at] : 0;
    };
    u64 words[ahead][2];  // asked for before it is known what stays
#pragma unroll
    for (int k = 0; k < ahead; ++k) {
#pragma unroll
      for (int half = 0; half < 2; ++half) words[k][half] = word_of(tile + 1 + warp + k * warps, half);
    }
    if (warp == 0) {
      i64 index[2];
      u64 before[2];
      bool known[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const i64 at = place + half * warp_size;
        before[half] = word_of(tile, half);
        index[half] = at < p.places ? read_index(p.order, p.order_wide, at * p.order_step) : -1;
        known[half] = index[half] >= 0 && index[half] < p.boxes_count;
      }
      u64 left = ballots(known[0], known[1]) & ~struck[tile], stay = 0;
#pragma unroll 1
      while (left != 0) {
        const u64 found =
            ballots(has(left, lane) && (before[0] & left) == 0, has(left, lane + warp_size) && (before[1] & left) == 0);
        stay |= found, left &= ~found;
        left &= ~ballots((before[0] & found) != 0, (before[1] & found) != 0);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = lane + half * warp_size;
        if (!has(stay, at)) continue;
        const i64 to = count + __popcll(stay & ((u64(1) << at) - 1));
        static_cast<i64*>(p.keep)[to * p.keep_step] = index[half];
      }
      count += __popcll(stay);
      if (lane == 0) kept = stay, total = count;
    }
    __syncthreads();
    const u64 stay = kept;
    const auto strike = [&](i64 word, u64 low, u64 high) {
      const u64 gone = warp_reduce<Or>((has(stay, lane) ? low : 0) | (has(stay, lane + warp_size) ? high : 0));
      if (lane == 0) struck[word] |= gone;
    };
#pragma unroll
    for (int k = 0; k < ahead; ++k) {
      const i64 word = tile + 1 + warp + k * warps;
      if (word < p.words) strike(word, words[k][0], words[k][1]);
    }
    for (i64 word = tile + 1 + warp + ahead * warps; word < p.words; word += warps) {
      strike(word, word_of(word, 0), word_of(word, 1));
    }
    __syncthreads();
  }
  for (i64 i = total + threadIdx.x; i < p.places; i += nms_walkers) static_cast<i64*>(p.keep)[i * p.keep_step] = -1;
  if (threadIdx.x == 0) *static_cast<i64*>(p.count) = total;
}

template <class T> BARACUDA_D void nms(const NmsParams& p) {
  using A = acc_t<T>;
  __shared__ Box<A> tile[nms_tile];
  __shared__ u64 covered[nms_tile];
  __shared__ u64 kept;
  __shared__ i64 count;
  const A most = static_cast<A>(p.iou_threshold());
  unsigned char* const struck = static_cast<unsigned char*>(p.struck);
  for (i64 i = threadIdx.x; i < p.places; i += nms_threads) struck[i] = 0;
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  for (i64 first = 0; first < p.places; first += nms_tile) {
    const int many = static_cast<int>(min<i64>(nms_tile, p.places - first));
    if (threadIdx.x < many) tile[threadIdx.x] = read_box<T>(p, first + threadIdx.x);
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
      const Box<A> box = read_box<T>(p, i);
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
