// topk       the k best elements of every row in order, and where they stand. Nothing is summed; ranks are exact.
//
// A block reads its part of a row once. It holds candidates (rank, place) in shared memory; when there is no room for
// more, all but the k best are dropped, and from then on what is not better than the worst of them is passed over.
// Which k are best is found by a histogram of each digit of rank and then of place, the highest first (radix select). A
// row of several parts takes a second launch, over the places that the parts found.
//
// Of equal elements the lowest places are taken: candidates are compared by rank, then place, and arrive in the order
// of their places as far as their ranks are equal.
#include <baracuda/radix_sort.cuh>

namespace baracuda {

template <class U, int THREADS> struct TopMemory {
  static constexpr int room = THREADS * (sizeof(U) == 8 ? 8 : 16);
  u32 count[digits];
  u32 wanted[3];  // what a batch appends, for three batches in turn
  u32 moved, digit, above, here;
};

template <class U, int THREADS> struct Candidates {
  using Memory = TopMemory<U, THREADS>;
  static constexpr int rank_bits = 8 * sizeof(U);
  Memory& memory;
  U* rank;
  u32* place;
  u32 held;   // candidates
  bool open;  // whether every element is one, as there are not k yet
  bool none;  // whether no further element can be
  U most;     // else the highest rank of one

  BARACUDA_D bool takes(U r) const { return open || (!none && r <= most); }

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

  // Keeps the k best.
  BARACUDA_D void drop(u32 k) {
    __syncthreads();
    if (held <= k) return;
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
      done = memory.here == want || level == levels - 1;
    }
    // Digits that were not looked at are free: what has these digits above them is kept.
    const int left = rank_bits - digit_bits * level;
    if (left > 0) top |= static_cast<U>((U(1) << left) - 1);
    const u32 last = left >= 0 ? ~0u : left == -32 ? top_place : top_place | (~0u >> -left);
    keep(top, last);
    open = false, none = left <= 0 && top == 0;
    most = left > 0 ? top : static_cast<U>(top - 1);
  }

