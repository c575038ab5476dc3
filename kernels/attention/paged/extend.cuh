#pragma once
// extend     what the kernels of batch_paged_extend share: blocks of keys, the rows and keys of a sequence, what a
//            query sees, partial sums and how two of them are added.
//
// Keys are summed in blocks that their positions alone decide: blocks of near_keys keys up to position far_begin, of
// far_keys from there on. Neighbouring blocks make groups of `fold_blocks`. In a group the sums of blocks are added
// from the last to the first; then groups are added (extend_merge). What runs where changes none of it: a unit of work is a
// block or a whole group, as the host says.
//
// A sequence has n queries in the rows bound[b] … bound[b + 1] of q. One key head's queries make n * group rows of a
// tile: row r is query r / group with head r % group of those that share the key head.
#include "attention/paged.cuh"

namespace baracuda {
namespace attention {

constexpr int near_blocks = far_begin / near_keys;
static_assert(near_blocks % fold_blocks == 0 && far_begin % near_keys == 0, "no group has blocks of both sizes");

BARACUDA_D int block_of(int key) {
  return key < far_begin ? key / near_keys : near_blocks + (key - far_begin) / far_keys;
}
BARACUDA_D int block_start(int block) {
  return block < near_blocks ? block * near_keys : far_begin + (block - near_blocks) * far_keys;
}

// Where packed sequences begin, as the op takes it: clamped to [0, total], and never below the bounds before.
struct Bounds {
  const void* first;
  i64 stride, total;
  bool wide;
  template <class P> static BARACUDA_D Bounds of_queries(const P& p) {
    return {p.qo_indptr, p.bound_stride, p.total_q, p.wide_bounds != 0};
  }
  BARACUDA_D i64 given(i64 i) const {
    return wide ? static_cast<const i64*>(first)[i * stride] : static_cast<const i32*>(first)[i * stride];
  }
  BARACUDA_D i64 clamped(i64 i) const { return max<i64>(0, min<i64>(total, given(i))); }
  BARACUDA_D i64 settled(i64 i) const {  // called by a whole warp
    i64 most = 0;
#pragma unroll 4
    for (i64 n = lane_id(); n <= i; n += warp_size) most = max(most, clamped(n));
    return warp_reduce<Max>(most);
  }
};

// A sequence's queries and keys.
struct Extended {
  i64 row;            // of its first query in q
  int queries, keys;  // its last query stands at its last key, or its first at key 0; keys -1: results are NaN

  // The keys [low, high) that a query sees, but for those that its tree hides.
  struct Reach {
    int low, high;
  };
  template <class P> BARACUDA_D int position(const P& p, int query) const {
    return query + (p.bottom_right ? keys - queries : 0);
  }
  template <class P> BARACUDA_D Reach reach(const P& p, int query) const {
    const i64 at = position(p, query);
    const i64 low = max<i64>(0, at - p.left), high = min<i64>(keys, at + p.right + 1);
    return {static_cast<int>(min<i64>(low, keys)), static_cast<int>(max<i64>(high, 0))};
  }
  // The sequence's queries [begin, end) among the rows [first_row, last_row) of q, which a launch takes.
  struct Part {
    int begin, end;
  };
  template <class P> BARACUDA_D Part part(const P& p) const {
    const i64 begin = max<i64>(0, min<i64>(queries, p.first_row - row));
    return {static_cast<int>(begin), static_cast<int>(max<i64>(begin, min<i64>(queries, p.last_row - row)))};
  }
  // The first of the keys that the sequence's own queries stand for.
  BARACUDA_D int own_keys() const { return keys - queries; }

