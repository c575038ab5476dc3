#pragma once
// nucleus   top-p alone of a long row of logits: two reads find the threshold and the sums that the draw needs.
//
// The first read finds the largest logit and counts approximate masses on lines, equal intervals of logits, which are laid
// out by the row's first columns: one addition in shared memory an element. The line where the mass crosses its target
// then is known but for rounding, and the second read sums exactly what lies above it, segment by segment, and lists its
// members. Sums are those of row_select.cuh, integers, and are compared with the target: where lines did not serve (the
// largest logit far above the first columns, or a line with too many members), the caller finds the threshold by
// histograms, to the same bit.
#include "random/candidates.cuh"

namespace baracuda::sampling {

constexpr int lines = 2048, most_members = 3072;
constexpr int first_columns = 4096, shortest = 2048, longest = 1 << 20;

// Lines from `top` downwards: each `width` octaves of weight.
struct Lines {
  float top, rate, width;
  BARACUDA_D Lines(float top, float span, float slope)
      : top(top), rate(lines * slope / span), width(span / lines * 1.44269504f) {}
  // Which line x is on, and where: it does not rise with x.
  BARACUDA_D float position(float x) const {
    return ::fminf(::fmaxf((top - x) * rate, 0.0f), static_cast<float>(lines - 1));
  }
};

// The kept elements, as `Kept`; what they weigh, and the column drawn. `found`: whether lines served.
struct Nucleus {
  bool found;
  u32 tau;
  int last, col;
  u64 mass;
};

template <class T, int THREADS, bool WIDE, class P> struct NucleusSearch {
  using R = Row<T, THREADS, WIDE>;
  const P& p;
  const Options<P, float>& o;
  R& row;
  u32* const mass_of;  // of each line
  u32* const column;   // of each member, whose key is in the list

  BARACUDA_D NucleusSearch(const P& p, const Options<P, float>& o, R& row)
      : p(p), o(o), row(row), mass_of(row.memory.fine.count), column(row.memory.first.count) {
    static_assert(sizeof(Histogram) >= sizeof(u32) * most_members && R::capacity >= most_members, "room");
  }
  static BARACUDA_D bool counts(float x) { return x > -numeric<float>::infinity(); }  // neither -inf nor NaN

  // The range of the row's first finite numbers.
  BARACUDA_D void look(float& low, float& high) const {
    low = numeric<float>::infinity(), high = -numeric<float>::infinity();
    row.template walk<1>(0, min(p.cols, first_columns), threadIdx.x, THREADS, [&](float x, bool there, u32) {
      if (there && math::isfinite(x)) low = ::fminf(low, x), high = ::fmaxf(high, x);
    });
    low = block_reduce<Min, THREADS>(low), high = block_reduce<Max, THREADS>(high);
  }

  // The masses of all lines, 2^bits the largest of an element; returns the row's largest number.
  BARACUDA_D float fill(const Lines& at, int bits) const {
    for (int i = threadIdx.x; i < lines; i += THREADS) mass_of[i] = 0;
    if (threadIdx.x == 0) row.memory.listed = 0, row.memory.found.lo = lines, row.memory.found.hi = 0;
    __syncthreads();
    const float most = static_cast<float>(1 << bits);
    float best = -numeric<float>::infinity();
    row.template walk<R::FLIGHT / 2>(0, p.cols, threadIdx.x, THREADS, [&](float x, bool there, u32) {
      const bool valid = there && counts(x);
      if (valid) best = ::fmaxf(best, x);
      const float place = at.position(x), whole = __fadd_rz(place, 8388608.0f);  // 2^23 + the line
      const float weight = math::fast_exp2((whole - 8388608.0f - place) * at.width);
      const u32 mass = __float_as_uint(math::fma(weight, most, 8388608.0f)) - 0x4b000000u;
      add_warp(valid ? static_cast<int>(__float_as_uint(whole) - 0x4b000000u) : -1, mass);
    });
    __syncthreads();
    return block_reduce<Max, THREADS>(best);
  }
  // Equal logits would meet 32 times on one line: then the warp adds once.
  BARACUDA_D void add_warp(int line, u32 mass) const {
    const int leader = __shfl_sync(full_warp, line, 0);
    if (__all_sync(full_warp, line == leader)) {
      const u32 all = warp_reduce<Sum>(mass);
      if (line >= 0 && lane_id() == 0) atomicAdd(&mass_of[line], all);
    } else if (line >= 0) {
      atomicAdd(&mass_of[line], mass);
    }
  }

  // The lines that may hold the threshold: those around which the mass from the top crosses its target.
  BARACUDA_D void crossing(const Lines& at, float best, int bits, int& first, int& last) const {
    static_assert(lines == 2 * THREADS, "two lines a thread");
    const int t = threadIdx.x, warp = t / warp_size, begin = static_cast<int>(at.position(best));
    float mass[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int line = 2 * t + k;
      mass[k] = line < begin ? 0.0f : mass_of[line] * math::fast_exp2(static_cast<float>(begin - line) * at.width);
    }
    Memory<u32>& memory = row.memory;
    float running = warp_scan(mass[0] + mass[1]);
    if (lane_id() == warp_size - 1) memory.warp_count[warp] = __float_as_uint(running);
    __syncthreads();
    const float warps = warp_scan(__uint_as_float(memory.warp_count[lane_id()]));
    const float others = __shfl_sync(full_warp, warps, max(warp - 1, 0));
    const float total = __shfl_sync(full_warp, warps, warp_size - 1);
    running += warp ? others : 0.0f;
    const float goal = static_cast<float>(o.nucleus) * total, off = goal * (1.0f / (1 << bits) + 1.6e-5f);
    const float middle = running - mass[1], before = middle - mass[0];
    if (mass[0] > 0.0f && middle > goal - off && before < goal + off) reach(2 * t);
    if (mass[1] > 0.0f && running > goal - off && middle < goal + off) reach(2 * t + 1);
    __syncthreads();
    first = static_cast<int>(memory.found.lo), last = static_cast<int>(memory.found.hi);
    __syncthreads();
  }
  BARACUDA_D void reach(int line) const {
    atomicMin(&row.memory.found.lo, static_cast<u32>(line));
    atomicMax(&row.memory.found.hi, static_cast<u32>(line));
  }

  // Sums the segments' weights above the lines first … last into memory.warp_mass, and lists these lines' members;
  // returns the weight of all elements.
  BARACUDA_D u64 divide(const Lines& at, int first, int last, int segment) const {
    const float begin = static_cast<float>(first), end = static_cast<float>(last + 1);
    int from, to;
    row.segment_bounds(0, p.cols, segment, from, to);
    u64 all = 0, above = 0;
    row.template walk<R::FLIGHT / 2>(from, to, lane_id(), warp_size, [&](float x, bool there, u32 col) {
      if (!there || !counts(x)) return;
      const u64 weight = weight_of(x, row.scale, row.scale_bits);
      const float place = at.position(x);
      all += weight;
      if (place < begin) {
        above += weight;
      } else if (place < end) {
        const u32 slot = atomicAdd(&row.memory.listed, 1u);
        if (slot < most_members) row.memory.list[slot] = Keys<float>::of(x), column[slot] = col;
      }
    });
    above = warp_reduce<Sum>(above);
    if (lane_id() == 0) row.memory.warp_mass[threadIdx.x / warp_size] = above;
    return block_reduce<Sum, THREADS>(all);
  }

  template <class F> BARACUDA_D void each_member(u32 members, const F& f) const {
    for (u32 i = threadIdx.x; i < members; i += THREADS) f(row.memory.list[i], column[i]);
  }
  // The column of the `number`-th of the members whose key is tau, counted by columns.
  BARACUDA_D int tie(u32 members, u32 tau, u64 number) const {
    each_member(members, [&](u32 key, u32 col) {
      if (key != tau) return;
      u32 rank = 0;
      for (u32 j = 0; j < members; ++j) rank += row.memory.list[j] == tau && column[j] <= col;
      if (rank == number) row.memory.found.bin = static_cast<int>(col);
    });
    __syncthreads();
    return row.memory.found.bin;
  }

  BARACUDA_D Nucleus search() const {
    const Nucleus none{false, 0, 0, 0, 0};
    Memory<u32>& memory = row.memory;
    const float slope = static_cast<float>(1.0 / o.temperature);
    float low, high;
    look(low, high);
    if (!(low <= high) || !(slope > 1e-6f && slope < 1e6f)) return none;
    const float spread = ::fmaxf(::fminf((high - low) * slope, 40.0f), 0.5f);
    const int bits = min(32 - static_cast<int>(warp_size - __clz(p.cols)), 22);
    const Lines at(high + 2.0f * spread / slope, 3.25f * spread, slope);
    const float best = fill(at, bits);
    if (!(best <= at.top)) return none;
    int first, last;
    crossing(at, best, bits, first, last);
    if (first > last) return none;

    row.scale = Scale<float>(best, o.temperature, false);
    const int segment = R::segment_of(p.cols);
    const u64 total = divide(at, first, last, segment), goal = nucleus_goal(o.nucleus, total);
    const u32 members = memory.listed;
    if (members > most_members) return none;
    const u64 above_own = memory.warp_mass[lane_id()], above = warp_reduce<Sum>(above_own);
    u64 inside = 0;
    u32 lowest = ~0u, highest = 0;
    each_member(members, [&](u32 key, u32) {
      inside += row.weight(key), lowest = min(lowest, key), highest = max(highest, key);
    });
    inside = block_reduce<Sum, THREADS>(inside);
    if (above >= goal || above + inside < goal) return none;
    lowest = block_reduce<Min, THREADS>(lowest), highest = block_reduce<Max, THREADS>(highest);

    row.masses = true;
    Range<u32> r{lowest, highest, 0, members, above, 0};
    r = row.refine(r, true, goal, [](u32, u32) { return true; }, [](u32 key) { return key; }, true);
    const u64 weight = row.weight(r.hi), ties = div_up(goal - r.mass, weight);
    u64 equal = 0;
    each_member(members, [&](u32 key, u32) { equal += key == r.hi; });
    equal = block_reduce<Sum, THREADS>(equal);
    Nucleus kept{true, r.hi, 0x7fffffff, 0, r.mass + ties * weight};
    if (ties < equal) kept.last = tie(members, r.hi, ties);

    const auto stays = [&](u32 key, u32 col) {
      return key > kept.tau || (key == kept.tau && static_cast<int>(col) <= kept.last);
    };
    row.clear(memory.fine);
    each_member(members, [&](u32 key, u32 col) {
      if (stays(key, col)) R::add(memory.fine, static_cast<int>(col) / segment, 1, row.weight(key));
    });
    __syncthreads();
    const u64 own = above_own + (static_cast<u64>(memory.fine.high[lane_id()]) << 32 | memory.fine.low[lane_id()]);
    const u64 running = warp_scan(own);
    __syncthreads();
    const auto value = [&](u32 key, u32 col) { return stays(key, col) ? row.weight(key) : 0ull; };
    const u64 target = o.draw(kept.mass);
    int begin = 0, end = p.cols;
    u64 before;
    row.choose(own, running, segment, target, begin, end, before);
    kept.col = row.descend(value, [](u64) { return 0ull; }, begin, end, before, target, false).col;
    return kept;
  }
};

// Whether nothing but top-p restricts the draw of an id.
template <class P, class A> BARACUDA_D bool nucleus_alone(const P& p, const Options<P, A>& o) {
  if (p.cols < shortest || p.cols > longest || p.likely || p.tokens != nullptr || p.top_n > 0) return false;
  if (p.probs != nullptr || p.masked != nullptr || !(o.nucleus < 1.0) || (o.k > 0 && o.k < p.cols)) return false;
  return !(o.min_p() > 0.0 || o.sigmas() > 0.0 || o.typical() < 1.0 || o.by_probability());
}

}  // namespace baracuda::sampling
