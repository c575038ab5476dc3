// topk       the k best elements of every row in order, and where they stand. Nothing is summed; ranks are exact.
// sort_warp  the same of a row of up to 128 elements, which a warp sorts, see radix_sort.cuh.
//
// A block reads its part of a row once. It holds candidates (rank, place) in shared memory. When they are many, all but
// the k best are dropped, and from then on an element that is not better than the worst of them costs one comparison.
// Which k are best is found by a histogram of each digit of rank and then of place, the highest first (radix select). A
// row of several parts takes a second launch, over the places that the parts found.
//
// Of equal elements the lowest places are taken: candidates are compared by rank, then place, so that it does not matter
// in which order they were appended. A tile is read after all lower places were, so that what equals the worst of k
// candidates is passed over.
#include <baracuda/radix_sort.cuh>

namespace baracuda {

struct TopMemory {
  u32 count[digits];
  u32 wanted[3];  // what a tile appends, for three tiles in turn
  u32 moved, digit, above, here;
};

// The elements that can be candidates: their codes are an interval, which may go round the end of the numbers.
template <class U> struct TopReach {
  U first, span;  // the lowest code, and the highest less that

  // Those of ranks up to `most`, or a few more.
  BARACUDA_D void set(const KeyOrder<U>& order, U most) {
    const U every = static_cast<U>(~U(0)), infinity = static_cast<U>(order.low + order.span);
    if (order.flip == 0) {  // NaN, which lie beyond both infinities, have the highest rank
      first = order.low, span = most == every ? every : static_cast<U>(most - order.low);
    } else {
      const U least = static_cast<U>(~most);
      first = least == order.plus_zero ? order.minus_zero : least > infinity ? static_cast<U>(infinity + 1) : least;
      span = least <= order.low ? every : static_cast<U>(order.low - 1 - first);
    }
  }
  BARACUDA_D bool holds(const KeyOrder<U>& order, U raw) const {
    return static_cast<U>(order.code(raw) - first) <= span;
  }
  // Whether it holds one of several.
  template <int VEC> BARACUDA_D bool holds_one(const KeyOrder<U>& order, const Vec<U, VEC>& x) const {
    bool one = false;
    if constexpr (sizeof(U) == 2 && VEC % 2 == 0) {  // two in a word: what is below the upper one does not matter
      const u32 from = static_cast<u32>(static_cast<U>(first - order.sign)) << 16;
      const u32 most = static_cast<u32>(span) << 16 | 0xffffu;
#pragma unroll
      for (int i = 0; i < VEC; i += 2) {
        const u32 raw = static_cast<u32>(x[i + 1]) << 16 | x[i];
        const u32 code = raw ^ ((raw >> 15 & 0x10001u) * order.rest);
        one |= code - from <= most;
        one |= (code << 16) - from <= most;
      }
    } else {
#pragma unroll
      for (int i = 0; i < VEC; ++i) one |= holds(order, x[i]);
    }
    return one;
  }
};

template <class U, int THREADS> struct Candidates {
  static constexpr int rank_bits = 8 * sizeof(U);
  TopMemory& memory;
  const KeyOrder<U>& order;
  U* rank;
  u32* place;
  u32 held, room;     // candidates, and how many there can be
  u32 k, enough;      // up to `enough` are kept where it takes less to find them than the k best
  bool none;          // whether no further element can be one
  TopReach<U> reach;  // else those that can

  // Digit `level` of a candidate, counted from the top: of its rank, then of its place.
  static constexpr int levels = sizeof(U) + sizeof(u32);
  BARACUDA_D static u32 digit(U r, u32 at, int level) {
    const int shift = rank_bits - digit_bits * (level + 1);
    return shift >= 0 ? digit_of(r, shift) : digit_of(at, shift + 32);
  }
  // Whether the digits above `level` are those of (r, at).
  static BARACUDA_D bool follows(U r, u32 at, U top, u32 top_place, int level) {
    const int left = rank_bits - digit_bits * level;  // bits of the rank that are open
    if (left > 0) return level == 0 || r >> left == top >> left;
    return r == top && (left == 0 || at >> (32 + left) == top_place >> (32 + left));
  }

  // Keeps the k best, and with them others up to `enough`.
  BARACUDA_D void drop() {
    __syncthreads();
    if (held <= enough) return;
    U top = 0;
    u32 top_place = 0, want = k;
    int level = 0;
    for (bool done = false; !done; ++level) {
      for (int i = threadIdx.x; i < digits; i += THREADS) memory.count[i] = 0;
      __syncthreads();
      for (u32 i = threadIdx.x; i < held; i += THREADS) {
        if (follows(rank[i], place[i], top, top_place, level))
          atomicAdd(&memory.count[digit(rank[i], place[i], level)], 1u);
      }
      __syncthreads();
      if (threadIdx.x < warp_size) find(want);
      __syncthreads();
      const u32 d = memory.digit;
      const int shift = rank_bits - digit_bits * (level + 1);
      if (shift >= 0) top |= static_cast<U>(static_cast<U>(d) << shift);
      else top_place |= d << (shift + 32);
      want -= memory.above;
      done = k - want + memory.here <= enough || level == levels - 1;
    }
    // Digits that were not looked at are free: what has these digits above them is kept.
    const int left = rank_bits - digit_bits * level;
    if (left > 0) top |= static_cast<U>((U(1) << left) - 1);
    const u32 last = left >= 0 ? ~0u : left == -32 ? top_place : top_place | (~0u >> -left);
    keep(top, last);
    none = left <= 0 && top == (order.flip == 0 ? order.low : U(0));
    if (!none) reach.set(order, left > 0 ? top : static_cast<U>(top - 1));
  }

  // Moves those up to (top, last) to the front, a few waves of THREADS at a time: none goes further up than it was.
  BARACUDA_D void keep(U top, u32 last) {
    constexpr int waves = 4;
    if (threadIdx.x == 0) memory.moved = 0;
#pragma unroll 1
    for (u32 first = 0; first < held; first += waves * THREADS) {
      U r[waves];
      u32 at[waves];
#pragma unroll
      for (int w = 0; w < waves; ++w) {
        const u32 i = first + w * THREADS + threadIdx.x;
        r[w] = i < held ? rank[i] : U(0), at[w] = i < held ? place[i] : 0;
      }
      __syncthreads();
#pragma unroll
      for (int w = 0; w < waves; ++w) {
        const bool there = first + w * THREADS + threadIdx.x < held;
        const bool stays = there && (r[w] < top || (r[w] == top && at[w] <= last));
        const u32 to = reserve(&memory.moved, stays);
        if (stays) put(to, r[w], at[w]);
      }
      __syncthreads();
    }
    held = memory.moved;
    __syncthreads();
  }
  // A number for every thread of the warp that wants one.
  static BARACUDA_D u32 reserve(u32* counter, bool wants) {
    const u32 mask = __ballot_sync(full_warp, wants);
    u32 base = 0;
    if (lane_id() == 0 && mask != 0) base = atomicAdd(counter, static_cast<u32>(__popc(mask)));
    return shuffle(base, 0) + __popc(mask & ((1u << lane_id()) - 1u));
  }
  BARACUDA_D void put(u32 to, U r, u32 at) const { rank[to] = r, place[to] = at; }
  // The first warp: the digit in which candidate `want` is, how many have lower ones, and how many have it.
  BARACUDA_D void find(u32 want) const {
    constexpr int own = digits / warp_size;
    u32 n[own], sum = 0;
#pragma unroll
    for (int j = 0; j < own; ++j) sum += n[j] = memory.count[lane_id() * own + j];
    u32 up = sum;
#pragma unroll
    for (int step = 1; step < warp_size; step *= 2) {
      const u32 before = shuffle(up, (lane_id() - step) & (warp_size - 1));
      if (lane_id() >= step) up += before;
    }
    u32 above = up - sum;
#pragma unroll
    for (int j = 0; j < own; ++j) {
      if (above < want && want <= above + n[j]) {
        memory.digit = lane_id() * own + j, memory.above = above, memory.here = n[j];
      }
      above += n[j];
    }
  }

  // The candidates in order, by a bitonic network. Pairs up to 32 apart are within 64 that one warp has.
  BARACUDA_D void sort() const {
    u32 size = 2;
    while (size < held) size *= 2;
    for (u32 i = held + threadIdx.x; i < size; i += THREADS) rank[i] = static_cast<U>(~U(0)), place[i] = ~0u;
    __syncthreads();
    for (u32 run = 2; run <= size; run *= 2) {
      for (u32 far = run / 2; far > 0; far /= 2) {
        if (far > warp_size || (far == warp_size && run > 2 * warp_size)) __syncthreads();
        else __syncwarp();
        for (u32 i = threadIdx.x; i < size / 2; i += THREADS) {
          const u32 a = 2 * i - (i & (far - 1)), b = a + far;
          const U ra = rank[a], rb = rank[b];
          const u32 pa = place[a], pb = place[b];
          const bool more = ra > rb || (ra == rb && pa > pb), down = (a & run) != 0;
          if (more != down) rank[a] = rb, place[a] = pb, rank[b] = ra, place[b] = pa;
        }
      }
    }
    __syncthreads();
  }
};

// Elements of a row by chunks of VEC neighbours. GATHER: those at places that an array names, a chunk each.
template <class U, int VEC, bool GATHER> struct TopSource {
  const U* keys;
  i64 step;
  const u32* from;
  i64 end;

  struct Chunk {
    Vec<U, VEC> x;
    u32 place;  // of the first
  };
  // WHOLE: all of its elements are there, so that no branch parts several loads.
  template <bool WHOLE = false> BARACUDA_D Chunk load(i64 at) const {
    Chunk c{};
    if constexpr (GATHER) {
      c.place = WHOLE || at < end ? from[at] : ~0u;
      if (c.place != ~0u) c.x[0] = keys[c.place * step];
    } else {
      const i64 left = end - at;
      c.place = static_cast<u32>(at);
      if constexpr (WHOLE && VEC > 1) c.x = baracuda::load<VEC>(keys + at);
      else if constexpr (VEC > 1) c.x = load_vec<U, VEC, true>(keys + at, left);
      else if (WHOLE || left > 0) c.x[0] = keys[at * step];
    }
    return c;
  }
  // Whether element v of the chunk that was loaded from `at` is there.
  BARACUDA_D bool has(const Chunk& c, i64 at, int v) const { return at + v < end && (!GATHER || c.place != ~0u); }
};

// A part of a row a block; p.found: the places that `carried` has of every row. p.room: a power of two from 4, at least
// p.found or p.share or else 2 k and 2 THREADS VEC.
template <class U, int THREADS, int VEC, bool GATHER, class P> BARACUDA_D void topk(const P& p) {
  using Source = TopSource<U, VEC, GATHER>;
  using Chunk = typename Source::Chunk;
  constexpr int flight = 4, wave = THREADS * VEC;
  __shared__ TopMemory memory;
  BARACUDA_DYNAMIC_SMEM(U, ranks);
  const u32 k = static_cast<u32>(p.most), room = static_cast<u32>(p.room);
  const KeyOrder<U> order(p.order);
  u32 enough = 1;
  while (enough < k + k / 4) enough *= 2;
  Candidates<U, THREADS> best{
      memory, order, ranks, reinterpret_cast<u32*>(ranks + room), 0, room, k, max(k, min(enough, room / 2)), false, {}};
  if (threadIdx.x < 3) memory.wanted[threadIdx.x] = 0;
  const i64 index = static_cast<i64>(blockIdx.x) / p.parts, part = static_cast<i64>(blockIdx.x) % p.parts;
  const SortRow row(p, index);
  const i64 begin = GATHER ? 0 : part * p.share, end = GATHER ? p.found : min(begin + p.share, p.cols);
  const Source source{static_cast<const U*>(p.keys) + row.at[0], p.step[0],
                      GATHER ? static_cast<const u32*>(p.carried) + index * p.found : nullptr, end};
  const auto rank = [&](const Chunk& c, int v) { return order.rank(order.code(c.x[v])); };

  // The first elements are candidates. One that is not there is the worst of them.
  best.held = static_cast<u32>(max(i64(0), min(i64(room), end - begin)));
#pragma unroll 2
  for (u32 to = threadIdx.x * VEC; to < best.held; to += wave) {
    const Chunk c = source.load(begin + to);
#pragma unroll
    for (int v = 0; v < VEC; ++v) {
      const bool has = source.has(c, begin + to, v);
      if (to + v < best.held) best.put(to + v, has ? rank(c, v) : static_cast<U>(~U(0)), c.place + v);
    }
  }
  best.drop();

  // Appends what can be a candidate, as far as there is room, and counts it.
  const auto append = [&](const Chunk& c, i64 at, u32* counter) {
    if (!best.reach.holds_one(order, c.x)) return;
#pragma unroll
    for (int v = 0; v < VEC; ++v) {
      if (!best.reach.holds(order, c.x[v]) || !source.has(c, at, v)) continue;
      const u32 to = best.held + atomicAdd(counter, 1u);
      if (to < room) best.put(to, rank(c, v), c.place + v);
    }
  };
  const u32 many = min(4 * k + THREADS, (k + room) / 2);
  const i64 own = static_cast<i64>(threadIdx.x) * VEC;
  i64 tile = begin + room;
  Chunk chunk[flight];
  const auto load = [&](i64 from) {
    if (from + flight * wave > end) return;
#pragma unroll
    for (int f = 0; f < flight; ++f) chunk[f] = source.template load<true>(from + own + f * wave);
  };
  load(tile);
  u32 turn = 0;
#pragma unroll 1
  for (; tile < end && !best.none; tile += flight * wave) {
    u32* const counter = &memory.wanted[turn];
    const bool whole = tile + flight * wave <= end;
    if (whole) {
#pragma unroll
      for (int f = 0; f < flight; ++f) append(chunk[f], tile + own + f * wave, counter);
    }
    load(tile + flight * wave);  // is under way at the barrier
    __syncthreads();
    const u32 all = best.held + *counter;
    turn = turn == 2 ? 0 : turn + 1;
    if (threadIdx.x == 0) memory.wanted[turn == 2 ? 0 : turn + 1] = 0;
    if (whole && all <= many) {
      best.held = all;
      continue;
    }
    if (whole && all <= room) {
      best.held = all;
      best.drop();
    } else {
#pragma unroll 1
      for (int f = 0; f < flight; ++f) {  // wave by wave, with room for each
        if (best.held + wave > room) best.drop();
        __syncthreads();
        if (threadIdx.x == 0) memory.moved = 0;
        __syncthreads();
        const i64 at = tile + own + f * wave;
        append(source.load(at), at, &memory.moved);
        __syncthreads();
        best.held += memory.moved;
      }
    }
    load(tile + flight * wave);  // again, so that it takes no registers meanwhile
  }
  best.drop();
  best.sort();
  for (u32 i = threadIdx.x; i < k; i += THREADS) {
    if (!GATHER && p.parts > 1) {
      static_cast<u32*>(p.places)[(index * p.parts + part) * k + i] = i < best.held ? best.place[i] : ~0u;
    } else if (i < best.held) {
      const u32 at = best.place[i];
      put_sorted(p, row, i, source.keys[at * p.step[0]], at);
    }
  }
}

}  // namespace baracuda
