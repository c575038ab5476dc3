// sample         ids[b] = first i with sum_{j <= i} w[j] > u * sum_j w[j],   u = uniform of Philox element b
//                w[j] = exp((x[j] - max) / temperature) where top-k, then top-p, keep j; else 0
//
// One block for each row, without a sort. Weights are fixed-point integers (2^scale_bits stands for 1), so sums are
// exact, and no order of threads, loads or atomics can change a bit. What top-k and top-p keep is a threshold: keys
// above `tau`, and the first `ties` of those equal to it. It is found from a histogram of the log weights, then from
// ever finer histograms of the keys inside the bin where the count (or the mass) crosses its target; a bin with few
// members is first copied to shared memory. The id is found by summing 32 segments, one for each warp, then 32 segments
// of the one that holds the target, and so on.
//
// A short row has one thread for each column, which counts the columns before its own (sample_short): up to 256 columns
// that beats the many barriers of the histograms. It sums and compares the same integers, so the id is the same.
#include <baracuda/philox.cuh>
#include <baracuda/reduce.cuh>
#include <baracuda/vector.cuh>

namespace baracuda::sampling {

constexpr int bins = 1024;         // one for each thread
constexpr int bins_per_unit = 32;  // of the first histogram: bins per unit of the weight's natural logarithm
constexpr int list_bytes = 16384;

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

// The largest logit, and 1 / temperature as two numbers.
template <class A> struct Scale {
  A top, inverse, inverse_low;
  BARACUDA_D Scale(A top, double temperature)
      : top(top), inverse(static_cast<A>(1.0 / temperature)),
        inverse_low(static_cast<A>(1.0 / temperature - static_cast<double>(inverse))) {}
};

// The largest logit weighs 1 even when infinite; all others are then 0, as is one whose scaled difference is NaN.
template <class A> BARACUDA_D u64 weight_of(A x, const Scale<A>& s, int scale_bits) {
  const A below = x - s.top;
  const A scaled = x == s.top ? A(0) : math::fma(below, s.inverse_low, below * s.inverse);
  if (!(scaled > A(-48))) return 0;  // below half a unit
  if constexpr (is_same<A, float>) return __float2ull_rn(math::exp(scaled) * __int_as_float((127 + scale_bits) << 23));
  else return __double2ull_rn(math::exp(scaled) * __longlong_as_double(static_cast<i64>(1023 + scale_bits) << 52));
}

// floor(a * b / 2^24), b < 2^24.
BARACUDA_D u64 scale_down(u64 a, u32 b) { return __umul64hi(a, b) << 40 | (a * b) >> 24; }

// Writes the results of a row. finish_drawn: `kept`, in units of 2^-scale_bits, is the mass that was drawn from.
template <class A, class P> BARACUDA_D void finish(const P& p, i64 id, double logprob) {
  const i64 index = blockIdx.x;
  if (p.wide_ids) static_cast<i64*>(p.ids)[index * p.ids_stride] = id;
  else static_cast<i32*>(p.ids)[index * p.ids_stride] = static_cast<i32>(id);
  if (p.logprob != nullptr) static_cast<A*>(p.logprob)[index * p.logprob_stride] = static_cast<A>(logprob);
}
template <class A, class P> BARACUDA_D void finish_none(const P& p) {
  finish<A>(p, -1, numeric<double>::nan());
  if (p.status != nullptr) atomicOr(p.status, 1u);
}
template <class A, class P> BARACUDA_D void finish_drawn(const P& p, i64 id, A x, A top, double temperature, u64 kept) {
  const double scaled = x == top ? 0.0 : (static_cast<double>(x) - static_cast<double>(top)) / temperature;
  finish<A>(p, id, scaled - math::log(static_cast<double>(kept) / static_cast<double>(1ull << p.scale_bits)));
}
template <class P> BARACUDA_D u64 draw(const P& p, u64 kept) {
  const u32 bits = philox_bits(static_cast<u64>(p.seed()), static_cast<u64>(p.offset()), static_cast<u64>(blockIdx.x));
  return scale_down(kept, bits >> 8);
}
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
template <class K> struct Memory {
  Histogram first, fine;
  K list[list_bytes / sizeof(K)];
  u32 listed;
  Range<K> found;
  u32 warp_count[32];
  u64 warp_mass[32], kept_mass;
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

  // Calls f(key, column) for every column of [begin, end), by thread `t` of `n`. Every thread of a warp calls f equally
  // often, with key 0 where it has no element. FLIGHT: 16-byte loads in flight for each thread (f is inlined for each
  // of their elements).
  template <int FLIGHT, class F> BARACUDA_D void visit(int begin, int end, int t, int n, const F& f) const {
    const i64 step = static_cast<i64>(n) * VEC;
#pragma unroll 1
    for (i64 tile = begin; tile < end; tile += step * FLIGHT) {
      Vec<T, VEC> v[FLIGHT];
#pragma unroll
      for (int k = 0; k < FLIGHT; ++k) {
        const i64 at = tile + k * step + static_cast<i64>(t) * VEC;
        if constexpr (WIDE) v[k] = load_vec<T, VEC, true>(base + at, end - at);
        else v[k] = load_strided<T, VEC>(base + at * stride, stride, end - at);
      }
#pragma unroll
      for (int k = 0; k < FLIGHT; ++k) {
        const i64 at = tile + k * step + static_cast<i64>(t) * VEC;
        if (tile + k * step >= end) break;
#pragma unroll
        for (int i = 0; i < VEC; ++i) f(at + i < end ? Keys<A>::of(to_acc(v[k][i])) : K(0), static_cast<u32>(at + i));
      }
    }
  }

  BARACUDA_D u64 weight(K key) const { return weight_of(Keys<A>::value(key), scale, scale_bits); }
  // Bin 0 has the largest keys. Monotone in the key: rounded products are monotone, the sum in `weight` is not.
  BARACUDA_D int bin_of(K key) const {
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

  // Narrows a bin of the first histogram down to the one key at which the count (or mass) reaches its target.
  BARACUDA_D Range<K> refine(Range<K> r, K bottom, bool by_mass, u64 target) const {
    bool listed = false;
    key_range(r, bottom);
    while (r.lo < r.hi) {
      if (!listed && r.members <= capacity) {
        if (threadIdx.x == 0) memory.listed = 0;
        __syncthreads();
        visit<FLIGHT>(0, cols, threadIdx.x, THREADS, [&](K key, u32) {
          if (key >= r.lo && key <= r.hi) memory.list[atomicAdd(&memory.listed, 1u)] = key;
        });
        listed = true;
      }
      int shift = 0;
      while ((r.hi - r.lo) >> shift >= bins) ++shift;
      clear(memory.fine);
      auto put = [&](K key) {
        const bool inside = key >= r.lo && key <= r.hi;
        add_warp(memory.fine, inside ? static_cast<int>((r.hi - key) >> shift) : -1,
                 inside && masses ? weight(key) : 0);
      };
      if (listed) {
        const u32 n = memory.listed;
        for (u32 i = 0; i < n; i += THREADS) put(i + threadIdx.x < n ? memory.list[i + threadIdx.x] : K(0));
      } else {
        visit<1>(0, cols, threadIdx.x, THREADS, [&](K key, u32) { put(key); });
      }
      __syncthreads();
      r = cross(memory.fine, r, by_mass, target);
      const K width = (K(1) << shift) - 1;
      r.hi -= static_cast<K>(r.bin) << shift;
      if (r.hi - r.lo > width) r.lo = r.hi - width;
    }
    return r;
  }
};

}  // namespace baracuda::sampling

namespace baracuda {

template <class T, int THREADS, bool WIDE, class P> BARACUDA_D void sample(const P& p) {
  using namespace sampling;
  using R = Row<T, THREADS, WIDE>;
  using A = typename R::A;
  using K = typename R::K;
  static_assert(THREADS == bins && THREADS / warp_size == warp_size, "a bin a thread, a segment a warp");
  __shared__ Memory<K> memory;
  const int lane = lane_id(), warp = static_cast<int>(threadIdx.x) / warp_size;
  const i64 index = blockIdx.x;

  R row{static_cast<const T*>(p.logits) + index * p.row_stride,
        p.col_stride,
        p.cols,
        p.scale_bits,
        {A(0), 1.0},
        false,
        memory};
  Best<K> best{0, 0xffffffffu};
  row.template visit<2 * R::FLIGHT>(0, p.cols, threadIdx.x, THREADS, [&](K key, u32 col) {
    if (key > best.key) best = {key, col};  // columns ascend within a thread
  });
  best = block_reduce<BestOf, THREADS>(best);
  const K bottom = Keys<A>::of(-numeric<A>::infinity());
  if (best.key <= bottom) {
    if (threadIdx.x == 0) finish_none<A>(p);
    return;
  }
  const double temperature = p.temperature(), nucleus = p.top_p();
  const i64 k = p.top_k();
  if (!(temperature > 0.0) || k == 1 || nucleus <= 0.0) {
    if (threadIdx.x == 0) finish<A>(p, best.col, 0.0);
    return;
  }
  row.scale = Scale<A>(Keys<A>::value(best.key), temperature);
  row.masses = nucleus < 1.0;

  K tau = bottom;  // keys above it are kept, and the first `ties` of those equal to it
  u32 ties = 0;
  if ((k > 0 && k < p.cols) || row.masses) {
    row.clear(memory.first);
    row.template visit<R::FLIGHT>(0, p.cols, threadIdx.x, THREADS, [&](K key, u32) {
      const bool valid = key > bottom;
      row.add_warp(memory.first, valid ? row.bin_of(key) : -1, valid && row.masses ? row.weight(key) : 0);
    });
    __syncthreads();
    const u32 valid = block_reduce<Sum, THREADS>(memory.first.count[threadIdx.x]);
    u64 total = block_reduce<Sum, THREADS>(static_cast<u64>(memory.first.high[threadIdx.x]) << 32 |
                                           memory.first.low[threadIdx.x]);
    const Range<K> all{0, 0, 0, valid, 0, 0};
#pragma unroll 1
    for (int by_mass = 0; by_mass < 2; ++by_mass) {  // top-k, then top-p of what top-k kept
      if (by_mass ? !row.masses : !(k > 0 && k < valid)) continue;
      const u64 goal = by_mass ? nucleus_goal(nucleus, total) : static_cast<u64>(k);
      const Range<K> cut = row.refine(row.cross(memory.first, all, by_mass, goal), bottom, by_mass, goal);
      tau = cut.hi;
      ties = static_cast<u32>(by_mass ? div_up(goal - cut.mass, row.weight(tau)) : goal - cut.count);
      total = cut.mass + ties * row.weight(tau);
    }
  }

  const u64 tie_weight = tau > bottom ? row.weight(tau) : 0;
  u64 target = 0, mass_before = 0;
  u32 ties_before = 0;
  int begin = 0, end = p.cols;
  bool first = true;
  while (first || end - begin > warp_size) {
    const int segment = round_up(div_up(end - begin, warp_size), R::VEC);
    const int from = static_cast<int>(min<i64>(end, begin + static_cast<i64>(warp) * segment));
    const int to = from + min(end - from, segment);
    u64 mass = 0;
    u32 equal = 0;
    row.template visit<R::FLIGHT>(from, to, lane, warp_size, [&](K key, u32) {
      if (key > tau) mass += row.weight(key);
      else if (key == tau) ++equal;
    });
    mass = warp_reduce<Sum>(mass);
    equal = warp_reduce<Sum>(equal);
    if (lane == 0) memory.warp_mass[warp] = mass, memory.warp_count[warp] = equal;
    __syncthreads();
    equal = memory.warp_count[lane];
    const u32 equals = ties_before + warp_scan(equal) - equal;  // of lower index than segment `lane`
    const u32 kept = equals < ties ? min(ties - equals, equal) : 0;
    const u64 own = memory.warp_mass[lane] + kept * tie_weight;
    const u64 running = mass_before + warp_scan(own);
    __syncthreads();
    if (first) {
      const u64 kept_mass = __shfl_sync(full_warp, running, warp_size - 1);
      if (threadIdx.x == 0) memory.kept_mass = kept_mass;  // read at the end by the same warp
      target = draw(p, kept_mass);
      first = false;
    }
    // the kept mass is > target, so there is one
    const int chosen = __ffs(__ballot_sync(full_warp, running > target)) - 1;
    mass_before = __shfl_sync(full_warp, running - own, chosen);
    ties_before = __shfl_sync(full_warp, equals, chosen);
    begin += chosen * segment;
    end = static_cast<int>(min<i64>(end, static_cast<i64>(begin) + segment));
  }

  const bool inside = begin + lane < end;
  const K key = inside ? Keys<A>::of(to_acc(row.base[(begin + lane) * row.stride])) : K(0);
  const u32 rank = ties_before + __popc(__ballot_sync(full_warp, inside && key == tau) & ((1u << lane) - 1));
  const u64 own = !inside ? 0 : key > tau ? row.weight(key) : key == tau && rank < ties ? tie_weight : 0;
  const u64 running = mass_before + warp_scan(own);
  const int chosen = __ffs(__ballot_sync(full_warp, running > target)) - 1;
  __syncwarp();
  if (warp == 0 && lane == chosen) {
    finish_drawn<A>(p, begin + lane, Keys<A>::value(key), row.scale.top, temperature, memory.kept_mass);
  }
}

// A row of at most THREADS columns, one for each thread.
template <class T, int THREADS, class P> BARACUDA_D void sample_short(const P& p) {
  using namespace sampling;
  using A = acc_t<T>;
  using K = typename Keys<A>::type;
  constexpr int warps = THREADS / warp_size;
  __shared__ K keys[THREADS];
  __shared__ u64 weights[THREADS], sums[warps];
  const int t = threadIdx.x, warp = t / warp_size;
  const double temperature = p.temperature(), nucleus = p.top_p();
  const i64 k = p.top_k();
  const bool inside = t < p.cols;
  const T* const base = static_cast<const T*>(p.logits) + static_cast<i64>(blockIdx.x) * p.row_stride;
  const K key = inside ? Keys<A>::of(to_acc(base[t * p.col_stride])) : K(0);
  const Best<K> best = block_reduce<BestOf, THREADS>(Best<K>{key, inside ? static_cast<u32>(t) : 0xffffffffu});
  const K bottom = Keys<A>::of(-numeric<A>::infinity());
  if (best.key <= bottom) {
    if (t == 0) finish_none<A>(p);
    return;
  }
  if (!(temperature > 0.0) || k == 1 || nucleus <= 0.0) {
    if (t == 0) finish<A>(p, best.col, 0.0);
    return;
  }
  const Scale<A> scale(Keys<A>::value(best.key), temperature);
  u64 own = key > bottom ? weight_of(Keys<A>::value(key), scale, p.scale_bits) : 0;
  const bool counts = k > 0 && k < p.cols, masses = nucleus < 1.0;
  if (counts || masses) {
    keys[t] = key;
    weights[t] = own;
    __syncthreads();
    int rank = 0;  // number and mass of larger keys and of equal ones to the left
    u64 before = 0;
#pragma unroll 4
    for (int j = 0; j < p.cols; ++j) {
      const bool precedes = keys[j] > key || (keys[j] == key && j < t);
      rank += precedes;
      if (masses) before += precedes ? weights[j] : 0;
    }
    if (counts && rank >= k) own = 0;
    if (masses && before >= nucleus_goal(nucleus, block_reduce<Sum, THREADS>(own))) own = 0;
  }
  u64 running = warp_scan(own), kept = 0;
  if (lane_id() == warp_size - 1) sums[warp] = running;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < warps; ++w) {
    if (w < warp) running += sums[w];
    kept += sums[w];
  }
  const u64 target = draw(p, kept);  // below `kept`, so the mass of exactly one thread contains it
  if (running > target && running - own <= target) {
    finish_drawn<A>(p, t, Keys<A>::value(key), scale.top, temperature, kept);
  }
}

}  // namespace baracuda
