// sample         ids[b] = first i with sum_{j <= i} w[j] > u * sum_j w[j],   u = uniform of Philox element b
//                w[j] = exp((x[j] - max) / temperature), or p[j] / max, where the cut-offs keep j; else 0
//
// One block for each row. The first pass finds the largest number, and where few candidates are wanted (top-k, or a short
// row) each thread's four largest: those above the k-th largest of the threads' largest are all that can matter, and
// everything else happens among them (candidates.cuh): one read of the row. Otherwise thresholds come from histograms,
// and the id from sums of segments (row_select.cuh).
#include "random/candidates.cuh"

namespace baracuda::sampling {

// The elements that are kept: keys above tau and those equal to it up to column `last`; of these, with a window, those
// whose distance from the entropy is small enough.
template <class A> struct Kept {
  using K = typename Keys<A>::type;
  K tau;
  int last;
  bool window;
  A shift;
  K near;
  int near_last;

  BARACUDA_D bool cut(K key, u32 col) const { return key > tau || (key == tau && static_cast<int>(col) <= last); }
  BARACUDA_D bool operator()(K key, u32 col, const Scale<A>& s) const {
    if (!cut(key, col)) return false;
    if (!window) return true;
    const K at = nearness<A>(key, s, shift);
    return at > near || (at == near && static_cast<int>(col) <= near_last);
  }
};

template <class T, int THREADS, bool WIDE, class P> struct Sampler {
  using R = Row<T, THREADS, WIDE>;
  using A = typename R::A;
  using K = typename R::K;
  const P& p;
  const Options<A>& o;
  R& row;
  Best<K> best;
  K bottom;

  BARACUDA_D u64 kept_weight(const Kept<A>& kept, K key, u32 col) const {
    return key > bottom && kept(key, col, row.scale) ? row.weight(key) : 0;
  }

  // top-k, then top-p of what it kept.
  BARACUDA_D void cut_ranks(Kept<A>& kept) const {
    const bool by_count = o.k > 0 && o.k < p.cols;
    row.masses = o.nucleus < 1.0;
    if (!by_count && !row.masses) return;
    Memory<K>& memory = row.memory;
    const auto valid_key = [&](K key, u32) { return key > bottom; };
    const auto same = [](K key) { return key; };
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
    u32 ties = 0, members = 0;
#pragma unroll 1
    for (int by_mass = 0; by_mass < 2; ++by_mass) {
      if (by_mass ? !row.masses : !(by_count && o.k < valid)) continue;
      const u64 goal = by_mass ? nucleus_goal(o.nucleus, total) : static_cast<u64>(o.k);
      Range<K> bin = row.cross(memory.first, all, by_mass, goal);
      row.key_range(bin, bottom);
      const Range<K> found = row.refine(bin, by_mass, goal, valid_key, same);
      kept.tau = found.hi, members = found.members;
      ties = static_cast<u32>(by_mass ? div_up(goal - found.mass, row.weight(found.hi)) : goal - found.count);
      total = found.mass + ties * row.weight(found.hi);
    }
    if (members == 0) return;
    const K tau = kept.tau;
    kept.last = ties >= members ? 0x7fffffff : row.nth(ties, [&](K key, u32) { return key == tau; });
  }

  BARACUDA_D Spread<A> spread(const Kept<A>& kept) const {
    WideSum sum{};
    row.template visit<R::FLIGHT>(0, p.cols, threadIdx.x, THREADS, [&](K key, u32 col) {
      const u64 weight = kept_weight(kept, key, col);
      if (weight != 0) sum.add(weight, row.scale.logarithm(Keys<A>::value(key)));
    });
    return Spread<A>(block_reduce<AddWide, THREADS>(sum), p.scale_bits);
  }

  BARACUDA_D void cut_window(Kept<A>& kept) const {
    const Spread<A> found = spread(kept);
    const u64 goal = nucleus_goal(o.typical, found.mass);
    const A shift = found.shift();
    const auto members = [&](K key, u32 col) { return key > bottom && kept.cut(key, col); };
    const auto rank = [&](K key) { return nearness<A>(key, row.scale, shift); };
    row.masses = true;
    const Range<K> all{1, Keys<A>::of(A(0)), 0, static_cast<u32>(p.cols), 0, 0};
    const Range<K> at = row.refine(all, true, goal, members, rank);
    // Equal distances may be of different weights, on both sides of the entropy: as many as reach the goal.
    kept.near_last =
        row.descend([&](K key, u32 col) { return members(key, col) && rank(key) == at.hi ? row.weight(key) : 0ull; },
                    [&](u64) { return goal - at.mass - 1; })
            .col;
    kept.near = at.hi, kept.shift = shift, kept.window = true;
  }

  // The row's probabilities, and its numbers where they are kept.
  BARACUDA_D void write_row(const Kept<A>& kept, u64 mass) const {
    const A share = static_cast<A>(static_cast<double>(1ull << p.scale_bits) / static_cast<double>(mass));
    const i64 index = blockIdx.x;
    T* const probs = p.probs == nullptr ? nullptr : static_cast<T*>(p.probs) + index * p.probs_strides[0];
    T* const masked = p.masked == nullptr ? nullptr : static_cast<T*>(p.masked) + index * p.masked_strides[0];
    const A none = p.likely ? A(0) : -numeric<A>::infinity();
    row.template visit<R::FLIGHT>(0, p.cols, threadIdx.x, THREADS, [&](K key, u32 col) {
      if (key == K(0)) return;  // beyond the row
      const bool stays = mass != 0 && key > bottom && kept(key, col, row.scale);
      const A x = Keys<A>::value(key);
      const A weight = row.scale.likely ? x / row.scale.top : math::exp(row.scale.logarithm(x));
      if (probs != nullptr) probs[col * p.probs_strides[1]] = cast<T>(stays ? weight * share : A(0));
      if (masked != nullptr) masked[col * p.masked_strides[1]] = cast<T>(stays ? x : none);
    });
  }

  // The largest kept of the row into the list of candidates, at most top_n; returns how many.
  BARACUDA_D int list_top(const Kept<A>& kept) const {
    const auto members = [&](K key, u32 col) { return key > bottom && kept(key, col, row.scale); };
    const u64 there =
        row.descend([&](K key, u32 col) { return members(key, col) ? 1ull : 0ull; }, [](u64 total) { return total; })
            .total;
    const u64 wanted = min<u64>(there, p.top_n);
    row.masses = false;
    const Range<K> all{1, best.key, 0, static_cast<u32>(there), 0, 0};
    const Range<K> at = row.refine(all, false, wanted, members, [](K key) { return key; });
    const u32 ties = static_cast<u32>(wanted) - at.count;
    const int last = row.nth(ties, [&](K key, u32 col) { return key == at.hi && members(key, col); });
    if (threadIdx.x == 0) row.memory.listed = 0;
    __syncthreads();
    row.template visit<R::FLIGHT>(0, p.cols, threadIdx.x, THREADS, [&](K key, u32 col) {
      if (!members(key, col) || !(key > at.hi || (key == at.hi && static_cast<int>(col) <= last))) return;
      const u32 slot = atomicAdd(&row.memory.listed, 1u);
      row.memory.candidates.key[slot] = key, row.memory.candidates.col[slot] = col;
    });
    __syncthreads();
    return static_cast<int>(wanted);
  }

  BARACUDA_D void by_histograms() const {
    Kept<A> kept{bottom, -1, false, A(0), K(0), 0};
    cut_ranks(kept);
    if (o.epsilon > 0.0 || o.eta > 0.0) {
      const K below = o.cut_below(spread(kept), row.scale, best.key);
      if (below > kept.tau) kept.tau = below, kept.last = -1;
    }
    if (o.typical < 1.0) cut_window(kept);
    const auto found = row.descend([&](K key, u32 col) { return kept_weight(kept, key, col); },
                                   [&](u64 mass) { return p.tokens == nullptr ? o.draw(mass) : mass; });
    const int id = p.tokens == nullptr ? found.col : o.token;
    if (threadIdx.x == 0 && (p.ids != nullptr || p.logprob != nullptr)) {
      const K key = id >= 0 && id < p.cols ? row.key_at(id) : K(0);
      const bool in = key > bottom && kept(key, static_cast<u32>(id), row.scale);
      finish<A>(p, id, in ? log_probability(key, row.scale, found.total, p.scale_bits) : -numeric<double>::infinity());
    }
    if (p.top_n > 0) {
      const int n = list_top(kept);
      const bool mine = static_cast<int>(threadIdx.x) < n;
      const K key = mine ? row.memory.candidates.key[threadIdx.x] : K(0);
      const u32 col = mine ? row.memory.candidates.col[threadIdx.x] : 0;
      const int rank = mine ? rank_of(row.memory.candidates, n, key, col) : p.top_n;
      write_top<A>(p, rank, col, log_probability(key, row.scale, found.total, p.scale_bits), n);
    }
    if (p.probs != nullptr || p.masked != nullptr) write_row(kept, found.total);
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
  Options<A> o(p);
  const bool likely = p.likely;
  R row{static_cast<const T*>(p.logits) + static_cast<i64>(blockIdx.x) * p.row_stride,
        p.col_stride,
        p.cols,
        p.scale_bits,
        {A(0), 1.0, likely},
        false,
        memory};
  const bool rows = p.probs != nullptr || p.masked != nullptr;
  const int wanted = o.k > 0 && o.k <= most_candidates && o.k < p.cols ? static_cast<int>(o.k)
                     : p.cols <= most_candidates                       ? p.cols
                                                                       : 0;
  const bool tracks = wanted > 0 && !rows;
  Held<K> held{};
  Deviation deviation{};
  const bool deviates = o.sigmas > 0.0;
  row.template visit<R::FLIGHT>(0, p.cols, threadIdx.x, THREADS, [&](K key, u32 col) {
    if (tracks) held.add(key, col);
    else if (key > held.key[0]) held.key[0] = key, held.col[0] = col;  // columns ascend within a thread
    if (deviates) deviation.add(static_cast<double>(Keys<A>::value(key)));
  });
  const Best<K> best = block_reduce<BestOf, THREADS>(Best<K>{held.key[0], held.key[0] ? held.col[0] : 0xffffffffu});
  K bottom = Keys<A>::of(likely ? A(0) : -numeric<A>::infinity());
  if (best.key <= bottom) {
    finish_none<A>(p);
    if (rows) {
      Sampler<T, THREADS, WIDE, P>{p, o, row, best, bottom}.write_row({bottom, -1, false, A(0), K(0), 0}, 0);
    }
    return;
  }
  row.scale = Scale<A>(Keys<A>::value(best.key), o.temperature, likely);
  if (deviates) {
    const double reach = o.sigmas * block_reduce<Pool, THREADS>(deviation).deviation();
    bottom = max<K>(bottom, exclusive<A>(static_cast<double>(row.scale.top) - reach, best.key));
  }
  if (o.min_p > 0.0) bottom = max<K>(bottom, exclusive<A>(o.number_of(o.min_p, row.scale), best.key));
  if (o.k == 1 && !rows && p.tokens == nullptr && p.top_n == 0) {
    if (threadIdx.x == 0) finish<A>(p, best.col, 0.0);
    return;
  }
  if (tracks) {
    const int n = shortlist(row, held, wanted, bottom);
    if (n <= short_list) return among_candidates<THREADS>(p, o, row, best, bottom, n);
  }
  Sampler<T, THREADS, WIDE, P>{p, o, row, best, bottom}.by_histograms();
}

}  // namespace baracuda