  // As extend_sequences found it.
  template <class P> static BARACUDA_D Extended of(const P& p, i64 b) {
    return static_cast<const Extended*>(p.sequences)[b];
  }
};

// The work of a block: a unit of keys of one key head for every row_tiles-th tile of a sequence's rows.
struct Unit {
  u32 unit, tile, kv;
  i64 b;
  template <class P> static BARACUDA_D Unit of(const P& p) {
    const u32 units = static_cast<u32>(p.units), tiles = static_cast<u32>(p.row_tiles),
              heads = static_cast<u32>(p.kv_heads);
    const u32 n = blockIdx.x / units, m = n / tiles;
    return {blockIdx.x - n * units, n - m * tiles, m % heads, m / heads};
  }
  // The keys [begin, end) of the unit.
  template <class P> BARACUDA_D int begin(const P& p) const { return block_start(static_cast<int>(unit) * p.run); }
  template <class P> BARACUDA_D int end(const P& p) const { return block_start((static_cast<int>(unit) + 1) * p.run); }
};

// Where the rows of a sequence's tiles are, as PagedKeys says it (paged.cuh), but entries of the page table come to
// shared memory by cp.async, `entries_ahead` tiles before they are looked up: a stream of keys takes less time for a
// tile than the memory under it takes for a load. The copies are in the groups that carry tiles; of those at most
// entries_ahead - 1 may be open when `step` is called.
constexpr int entries_ahead = 8;
// What is kept of a row's place: offsets of its key and value, or what these follow from.
struct OffsetPlace : KeyPlace {
  template <class P> BARACUDA_D void set(const P& p, i64 page, i64 cell) {
    key = page * p.stride[1][0] + cell * p.stride[1][2];
    value = page * p.stride[2][0] + cell * p.stride[2][2];
  }
};
struct TokenPlace {
  i32 page, cell;
  template <class P> BARACUDA_D void set(const P&, i64 of_page, i64 of_cell) {
    page = static_cast<i32>(of_page), cell = static_cast<i32>(of_cell);
  }
};
template <class P, int KEYS, class Place = OffsetPlace> struct StreamedKeys {
  const P& p;
  const Pages pages;
  u32 kv;
  Place* places;                  // [4][KEYS]
  Pages::Entry (*entries)[KEYS];  // [entries_ahead]
  u32 turn = 0;                   // index into `entries`

  BARACUDA_D StreamedKeys(const P& p, i64 b, u32 kv) : p(p), pages(p, b), kv(kv) {
    __shared__ Place of_tiles[ring_size<KEYS>];
    __shared__ Pages::Entry of_tables[entries_ahead][KEYS];
    places = of_tiles, entries = of_tables;
  }
  template <class T> BARACUDA_D auto keys() const { return rows<T>(p.k, p.stride[1], &places->key); }
  template <class T> BARACUDA_D auto values() const { return rows<T>(p.v, p.stride[2], &places->value); }

  // Of a row of a tile that has been found.
  BARACUDA_D const Place& place(int position) const { return places[position & (ring_size<KEYS> - 1)]; }

  // The first two tiles are found at once; the caller's threads meet before they copy.
  template <int BY> BARACUDA_D void begin(int first) {
    turn = 0;
    if (threadIdx.x >= KEYS) return;
#pragma unroll
    for (int n = 0; n < entries_ahead; ++n) ask(first + (2 + n) * BY, n);
    cp_async_commit();
#pragma unroll
    for (int k0 = first; k0 != first + 2 * BY; k0 += BY) {
      i64 cell;
      if (k0 >= 0) look(k0, pages.entry(slot_of<i32>(p, static_cast<u64>(k0 + threadIdx.x), cell)));
    }
    cp_async_wait<0>();
  }
  // Finds the second tile after that at k0.
  template <int BY> BARACUDA_D void step(int k0) {
    if (threadIdx.x >= KEYS) return;
    const int known = k0 + 2 * BY;
    if (known >= 0) look(known, entries[turn][threadIdx.x]);
    ask(known + entries_ahead * BY, turn);
    turn = (turn + 1) % entries_ahead;
  }

 private:
  template <class T> BARACUDA_D auto rows(const void* x, const i64 (&stride)[3], const i64* offsets) const {
    const PagedRows<T, P> direct{p, pages, static_cast<const T*>(x) + kv * stride[1], stride[0], stride[2], 0};
    return RingRows<T, P, KEYS>{direct, offsets};
  }
  BARACUDA_D void ask(int k0, u32 where) const {
    i64 cell;
    if (k0 >= 0) pages.fetch(&entries[where][threadIdx.x], slot_of<i32>(p, static_cast<u64>(k0 + threadIdx.x), cell));
  }
  BARACUDA_D void look(int k0, const Pages::Entry& entry) const {
    const int position = k0 + static_cast<int>(threadIdx.x);
    i64 cell;
    slot_of<i32>(p, static_cast<u64>(position), cell);
    const i64 found = pages.index(entry), page = pages.exists(found) ? found : 0;
    places[position & (ring_size<KEYS> - 1)].set(p, page, cell);
  }
};

// The sum of a row over some keys: outputs sum_j w_j v_j and sum = sum_j w_j of weights w_j = 2^((s_j - base) c); base
// is -inf where the row has seen no key.
template <class A> struct PartialSum {
  A base, sum;
  // The same, with a base where NaN scores, which raise none, left a sum.
  BARACUDA_D PartialSum closed() const { return {sum != A(0) && base == -numeric<A>::infinity() ? A(0) : base, sum}; }
};
template <class A> BARACUDA_D A base_or_0(A base) { return base == -numeric<A>::infinity() ? A(0) : base; }

// Adds two sums under the higher of their bases. One that has seen no key is zeros and changes nothing.
template <class A> struct Added {
  PartialSum<A> both;
  A of_old, of_next;
  BARACUDA_D Added(const PartialSum<A>& old, const PartialSum<A>& next, A c) {
    both.base = math::maximum(old.base, next.base);
    const A base = base_or_0(both.base);
    of_old = exp2_fast((old.base - base) * c), of_next = exp2_fast((next.base - base) * c);
    both.sum = add(old.sum, next.sum);
  }
  BARACUDA_D A add(A old, A next) const { return math::fma(next, of_next, old * of_old); }
};

// The first sum of a row of q and a head, of those of its units.
template <class P> BARACUDA_D i64 first_sum(const P& p, i64 row, u32 head) {
  return ((row - p.first_row) * p.num_heads + head) * p.units;
}

// What a score q k is before it is weighed: itself, or with terms it times scale, capped, less ALiBi's slope times the
// distance of query and key.
template <class A, class P> BARACUDA_D A with_terms(const P& p, A x, A slope, int position, int key) {
  x *= static_cast<A>(p.scale);
  if (p.softcap > 0) x = static_cast<A>(p.softcap) * math::tanh(x * static_cast<A>(1 / p.softcap));
  return math::fma(-slope, math::abs(static_cast<A>(position - key)), x);
}
template <class A, class P> BARACUDA_D A slope_of(const P& p, i64 b, u32 h) {
  if (p.slopes == nullptr) return A(0);
  return static_cast<const A*>(p.slopes)[b * p.slope_stride[0] + h * p.slope_stride[1]];
}

// The row of the tree of a query: which of its sequence's own queries it sees.
struct TreeRow {
  const u8* at = nullptr;  // null: all of them
  i64 step = 0;
  int own = 0, columns = 0;  // key of the first of them; columns of the mask
  TreeRow() = default;
  template <class P>
  BARACUDA_D TreeRow(const P& p, const Extended& sequence, int query)
      : at(p.tree_mask == nullptr ? nullptr
                                  : static_cast<const u8*>(p.tree_mask) + (sequence.row + query) * p.tree_stride[0]),
        step(p.tree_stride[1]), own(sequence.own_keys()), columns(static_cast<int>(p.tree_columns)) {}
  BARACUDA_D bool hides(int key) const {
    if (at == nullptr || key < own) return false;
    return key - own >= columns || at[(key - own) * step] == 0;
  }
};

}  // namespace attention

// Finds the rows and keys of sequences, a block for each. A sequence has as many keys as it claims, but no more than
// max_keys, nor than its pages before the first missing one.
template <int THREADS, class P> BARACUDA_D void extend_sequences(const P& p) {
  using namespace attention;
  __shared__ i64 missing_of_warp[THREADS / warp_size];
  const i64 b = blockIdx.x;
  const Pages pages(p, b);
  const i64 claimed = claimed_keys(p, pages, b);
  const i64 room = max<i64>(0, min(claimed, min<i64>(p.max_keys, pages.count * p.page_size)));
  const i64 slots = (room + p.page_size - 1) / p.page_size;
  i64 missing = slots;
#pragma unroll 8
  for (i64 slot = threadIdx.x; slot < slots; slot += THREADS) {
    if (pages.page(slot) < 0) missing = min(missing, slot);
  }
  missing = warp_reduce<Min>(missing);
  if (lane_id() == 0) missing_of_warp[threadIdx.x / warp_size] = missing;
  const Bounds bounds = Bounds::of_queries(p);
  const i64 row = bounds.settled(b), end = max(row, bounds.clamped(b + 1));
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < THREADS / warp_size; ++w) missing = min(missing, missing_of_warp[w]);
  const i64 keys = p.refuses && claimed < 0 ? -1 : min(room, missing * p.page_size);
  static_cast<Extended*>(p.sequences)[b] = {row, static_cast<int>(end - row), static_cast<int>(keys)};
  const bool wrong = keys != claimed || bounds.given(b) != row || bounds.given(b + 1) != end;
  if (p.status != nullptr && (wrong || end - row > p.max_queries)) atomicOr(p.status, 1u);
}

