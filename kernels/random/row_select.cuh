#pragma once
// row_select   thresholds and sums of one row of logits or probabilities by one block, without a sort.
//
// Weights are fixed-point integers (2^scale_bits stands for 1), so sums are exact, and no order of threads, loads or
// atomics can change a bit. A threshold is found from a histogram of the log weights, then from ever finer histograms
// of the keys inside the bin where the count (or the mass) crosses its target; a bin with few members is first copied to
// shared memory.
#include <baracuda/philox.cuh>
#include <baracuda/reduce.cuh>
#include <baracuda/vector.cuh>

namespace baracuda::sampling {

constexpr int bins = 1024;         // one for each thread
constexpr int bins_per_unit = 32;  // of the first histogram: bins per unit of the weight's natural logarithm
constexpr int list_bytes = 16384;
constexpr int short_list = 1024;  // candidates that a list of their own holds, one for each thread

// ---- order-preserving integer keys ----------------------------------------------------------------------------------

// A larger value has a larger key; -0 counts as +0, NaN as -inf. Key 0 belongs to no value.
template <class A> struct Keys;
template <> struct Keys<float> {
  using type = u32;
  static BARACUDA_D u32 of(float x) {
    const u32 b = __float_as_uint((x != x ? -numeric<float>::infinity() : x) + 0.0f);
    return b >> 31 ? ~b : b | 0x80000000u;
  }
  static BARACUDA_D float value(u32 key) { return __uint_as_float(key >> 31 ? key ^ 0x80000000u : ~key); }
};
template <> struct Keys<double> {
  using type = u64;
  static BARACUDA_D u64 of(double x) {
    const u64 b = static_cast<u64>(__double_as_longlong((x != x ? -numeric<double>::infinity() : x) + 0.0));
    return b >> 63 ? ~b : b | 0x8000000000000000ull;
  }
  static BARACUDA_D double value(u64 key) {
    return __longlong_as_double(static_cast<i64>(key >> 63 ? key ^ 0x8000000000000000ull : ~key));
  }
};

template <class K> struct Best {
  K key;
  u32 col;
};
struct BestOf {  // the largest key, and of equal ones the lowest column
  static constexpr bool symmetric = true;
  template <class B> static BARACUDA_D B apply(B a, B b) {
    return b.key > a.key || (b.key == a.key && b.col < a.col) ? b : a;
  }
};

// Inclusive sum over the lanes of a warp.
template <class U> BARACUDA_D U warp_scan(U x) {
#pragma unroll
  for (int step = 1; step < warp_size; step *= 2) {
    const U other = __shfl_up_sync(full_warp, x, step);
    if (lane_id() >= step) x += other;
  }
  return x;
}

// The largest number of the row, and 1 / temperature as two numbers; `likely`: the row has probabilities, not logits.
template <class A> struct Scale {
  A top, inverse, inverse_low;
  bool likely;
  BARACUDA_D Scale(A top, double temperature, bool likely)
      : top(top), inverse(static_cast<A>(1.0 / temperature)),
        inverse_low(static_cast<A>(1.0 / temperature - static_cast<double>(inverse))), likely(likely) {}

  // The logarithm of x's weight. That of the largest is 0 even when it is infinite; NaN where there is none.
  BARACUDA_D A logarithm(A x) const {
    if (x == top) return A(0);
    if (likely) return math::log(x / top);
    const A below = x - top;
    return math::fma(below, inverse_low, below * inverse);
  }
};

// In units of 2^-scale_bits; below half a unit 0.
template <class A> BARACUDA_D u64 weight_of(A x, const Scale<A>& s, int scale_bits) {
  A weight;
  if (s.likely) {
    weight = x == s.top ? A(1) : x / s.top;
  } else {
    const A scaled = s.logarithm(x);
    if (!(scaled > A(-48))) return 0;
    weight = math::exp(scaled);
  }
  if constexpr (is_same<A, float>) return __float2ull_rn(weight * __int_as_float((127 + scale_bits) << 23));
  else return __double2ull_rn(weight * __longlong_as_double(static_cast<i64>(1023 + scale_bits) << 52));
}

// floor(a * b / 2^24), b < 2^24.
BARACUDA_D u64 scale_down(u64 a, u32 b) { return __umul64hi(a, b) << 40 | (a * b) >> 24; }

// The mass at which top-p stops.
BARACUDA_D u64 nucleus_goal(double nucleus, u64 total) {
  return max<u64>(1, min(total, __double2ull_ru(nucleus * static_cast<double>(total))));
}

// ---- shared memory --------------------------------------------------------------------------------------------------

struct Histogram {
  u32 count[bins], low[bins], high[bins];  // mass = high : low
};
// Keys lo … hi; `members` of them are in the row; `count` and `mass` are those of all larger keys.
template <class K> struct Range {
  K lo, hi;
  u32 count, members;
  u64 mass;
  int bin;
};
// Candidates with their columns and weights.
template <class K> struct ShortList {
  K key[short_list];
  u64 weight[short_list];
  u32 col[short_list];
};
template <class K> struct Memory {
  Histogram first, fine;
  union {
    K list[list_bytes / sizeof(K)];
    ShortList<K> candidates;
  };
  u32 listed;
  Range<K> found;
  u32 warp_count[32];
  u64 warp_mass[32];
};

// ---- one row --------------------------------------------------------------------------------------------------------

template <class T, int THREADS, bool WIDE> struct Row {
  using A = acc_t<T>;
  using K = typename Keys<A>::type;
  static constexpr int VEC = WIDE ? vec_elems<T> : 1;
  static constexpr int FLIGHT = is_same<T, float> || !WIDE ? 4 : 2;
  static constexpr int capacity = list_bytes / sizeof(K);

  const T* base;
  i64 stride;
  int cols, scale_bits;  // 2^scale_bits is the fixed-point 1
  Scale<A> scale;
  bool masses;  // whether histograms need masses: top-k alone only counts
  Memory<K>& memory;

  // Calls f(number, whether there is one, column) for every column of [begin, end), by thread `t` of `n`; begin, and end
  // but for the row's, are multiples of VEC. Every thread of a warp calls f equally often. FLIGHT: loads in flight for
  // each thread (f is inlined for each of their elements). Beyond the end they read the last chunk again: a load with a
  // guard would be waited for before the next one.
  template <int FLIGHT, class F> BARACUDA_D void walk(int begin, int end, int t, int n, const F& f) const {
    const i64 step = static_cast<i64>(n) * VEC;
    const int whole = min(end, cols - cols % VEC);
#pragma unroll 1
    for (i64 tile = begin; tile < whole; tile += step * FLIGHT) {
      Vec<T, VEC> v[FLIGHT];
#pragma unroll
      for (int k = 0; k < FLIGHT; ++k) {
        const i64 at = min<i64>(tile + k * step + static_cast<i64>(t) * VEC, whole - VEC);
        if constexpr (WIDE) v[k] = load<VEC>(base + at);
        else v[k][0] = base[at * stride];
      }
#pragma unroll
      for (int k = 0; k < FLIGHT; ++k) {
        const i64 at = tile + k * step + static_cast<i64>(t) * VEC;
        if (tile + k * step >= whole) break;
#pragma unroll
        for (int i = 0; i < VEC; ++i) f(to_acc(v[k][i]), at < whole, static_cast<u32>(at + i));
      }
    }
    if constexpr (VEC > 1) {  // fewer than a chunk
      for (int tile = max(begin, whole); tile < end; tile += n) {
        const int at = tile + t;
        f(to_acc(base[min(at, cols - 1)]), at < end, static_cast<u32>(at));
      }
    }
  }
  // The same with keys, 0 where there is no element.
  template <int FLIGHT, class F> BARACUDA_D void visit(int begin, int end, int t, int n, const F& f) const {
    walk<FLIGHT>(begin, end, t, n, [&](A x, bool there, u32 col) { f(there ? Keys<A>::of(x) : K(0), col); });
  }

  // The same element by element, four loads in flight: f is inlined four times, not for each element of wide chunks.
  template <class F> BARACUDA_D void scan(const F& f) const {
#pragma unroll 1
    for (i64 tile = threadIdx.x; tile - threadIdx.x < cols; tile += 4 * THREADS) {
      T x[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (tile + k * THREADS < cols) x[k] = base[(tile + k * THREADS) * stride];
      }
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const i64 at = tile + k * THREADS;
        f(at < cols ? Keys<A>::of(to_acc(x[k])) : K(0), static_cast<u32>(at));
      }
    }
  }

