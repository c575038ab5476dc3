// sample         ids[b] = first i with sum_{j <= i} w[j] > u * sum_j w[j],   u = uniform of Philox element b
//                w[j] = exp((x[j] - max) / temperature), or p[j] / max, where the cut-offs keep j; else 0
//
// One block for each row. The first pass finds the largest number, and where few candidates are wanted (top-k, or a short
// row) each thread's four largest: those above the k-th largest of the threads' largest are all that can matter, and
// everything else happens among them (candidates.cuh): one read of the row. Otherwise thresholds come from histograms,
// and the id from sums of segments (row_select.cuh); of top-p alone with fewer reads (nucleus.cuh).
#include "random/nucleus.cuh"

namespace baracuda::sampling {

// The elements that are kept: keys above tau and those equal to it up to column `last`; of these, with a window, those
// whose distance from the entropy is small enough.
template <class A> struct Kept {
  using K = typename Keys<A>::type;
  K tau;
  int last = -1;
  bool window = false;
  A shift = A(0);
  K near = K(0);
  int near_last = 0;

  BARACUDA_D bool cut(K key, u32 col) const { return key > tau || (key == tau && static_cast<int>(col) <= last); }
  BARACUDA_D bool operator()(K key, u32 col, const Scale<A>& s) const {
    if (!cut(key, col)) return false;
    if (!window) return true;
    const K at = nearness<A>(key, s, shift);
    return at > near || (at == near && static_cast<int>(col) <= near_last);
  }
};

// The stages of a choice by histograms, which share what each of them does: a threshold, and where its ties end.
enum Stage { by_count, by_mass, by_probability, by_entropy, drawing, listing, stages };

template <class T, int THREADS, bool WIDE, class P> struct Sampler {
  using R = Row<T, THREADS, WIDE>;
  using A = typename R::A;
  using K = typename R::K;
  const P& p;
  const Options<P, A>& o;
  R& row;
  Best<K> best;
  K bottom;

  BARACUDA_D bool is_in(const Kept<A>& kept, K key, u32 col) const { return key > bottom && kept(key, col, row.scale); }

  // The first histogram: of the logarithms of all weights.
  BARACUDA_D void count_first() const {
    Histogram& first = row.memory.first;
    row.clear(first);
    row.template visit<R::FLIGHT / 2>(0, p.cols, threadIdx.x, THREADS, [&](K key, u32) {
      const bool valid = key > bottom;
      row.add_warp(first, valid ? row.bin_of(key) : -1, valid && row.masses ? row.weight(key) : 0);
    });
    __syncthreads();
  }
  BARACUDA_D Spread<A> spread(const Kept<A>& kept) const {
    WideSum sum{};
    row.scan([&](K key, u32 col) {
      const u64 weight = is_in(kept, key, col) ? row.weight(key) : 0;
      if (weight != 0) sum.add(weight, row.scale.logarithm(Keys<A>::value(key)));
    });
    return Spread<A>(block_reduce<AddWide, THREADS>(sum), p.scale_bits);
  }

  // The row's probabilities, and its numbers where they are kept.
  BARACUDA_D void write_row(const Kept<A>& kept, u64 mass) const {
    const A share = static_cast<A>(static_cast<double>(1ull << p.scale_bits) / static_cast<double>(mass));
    const i64 index = blockIdx.x;
    T* const probs = p.probs == nullptr ? nullptr : static_cast<T*>(p.probs) + index * p.probs_strides[0];
    T* const masked = p.masked == nullptr ? nullptr : static_cast<T*>(p.masked) + index * p.masked_strides[0];
    const A none = p.likely ? A(0) : -numeric<A>::infinity();
    row.scan([&](K key, u32 col) {
      if (key == K(0)) return;  // beyond the row
      const bool stays = mass != 0 && is_in(kept, key, col);
      const A x = Keys<A>::value(key);
      if (probs != nullptr) {
        const A weight = x == row.scale.top ? A(1) : p.likely ? x / row.scale.top : math::exp(row.scale.logarithm(x));
        // Below an infinite number the logarithm is NaN, whose weight is none.
        probs[col * p.probs_strides[1]] = cast<T>(stays && weight > A(0) ? weight * share : A(0));
      }
      if (masked != nullptr) masked[col * p.masked_strides[1]] = cast<T>(stays ? x : none);
    });
  }

  // The `wanted` largest kept, all those above `tau` and of equal ones those up to column `last`, and their logprobs.
  BARACUDA_D void write_largest(const Kept<A>& kept, int wanted, K tau, int last, u64 mass) const {
    Memory<K>& memory = row.memory;
    if (threadIdx.x == 0) memory.listed = 0;
    __syncthreads();
    row.scan([&](K key, u32 col) {
      if (key < tau || !is_in(kept, key, col) || (key == tau && static_cast<int>(col) > last)) return;
      const u32 slot = atomicAdd(&memory.listed, 1u);
      memory.candidates.key[slot] = key, memory.candidates.col[slot] = col;
    });
    __syncthreads();
    const bool mine = static_cast<int>(threadIdx.x) < wanted;
    const K key = mine ? memory.candidates.key[threadIdx.x] : best.key;
    const u32 col = mine ? memory.candidates.col[threadIdx.x] : 0;
    const int rank = mine ? rank_of(memory.candidates, wanted, key, col) : p.top_n;
    write_top<A>(p, rank, col, log_probability(key, row.scale, mass, p.scale_bits), wanted);
  }
  BARACUDA_D void write_id(const Kept<A>& kept, int found, u64 mass) const {
    if (threadIdx.x != 0 || (p.ids == nullptr && p.logprob == nullptr)) return;
    const int id = p.tokens == nullptr ? found : o.token();
    const K key = id >= 0 && id < p.cols ? row.key_at(id) : K(0);
    const bool in = is_in(kept, key, static_cast<u32>(id));
    finish<A>(p, id, in ? log_probability(key, row.scale, mass, p.scale_bits) : -numeric<double>::infinity());
  }

  BARACUDA_D bool active(int stage, bool counts, bool sums) const {
    switch (stage) {
      case by_count: return counts;
      case by_mass: return sums;
      case by_probability: return o.by_probability();
      case by_entropy: return o.typical() < 1.0;
      case listing: return p.top_n > 0;
      default: return true;
    }
  }

  BARACUDA_D void by_histograms() const {
    Kept<A> kept{bottom};
    const bool counts = o.k > 0 && o.k < p.cols, sums = o.nucleus < 1.0;
    u64 total = 0, mass = 0;
    row.masses = sums;
    if (counts || sums) count_first();
    if (sums) {
      total = block_reduce<Sum, THREADS>(static_cast<u64>(row.memory.first.high[threadIdx.x]) << 32 |
                                         row.memory.first.low[threadIdx.x]);
    }
    const u32 valid = counts ? block_reduce<Sum, THREADS>(row.memory.first.count[threadIdx.x]) : 0;
#pragma unroll 1
    for (int stage = 0; stage < stages; ++stage) {
      if (!active(stage, counts && o.k < valid, sums)) continue;
      const bool near = stage == by_entropy;
      Range<K> r{1, near ? Keys<A>::of(A(0)) : best.key, 0, static_cast<u32>(p.cols), 0, 0};
      u64 goal = 0;
      A shift = A(0);
      if (stage == by_probability || near) {
        const Spread<A> s = spread(kept);
        if (!near) {
          const K below = o.cut_below(s, row.scale, best.key);
          if (below > kept.tau) kept.tau = below, kept.last = -1;
          continue;
        }
        goal = nucleus_goal(o.typical(), s.mass), shift = s.shift(), row.masses = true;
      }
      if (stage == by_count) goal = o.k;
      if (stage == by_mass) goal = nucleus_goal(o.nucleus, total);
      if (stage <= by_mass) {
        r = row.cross(row.memory.first, Range<K>{0, 0, 0, valid, 0, 0}, stage == by_mass, goal);
        row.key_range(r, bottom);
      }
      if (stage == listing) goal = min<u64>(count_kept(kept), p.top_n), row.masses = false;
      const bool heavy = stage == by_mass || near;
      const auto rank = [&](K key) { return near ? nearness<A>(key, row.scale, shift) : key; };
      const Kept<A> before = kept;
      const auto members = [&](K key, u32 col) { return is_in(stage <= by_mass ? Kept<A>{bottom} : before, key, col); };
      if (stage != drawing) r = row.refine(r, heavy, goal, members, rank);
      // Of equal ones as many as reach the goal.
      const auto found = row.descend(
          [&](K key, u32 col) {
            if (!members(key, col) || (stage != drawing && rank(key) != r.hi)) return 0ull;
            return heavy || stage == drawing ? row.weight(key) : 1ull;
          },
          [&](u64 sum) {
            if (stage != drawing) return goal - (heavy ? r.mass : r.count) - 1;
            return p.tokens == nullptr ? o.draw(sum) : sum;
          });
      if (stage <= by_mass) {
        const u64 ties = stage == by_mass ? div_up(goal - r.mass, row.weight(r.hi)) : goal - r.count;
        kept.tau = r.hi, kept.last = found.col, total = r.mass + ties * row.weight(r.hi);
      }
      if (near) kept.near = r.hi, kept.near_last = found.col, kept.shift = shift, kept.window = true;
      if (stage == drawing) mass = found.total, write_id(kept, found.col, mass);
      if (stage == listing) write_largest(kept, static_cast<int>(goal), r.hi, found.col, mass);
    }
    if (p.probs != nullptr || p.masked != nullptr) write_row(kept, mass);
  }
  BARACUDA_D u64 count_kept(const Kept<A>& kept) const {
    u64 count = 0;
    row.scan([&](K key, u32 col) { count += is_in(kept, key, col) ? 1 : 0; });
    return block_reduce<Sum, THREADS>(count);
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
  const Options<P, A> o(p);
  const bool likely = p.likely;
  R row{static_cast<const T*>(p.logits) + static_cast<i64>(blockIdx.x) * p.row_stride,
        p.col_stride,
        p.cols,
        p.scale_bits,
        {A(0), 1.0, likely},
        false,
        memory};
  if constexpr (is_same<A, float>) {
    if (nucleus_alone(p, o)) {
      const Nucleus kept = NucleusSearch<T, THREADS, WIDE, P>(p, o, row).search();
      if (kept.found) {
        const K bottom = Keys<A>::of(-numeric<A>::infinity());
        const Sampler<T, THREADS, WIDE, P> sampler{p, o, row, Best<K>{}, bottom};
        return sampler.write_id(Kept<A>{kept.tau, kept.last}, kept.col, kept.mass);
      }
      __syncthreads();
    }
  }
  const bool rows = p.probs != nullptr || p.masked != nullptr;
  const int wanted = o.k > 0 && o.k <= most_candidates && o.k < p.cols ? static_cast<int>(o.k)
                     : p.cols <= most_candidates                       ? p.cols
                                                                       : 0;
  const bool tracks = wanted > 0 && !rows;
  Held<K> held{};
  row.template visit<R::FLIGHT>(0, p.cols, threadIdx.x, THREADS, [&](K key, u32 col) {
    if (tracks) held.add(key, col);
    else if (key > held.key[0]) held.key[0] = key, held.col[0] = col;  // columns ascend within a thread
  });
  const Best<K> best = block_reduce<BestOf, THREADS>(Best<K>{held.key[0], held.key[0] ? held.col[0] : 0xffffffffu});
  K bottom = Keys<A>::of(likely ? A(0) : -numeric<A>::infinity());
  if (best.key <= bottom) {
    finish_none<A>(p);
    if (rows) {
      Sampler<T, THREADS, WIDE, P>{p, o, row, best, bottom}.write_row({bottom}, 0);
    }
    return;
  }
  row.scale = Scale<A>(Keys<A>::value(best.key), o.temperature, likely);
  if (o.sigmas() > 0.0) {
    Deviation deviation{};
    row.scan([&](K key, u32) { deviation.add(static_cast<double>(Keys<A>::value(key))); });
    const double reach = o.sigmas() * block_reduce<Pool, THREADS>(deviation).deviation();
    bottom = max<K>(bottom, exclusive<A>(static_cast<double>(row.scale.top) - reach, best.key));
  }
  if (o.min_p() > 0.0) bottom = max<K>(bottom, exclusive<A>(o.number_of(o.min_p(), row.scale), best.key));
  if (o.k == 1 && !rows && p.tokens == nullptr && p.top_n == 0) {
    if (threadIdx.x == 0) finish<A>(p, best.col, -0.0);  // -log(1), as where more is asked for
    return;
  }
  if (tracks) {
    const int n = shortlist(row, held, wanted, bottom);
    if (n <= short_list) return among_candidates<THREADS>(p, o, row, best, bottom, n);
  }
  Sampler<T, THREADS, WIDE, P>{p, o, row, best, bottom}.by_histograms();
}

}  // namespace baracuda