// Adds the sums of a row's blocks, and divides. A group of blocks belongs to chain group % 4, which adds its groups
// from the last to the first; then the chains are added in order. A lane has four columns at a time. Where sums stand by
// groups a warp has a row and all its chains; where they stand by blocks (SINGLE) a row has four warps, with a chain
// each. A sink takes part in the sum like a key without a value.
namespace attention {

template <class T, bool SINGLE, class P> struct MergedRow {
  using A = acc_t<T>;
  using Four = Vec<A, 4>;
  static constexpr int CHAINS = 4, WARPS = SINGLE ? CHAINS : 1;
  const P& p;
  const PartialSum<A>* stats;  // of the row's units
  const A* outputs;
  PartialSum<A>* sums;                      // of the row's groups, the last one first, in shared memory
  const int pitch, low, high, first, last;  // blocks, and groups of them
  const A c;

  BARACUDA_D static void meet() {
    if (WARPS == 1) __syncwarp();
    else __syncthreads();
  }
  BARACUDA_D int last_of(int group) const { return min(high, (group + 1) * fold_blocks - 1); }
  BARACUDA_D int first_of(int group) const { return max(low, group * fold_blocks); }
  BARACUDA_D bool has(int group) const { return group >= first && group <= last; }
  BARACUDA_D PartialSum<A> sum_of(int group) const { return sums[last - group]; }

  BARACUDA_D void find_sums(int thread) const {
    for (int n = thread; n <= last - first; n += WARPS * warp_size) {
      const int group = last - n;
      PartialSum<A> sum = stats[SINGLE ? last_of(group) : group];
      if constexpr (SINGLE) {
        for (int block = last_of(group) - 1; block >= first_of(group); --block) {
          sum = Added<A>(sum, stats[block], c).both;
        }
      }
      sums[n] = sum;
    }
    meet();
  }
  // The sum of a group's blocks, from column `at` on, where each has its own.
  BARACUDA_D Four folded(int group, int at) const {
    Four of_block[fold_blocks];
    PartialSum<A> sum[fold_blocks];
#pragma unroll
    for (int i = 0; i < fold_blocks; ++i) {
      const int block = last_of(group) - i;
      if (block < first_of(group)) continue;
      of_block[i] = load<4>(outputs + block * pitch + at), sum[i] = stats[block];
    }
    Four x = of_block[0];
    PartialSum<A> both = sum[0];
#pragma unroll
    for (int i = 1; i < fold_blocks; ++i) {
      if (last_of(group) - i < first_of(group)) continue;
      const Added<A> added(both, sum[i], c);
#pragma unroll
      for (int k = 0; k < 4; ++k) x[k] = added.add(x[k], of_block[i][k]);
      both = added.both;
    }
    return x;
  }
  // Calls f(group, chain) for the groups of this warp's chains, the last ones first, and for some that there are not.
  template <class F> BARACUDA_D void each_group(int warp, const F& f) const {
#pragma unroll 1
    for (int four = last / CHAINS * CHAINS; four >= first / CHAINS * CHAINS; four -= CHAINS) {
      if constexpr (WARPS == 1) {
#pragma unroll
        for (int chain = 0; chain < CHAINS; ++chain) f(four + chain, chain);
      } else {
        f(four + warp, 0);
      }
    }
  }
  // The columns from `at` on of this warp's chains.
  template <int N> BARACUDA_D void add(Four (&acc)[N], int warp, int at, A from) const {
    each_group(warp, [&](int group, int chain) {
      if (!has(group)) return;
      const PartialSum<A> sum = sum_of(group);
      Four x;
      if constexpr (SINGLE) x = folded(group, at);
      else x = load<4>(outputs + group * pitch + at);
      const A weight = exp2_fast((sum.base - from) * c);
#pragma unroll
      for (int k = 0; k < 4; ++k) acc[chain][k] = math::fma(weight, x[k], acc[chain][k]);
    });
  }
  // The sum of all weights, from the base `from` on.
  BARACUDA_D A total(A from) const {
    A sum[CHAINS] = {};
#pragma unroll 1
    for (int four = last / CHAINS * CHAINS; four >= first / CHAINS * CHAINS; four -= CHAINS) {
#pragma unroll
      for (int chain = 0; chain < CHAINS; ++chain) {
        if (!has(four + chain)) continue;
        const PartialSum<A> one = sum_of(four + chain);
        sum[chain] = math::fma(exp2_fast((one.base - from) * c), one.sum, sum[chain]);
      }
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
  }
};

}  // namespace attention

template <class T, bool SINGLE, class P> BARACUDA_D void extend_merge(const P& p) {
  using namespace attention;
  using A = acc_t<T>;
  using Row = MergedRow<T, SINGLE, P>;
  constexpr int WARPS = Row::WARPS;
  const A none = -numeric<A>::infinity();
  BARACUDA_DYNAMIC_SMEM(PartialSum<A>, sums);
  [[maybe_unused]] __shared__ A part[WARPS == 1 ? 1 : WARPS][4 * warp_size];
  const int lane = lane_id(), warp = static_cast<int>(threadIdx.x) / warp_size;
  const u32 row = WARPS == 1 ? blockIdx.x * (blockDim.x / warp_size) + warp : blockIdx.x;
  if (row >= (p.last_row - p.first_row) * p.num_heads) return;
  const u32 heads = static_cast<u32>(p.num_heads), in_part = row / heads, h = row - in_part * heads;
  const i64 t = p.first_row + in_part;

  // The sequence of row t: the one before the first bound above t.
  const Bounds bounds = Bounds::of_queries(p);
  i64 above = p.batch + 1;
#pragma unroll 4
  for (i64 n = lane; n <= p.batch; n += warp_size) {
    if (bounds.clamped(n) > t) above = min(above, n);
  }
  above = warp_reduce<Min>(above);
  Extended::Reach seen{0, 0};
  i64 b = 0;
  bool refused = false;
  const A sink = p.sinks == nullptr ? none : static_cast<const A*>(p.sinks)[h * p.sink_stride];
  if (above >= 1 && above <= p.batch) {
    b = above - 1;
    const Extended sequence = Extended::of(p, b);
    seen = sequence.reach(p, static_cast<int>(t - sequence.row));
    refused = sequence.keys < 0;
  }
  const bool some = seen.low < seen.high;
  const int low = some ? block_of(seen.low) : 0, high = some ? block_of(seen.high - 1) : -1;
  const int pitch = round_up(p.d_v, 4);
  const i64 line = first_sum(p, t, h);
  const Row of{p,
               static_cast<const PartialSum<A>*>(p.stats) + line,
               static_cast<const A*>(p.parts) + line * pitch,
               sums + (WARPS == 1 ? warp * static_cast<int>(p.groups) : 0),
               pitch,
               low,
               high,
               low / fold_blocks,
               some ? high / fold_blocks : low / fold_blocks - 1,
               static_cast<A>(p.unit_log2)};
  of.find_sums(WARPS == 1 ? lane : static_cast<int>(threadIdx.x));
  A base = sink;
  for (int group = of.first; group <= of.last; ++group) base = math::maximum(base, of.sum_of(group).base);
  const A from = base_or_0(base);
  const A total = of.total(from) + (sink == none ? A(0) : exp2_fast((sink - from) * of.c));
  const A factor = refused ? numeric<A>::nan() : total == A(0) ? A(0) : A(1) / total;

  T* const y = static_cast<T*>(p.y) + b * p.y_stride[0] + h * p.y_stride[1] + t * p.y_stride[2];
#pragma unroll 1
  for (int column = 0; column < p.d_v; column += 4 * warp_size) {
    const int at = column + 4 * lane;
    typename Row::Four acc[WARPS == 1 ? Row::CHAINS : 1] = {};
    if (at < p.d_v) of.add(acc, warp, at, from);
    if constexpr (WARPS == 1) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const A all = (acc[0][k] + acc[1][k]) + (acc[2][k] + acc[3][k]);
        if (at + k < p.d_v) y[at + k] = from_acc<T>(all * factor);
      }
    } else {
      if (column > 0) __syncthreads();
#pragma unroll
      for (int k = 0; k < 4; ++k) part[warp][4 * lane + k] = acc[0][k];
      __syncthreads();
      const int mine = column + static_cast<int>(threadIdx.x);
      if (mine < p.d_v) {
        const A all = (part[0][threadIdx.x] + part[1][threadIdx.x]) + (part[2][threadIdx.x] + part[3][threadIdx.x]);
        y[mine] = from_acc<T>(all * factor);
      }
    }
  }
  if (p.lse != nullptr && (WARPS == 1 ? lane : static_cast<int>(threadIdx.x)) == 0) {
    const A log_sum = total == A(0) ? none : math::fma(base, static_cast<A>(p.natural), math::log(total));
    A* const lse = static_cast<A*>(p.lse) + b * p.lse_stride[0] + h * p.lse_stride[1] + t * p.lse_stride[2];
    *lse = refused ? numeric<A>::nan() : log_sum;
  }
}

}  // namespace baracuda