  BARACUDA_D u64 weight(K key) const { return weight_of(Keys<A>::value(key), scale, scale_bits); }
  // Bin 0 has the largest keys. Monotone in the key: rounded products are monotone, the sum in `weight` is not.
  // Probabilities have 8 bins for each power of two.
  BARACUDA_D int bin_of(K key) const {
    if (scale.likely) {
      const K at = (Keys<A>::of(scale.top) - key) >> (sizeof(K) == 4 ? 20 : 49);
      return at < bins ? static_cast<int>(at) : bins - 1;
    }
    const A x = Keys<A>::value(key);
    const A at = x == scale.top ? A(0) : (scale.top - x) * scale.inverse * A(bins_per_unit);
    return at < A(bins - 1) ? static_cast<int>(at) : bins - 1;
  }

  // ---- histograms ----

  BARACUDA_D void clear(Histogram& h) const {
    const int t = threadIdx.x;
    h.count[t] = h.low[t] = h.high[t] = 0;
    __syncthreads();
  }
  static BARACUDA_D void add(Histogram& h, int bin, u32 count, u64 mass) {
    atomicAdd(&h.count[bin], count);
    if (mass == 0) return;
    const u32 low = static_cast<u32>(mass), before = atomicAdd(&h.low[bin], low);
    const u32 high = static_cast<u32>(mass >> 32) + (before + low < before ? 1u : 0u);
    if (high != 0) atomicAdd(&h.high[bin], high);
  }
  static __device__ __noinline__ void add_whole_warp(Histogram& h, int bin, u64 mass) {
    mass = warp_reduce<Sum>(mass);
    if (lane_id() == 0) add(h, bin, warp_size, mass);
  }
  // Called by all lanes of a warp; bin -1: none. Equal logits would collide 32 times in one bin: then the warp adds
  // once.
  static BARACUDA_D void add_warp(Histogram& h, int bin, u64 mass) {
    const int leader = __shfl_sync(full_warp, bin, 0);
    if (__all_sync(full_warp, bin == leader)) {
      if (leader >= 0) add_whole_warp(h, bin, mass);
    } else if (bin >= 0) {
      add(h, bin, 1, mass);
    }
  }