  // Candidate c of a wave of THREADS goes no further up than where it was.
  BARACUDA_D void keep(U top, u32 last) {
    if (threadIdx.x == 0) memory.moved = 0;
    for (u32 first = 0; first < held; first += THREADS) {
      const u32 i = first + threadIdx.x;
      const U r = i < held ? rank[i] : U(0);
      const u32 at = i < held ? place[i] : 0;
      const bool stays = i < held && (r < top || (r == top && at <= last));
      __syncthreads();
      const u32 to = reserve(&memory.moved, stays);
      if (stays) put(to, r, at);
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
  // Numbers for every thread of the warp that wants `own` of them: the first.
  static BARACUDA_D u32 reserve_many(u32* counter, u32 own) {
    u32 up = own;
#pragma unroll
    for (int step = 1; step < warp_size; step *= 2) {
      const u32 before = shuffle(up, (lane_id() - step) & (warp_size - 1));
      if (lane_id() >= step) up += before;
    }
    u32 first = 0;
    if (lane_id() == warp_size - 1) first = atomicAdd(counter, up);
    return shuffle(first, warp_size - 1) + up - own;
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

  // The candidates in order; `size` is a power of two, up to which places without one are filled up.
  BARACUDA_D void order(u32 size) const {
    for (u32 i = held + threadIdx.x; i < size; i += THREADS) rank[i] = static_cast<U>(~U(0)), place[i] = ~0u;
    for (u32 run = 2; run <= size; run *= 2) {
      for (u32 far = run / 2; far > 0; far /= 2) {
        __syncthreads();
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
    u32 have;   // a bit for each that is there
  };
  BARACUDA_D Chunk load(i64 at) const {
    Chunk c{};
    if constexpr (GATHER) {
      c.place = at < end ? from[at] : ~0u;
      c.have = c.place != ~0u;
      if (c.have) c.x[0] = keys[c.place * step];
    } else {
      const i64 left = end - at;
      c.place = static_cast<u32>(at);
      c.have = left <= 0 ? 0u : left >= VEC ? (1u << VEC) - 1u : (1u << left) - 1u;
      if constexpr (VEC > 1) c.x = load_vec<U, VEC, true>(keys + at, left);
      else if (left > 0) c.x[0] = keys[at * step];
    }
    return c;
  }
};

// A part of a row a block; p.found: the places that `carried` has of every row.
template <class U, int THREADS, int VEC, bool GATHER, class P> BARACUDA_D void topk(const P& p) {
  using Best = Candidates<U, THREADS>;
  using Source = TopSource<U, VEC, GATHER>;
  constexpr int flight = 4;
  __shared__ typename Best::Memory memory;
  BARACUDA_DYNAMIC_SMEM(U, ranks);
  Best best{memory, ranks, reinterpret_cast<u32*>(ranks + Best::Memory::room), 0, true, false, U(0)};
  if (threadIdx.x < 3) memory.wanted[threadIdx.x] = 0;
  __syncthreads();
  const KeyOrder<U> order(p.order);
  const i64 index = static_cast<i64>(blockIdx.x) / p.parts, part = static_cast<i64>(blockIdx.x) % p.parts;
  const SortRow row(p, index);
  const u32 k = static_cast<u32>(p.most);
  const i64 begin = GATHER ? 0 : part * p.share, end = GATHER ? p.found : min(begin + p.share, p.cols);
  const Source source{static_cast<const U*>(p.keys) + row.at[0], p.step[0],
                      GATHER ? static_cast<const u32*>(p.carried) + index * p.found : nullptr, end};
  const auto rank = [&](const typename Source::Chunk& c, int v) { return order.rank(order.code(c.x[v])); };
  u32 batch = 0;
#pragma unroll 1
  for (i64 tile = begin; tile < end; tile += THREADS * VEC * flight, ++batch) {
    const i64 first = tile + static_cast<i64>(threadIdx.x) * VEC;
    typename Source::Chunk chunk[flight];
#pragma unroll
    for (int f = 0; f < flight; ++f) chunk[f] = source.load(first + f * (THREADS * VEC));
    u32 own = 0;
#pragma unroll
    for (int f = 0; f < flight; ++f) {
      u32 taken = 0;
#pragma unroll
      for (int v = 0; v < VEC; ++v) taken |= static_cast<u32>(best.takes(rank(chunk[f], v))) << v;
      own += __popc(chunk[f].have &= taken);
    }
    u32 to = __any_sync(full_warp, own != 0) ? best.reserve_many(&memory.wanted[batch % 3], own) : 0;
    __syncthreads();
    const u32 all = memory.wanted[batch % 3];
    if (threadIdx.x == 0) memory.wanted[(batch + 2) % 3] = 0;
    if (best.held + all <= Best::Memory::room) {
      to += best.held;
      best.held += all;
      if (own == 0) continue;
#pragma unroll
      for (int f = 0; f < flight; ++f) {
#pragma unroll
        for (int v = 0; v < VEC; ++v) {
          if (chunk[f].have >> v & 1) best.put(to++, rank(chunk[f], v), chunk[f].place + v);
        }
      }
    } else {
#pragma unroll 1
      for (int f = 0; f < flight; ++f) {  // chunk by chunk, with room for each
        if (best.held + THREADS * VEC > Best::Memory::room) best.drop(k);
        __syncthreads();
        if (threadIdx.x == 0) memory.moved = best.held;
        __syncthreads();
        const typename Source::Chunk c = source.load(first + f * (THREADS * VEC));
#pragma unroll
        for (int v = 0; v < VEC; ++v) {
          const U r = rank(c, v);
          const bool wants = (c.have >> v & 1) && best.takes(r);
          const u32 at = best.reserve(&memory.moved, wants);
          if (wants) best.put(at, r, c.place + v);
        }
        __syncthreads();
        best.held = memory.moved;
      }
    }
  }
  best.drop(k);
  u32 size = 2;
  while (size < best.held) size *= 2;
  best.order(size);
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