  // The bin in which the running count (or mass) over bins 0, 1, …, plus that of all keys above `from`, reaches
  // `target`, which must be in (sum above, sum with all bins]. Every thread gets the result; .lo and .hi are copied
  // from `from`.
  BARACUDA_D Range<K> cross(const Histogram& h, const Range<K>& from, bool by_mass, u64 target) const {
    const int t = threadIdx.x, warp = t / warp_size;
    const u32 count = h.count[t];
    const u64 mass = static_cast<u64>(h.high[t]) << 32 | h.low[t];
    u32 counts = warp_scan(count);
    u64 masses = warp_scan(mass);
    if (lane_id() == warp_size - 1) memory.warp_count[warp] = counts, memory.warp_mass[warp] = masses;
    __syncthreads();
    const u32 all_counts = warp_scan(memory.warp_count[lane_id()]);
    const u64 all_masses = warp_scan(memory.warp_mass[lane_id()]);
    const u32 counts_before = __shfl_sync(full_warp, all_counts, max(warp - 1, 0));
    const u64 masses_before = __shfl_sync(full_warp, all_masses, max(warp - 1, 0));
    counts += from.count + (warp ? counts_before : 0u);
    masses += from.mass + (warp ? masses_before : 0ull);
    const bool here =
        by_mass ? masses - mass < target && target <= masses : counts - count < target && target <= counts;
    if (here) memory.found = {from.lo, from.hi, counts - count, count, masses - mass, t};
    __syncthreads();
    const Range<K> found = memory.found;
    __syncthreads();
    return found;
  }

  // The least key of [low, high] for which `holds` is true. It must be true for `high`, and false below some key and
  // true from there on. Called by a whole warp: 32 probes a step.
  template <class F> static BARACUDA_D K first_key(K low, K high, const F& holds) {
    while (low < high) {
      const K step = (high - low) / warp_size + 1, probe = min<K>(high, low + step * static_cast<K>(lane_id()));
      const int lane = __ffs(__ballot_sync(full_warp, holds(probe))) - 1;
      const K at = low + step * static_cast<K>(max(lane, 0));
      if (lane < 0) {
        low += step * (warp_size - 1) + 1;
      } else {
        high = min<K>(high, at);
        low = lane == 0 ? high : at - step + 1;
      }
    }
    return low;
  }

  // The keys of a bin of the first histogram; bin_of is monotone.
  BARACUDA_D void key_range(Range<K>& r, K bottom) const {
    const K most = Keys<A>::of(scale.top);
    const int bin = r.bin, warp = static_cast<int>(threadIdx.x) / warp_size;
    if (warp == 0) {
      const K low = first_key(bottom + 1, most, [&](K key) { return bin_of(key) <= bin; });
      if (lane_id() == 0) memory.found.lo = low;
    } else if (warp == 1) {
      const K next = first_key(bottom + 1, most + 1, [&](K key) { return key > most || bin_of(key) < bin; });
      if (lane_id() == 0) memory.found.hi = next - 1;
    }
    __syncthreads();
    r.lo = memory.found.lo, r.hi = memory.found.hi;
    __syncthreads();
  }

  // Narrows keys r.lo … r.hi, of which `r.members` are in the row, down to the one at which the count (or mass) reaches
  // its target. The keys are rank(key) of those elements that are members(key, column); `listed`: of those in the list.
  template <class M, class F>
  BARACUDA_D Range<K> refine(Range<K> r, bool by_mass, u64 target, const M& members, const F& rank,
                             bool listed = false) const {
    while (r.lo < r.hi) {
      if (!listed && r.members <= capacity) {
        if (threadIdx.x == 0) memory.listed = 0;
        __syncthreads();
        scan([&](K key, u32 col) {
          if (!members(key, col)) return;
          const K at = rank(key);
          if (at >= r.lo && at <= r.hi) memory.list[atomicAdd(&memory.listed, 1u)] = key;
        });
        listed = true;
      }
      int shift = 0;
      while ((r.hi - r.lo) >> shift >= bins) ++shift;
      clear(memory.fine);
      auto put = [&](K key, bool member) {
        const K at = member ? rank(key) : K(0);
        const bool inside = at >= r.lo && at <= r.hi;  // r.lo > 0
        add_warp(memory.fine, inside ? static_cast<int>((r.hi - at) >> shift) : -1, inside && masses ? weight(key) : 0);
      };
      if (listed) {
        const u32 n = memory.listed;
        for (u32 i = 0; i < n; i += THREADS) {
          const bool there = i + threadIdx.x < n;
          put(there ? memory.list[i + threadIdx.x] : K(0), there);
        }
      } else {
        scan([&](K key, u32 col) { put(key, members(key, col)); });
      }
      __syncthreads();
      r = cross(memory.fine, r, by_mass, target);
      const K width = (K(1) << shift) - 1;
      r.hi -= static_cast<K>(r.bin) << shift;
      if (r.hi - r.lo > width) r.lo = r.hi - width;
    }
    return r;
  }

  // ---- sums in the order of columns ----

  struct Found {
    int col;  // -1 where the target is not below the total
    u64 total;
  };
  // The first column at which the sum of value(key, column) passes aim(total): of 32 segments, one for each warp, then of
  // 32 segments of the one that holds it, and so on.
  template <class V, class G> BARACUDA_D Found descend(const V& value, const G& aim) const {
    return descend(value, aim, 0, cols, 0, 0, true);
  }
  // From a segment [begin, end) on, with the sum `before` it; `first`: the target is not known yet.
  template <class V, class G>
  BARACUDA_D Found descend(const V& value, const G& aim, int begin, int end, u64 before, u64 target, bool first) const {
    const int lane = lane_id(), warp = static_cast<int>(threadIdx.x) / warp_size;
    u64 total = 0;
    while (first || end - begin > warp_size) {
      const int segment = segment_of(end - begin);
      int from, to;
      segment_bounds(begin, end, segment, from, to);
      u64 sum = 0;
      visit<1>(from, to, lane, warp_size, [&](K key, u32 col) { sum += value(key, col); });
      sum = warp_reduce<Sum>(sum);
      if (lane == 0) memory.warp_mass[warp] = sum;
      __syncthreads();
      const u64 own = memory.warp_mass[lane], running = before + warp_scan(own);
      __syncthreads();
      if (first) {
        total = __shfl_sync(full_warp, running, warp_size - 1);
        target = aim(total);
        if (target >= total) return {-1, total};
        first = false;
      }
      choose(own, running, segment, target, begin, end, before);
    }
    const bool inside = begin + lane < end;
    const K key = inside ? key_at(begin + lane) : K(0);
    const u64 running = before + warp_scan(inside ? value(key, static_cast<u32>(begin + lane)) : 0ull);
    return {begin + __ffs(__ballot_sync(full_warp, running > target)) - 1, total};
  }
  static BARACUDA_D int segment_of(int length) { return round_up(div_up(length, warp_size), VEC); }
  // The warp's segment of [begin, end).
  static BARACUDA_D void segment_bounds(int begin, int end, int segment, int& from, int& to) {
    const int warp = static_cast<int>(threadIdx.x) / warp_size;
    from = static_cast<int>(min<i64>(end, begin + static_cast<i64>(warp) * segment));
    to = from + min(end - from, segment);
  }
  // Narrows [begin, end) to the segment in which the sum passes `target`. A lane has its segment's sum, and that up to
  // its end.
  static BARACUDA_D void choose(u64 own, u64 running, int segment, u64 target, int& begin, int& end, u64& before) {
    const int chosen = __ffs(__ballot_sync(full_warp, running > target)) - 1;
    before = __shfl_sync(full_warp, running - own, chosen);
    begin += chosen * segment;
    end = static_cast<int>(min<i64>(end, static_cast<i64>(begin) + segment));
  }
  BARACUDA_D K key_at(int col) const { return Keys<A>::of(to_acc(base[col * stride])); }
};

}  // namespace baracuda::sampling
