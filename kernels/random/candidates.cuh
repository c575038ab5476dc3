#pragma once
// candidates   the options of a row, and the whole choice among few candidates, one for each thread.
//
// Ranks and sums are counted candidate by candidate: with few that beats the many barriers of the histograms. It sums and
// compares the same integers, so the id is the same.
#include "random/row_select.cuh"

namespace baracuda::sampling {

constexpr int most_candidates = 512;  // that top-k may ask for, or that a row may have

// ---- sums of weights times logarithms -------------------------------------------------------------------------------

// Of integers, so that no order of additions exists to depend on: logarithms, which are <= 0, in units of 2^-32.
struct WideSum {
  u64 mass, low, high;

  template <class A> BARACUDA_D void add(u64 weight, A logarithm) {
    const u64 size = __double2ull_rn(static_cast<double>(-logarithm) * 4294967296.0), part = weight * size;
    mass += weight, low += part, high += __umul64hi(weight, size) + (low < part ? 1 : 0);
  }
};
struct AddWide {
  static constexpr bool symmetric = true;
  static BARACUDA_D WideSum apply(WideSum a, WideSum b) {
    const u64 low = a.low + b.low;
    return {a.mass + b.mass, low, a.high + b.high + (low < a.low ? 1 : 0)};
  }
};
// What is kept: its mass, that mass in units of the largest weight, and its entropy.
template <class A> struct Spread {
  u64 mass;
  double share, entropy;
  BARACUDA_D Spread(const WideSum& s, int scale_bits)
      : mass(s.mass), share(static_cast<double>(s.mass) / static_cast<double>(1ull << scale_bits)) {
    const double sum = static_cast<double>(s.high) * 4294967296.0 + static_cast<double>(s.low) / 4294967296.0;
    entropy = math::log(share) + sum / static_cast<double>(s.mass);
  }
  // -log p - entropy is shift minus the logarithm of the weight.
  BARACUDA_D A shift() const { return static_cast<A>(math::log(share) - entropy); }
};
// Larger where -log p is nearer to the entropy.
template <class A> BARACUDA_D typename Keys<A>::type nearness(typename Keys<A>::type key, const Scale<A>& s, A shift) {
  return Keys<A>::of(-math::abs(shift - s.logarithm(Keys<A>::value(key))));
}

// Finite numbers: their count, mean and squared deviations.
struct Deviation {
  double n, mean, square;
  BARACUDA_D void add(double x) {
    if (!math::isfinite(x)) return;
    n += 1.0;
    const double off = x - mean;
    mean += off / n, square += off * (x - mean);
  }
  BARACUDA_D double deviation() const { return n > 0.0 ? math::sqrt(square / n) : 0.0; }
};
struct Pool {
  static constexpr bool symmetric = false;
  static BARACUDA_D Deviation apply(Deviation a, Deviation b) {
    const double n = a.n + b.n;
    if (n == 0.0) return a;
    const double off = b.mean - a.mean, share = b.n / n;
    return {n, a.mean + off * share, a.square + b.square + off * off * a.n * share};
  }
};

// The largest key below all numbers >= least, at most that below the largest of the row, which always stays.
template <class A> BARACUDA_D typename Keys<A>::type exclusive(double least, typename Keys<A>::type top) {
  A x = static_cast<A>(least);
  if (static_cast<double>(x) < least) x = math::nextafter(x, numeric<A>::infinity());
  return min(Keys<A>::of(x), top) - 1;
}

// ---- a row's options ------------------------------------------------------------------------------------------------

// Those that the row needs late are read late: a block of 1024 threads has few registers.
template <class P, class A> struct Options {
  const P& p;
  double temperature, nucleus;
  i64 k;

  static BARACUDA_D double of_row(const void* rows, double value) {
    return rows == nullptr ? value : static_cast<double>(static_cast<const float*>(rows)[blockIdx.x]);
  }
  static BARACUDA_D i64 whole(const void* rows, bool wide) {
    return wide ? static_cast<const i64*>(rows)[blockIdx.x] : static_cast<const i32*>(rows)[blockIdx.x];
  }
  BARACUDA_D explicit Options(const P& p)
      : p(p), temperature(p.likely ? 1.0 : of_row(p.temperatures, p.temperature())),
        nucleus(of_row(p.top_ps, p.top_p())), k(p.top_ks == nullptr ? p.top_k() : whole(p.top_ks, p.wide_ks)) {
    if (!(temperature > 0.0) || nucleus <= 0.0) k = 1, temperature = 1.0;
    if (!(nucleus < 1.0) || k == 1) nucleus = 1.0;
  }
  BARACUDA_D double min_p() const { return of_row(p.min_ps, p.min_p()); }
  BARACUDA_D double typical() const { return of_row(p.typical_ps, p.typical_p()); }
  BARACUDA_D double epsilon() const { return of_row(p.epsilons, p.epsilon()); }
  BARACUDA_D double eta() const { return of_row(p.etas, p.eta()); }
  BARACUDA_D double sigmas() const { return p.likely ? 0.0 : of_row(p.sigmas, p.top_n_sigma()); }
  BARACUDA_D bool by_probability() const { return epsilon() > 0.0 || eta() > 0.0; }
  BARACUDA_D int token() const {
    const i64 token = whole(p.tokens, p.wide_tokens);
    return token < 0 || token > 0x7fffffff ? -1 : static_cast<int>(token);
  }

  BARACUDA_D u64 draw(u64 kept) const {
    const bool own = p.seeds != nullptr;
    const i64 seed = own ? static_cast<const i64*>(p.seeds)[blockIdx.x] : p.seed();
    const u32 bits = philox_bits(static_cast<u64>(seed), static_cast<u64>(p.offset()), own ? 0 : blockIdx.x);
    return scale_down(kept, bits >> 8);
  }
  // The logit, or probability, of a weight relative to the largest.
  BARACUDA_D double number_of(double weight, const Scale<A>& s) const {
    const double top = static_cast<double>(s.top);
    return s.likely ? top * weight : top + temperature * math::log(weight);
  }
  // The key that epsilon and eta cut off with all below it.
  BARACUDA_D typename Keys<A>::type cut_below(const Spread<A>& s, const Scale<A>& scale,
                                              typename Keys<A>::type top) const {
    const double by_entropy = eta() > 0.0 ? min(eta(), math::sqrt(eta()) * math::exp(-s.entropy)) : 0.0;
    return exclusive<A>(number_of(max(epsilon(), by_entropy) * s.share, scale), top);
  }
};

// ---- results --------------------------------------------------------------------------------------------------------

template <class P> BARACUDA_D void write_id(const P& p, void* ids, i64 at, i64 id) {
  if (p.wide_ids) static_cast<i64*>(ids)[at] = id;
  else static_cast<i32*>(ids)[at] = static_cast<i32>(id);
}
template <class A, class P> BARACUDA_D void finish(const P& p, i64 id, double logprob) {
  const i64 index = blockIdx.x;
  if (p.ids != nullptr) write_id(p, p.ids, index * p.ids_stride, id);
  if (p.logprob != nullptr) static_cast<A*>(p.logprob)[index * p.logprob_stride] = static_cast<A>(logprob);
}
template <class A, class P> BARACUDA_D void write_top_at(const P& p, int at, i64 id, double logprob) {
  const i64 index = blockIdx.x;
  if (p.top_ids != nullptr) write_id(p, p.top_ids, index * p.top_strides[0][0] + at * p.top_strides[0][1], id);
  if (p.top_logprobs != nullptr) {
    static_cast<A*>(p.top_logprobs)[index * p.top_strides[1][0] + at * p.top_strides[1][1]] = static_cast<A>(logprob);
  }
}
// The candidate of a thread at its rank among the largest; beyond the `n` that there are, no id.
template <class A, class P> BARACUDA_D void write_top(const P& p, int rank, u32 col, double logprob, int n) {
  if (rank < p.top_n) write_top_at<A>(p, rank, col, logprob);
  for (int at = n + static_cast<int>(threadIdx.x); at < p.top_n; at += blockDim.x) {
    write_top_at<A>(p, at, -1, -numeric<double>::infinity());
  }
}
// A row of which nothing can be drawn.
template <class A, class P> BARACUDA_D void finish_none(const P& p) {
  write_top<A>(p, p.top_n, 0, 0.0, 0);
  if (threadIdx.x != 0) return;
  finish<A>(p, -1, numeric<double>::nan());
  if (p.status != nullptr) atomicOr(p.status, 1u);
}
// `mass`, in units of 2^-scale_bits, is what was drawn from.
template <class A>
BARACUDA_D double log_probability(typename Keys<A>::type key, const Scale<A>& s, u64 mass, int scale_bits) {
  const A x = Keys<A>::value(key);
  const double share = static_cast<double>(mass) / static_cast<double>(1ull << scale_bits);
  if (x == s.top) return -math::log(share);
  if (s.likely) return math::log(static_cast<double>(x) / static_cast<double>(s.top)) - math::log(share);
  const double slope = static_cast<double>(s.inverse) + static_cast<double>(s.inverse_low);
  return (static_cast<double>(x) - static_cast<double>(s.top)) * slope - math::log(share);
}

// ---- finding the candidates -----------------------------------------------------------------------------------------

// The four largest of a thread, of equal ones those that come first.
template <class K> struct Held {
  K key[4];
  u32 col[4];
  BARACUDA_D void add(K k, u32 c) {
    if (!(k > key[3])) return;
    const bool first = k > key[0], second = k > key[1], third = k > key[2];
    key[3] = third ? key[2] : k, col[3] = third ? col[2] : c;
    if (third) key[2] = second ? key[1] : k, col[2] = second ? col[1] : c;
    if (second) key[1] = first ? key[0] : k, col[1] = first ? col[0] : c;
    if (first) key[0] = k, col[0] = c;
  }
};

// The n-th largest key of the block's threads, bit by bit.
template <class K> BARACUDA_D K nth_largest(K key, int n) {
  K found = 0;
#pragma unroll 1
  for (int bit = 8 * sizeof(K) - 1; bit >= 0; --bit) {
    const K probe = found | K(1) << bit;
    if (__syncthreads_count(key >= probe) >= n) found = probe;
  }
  return found;
}

// All elements that may be among the `wanted` largest, in shared memory; their number, of which only the first
// `short_list` are there. `wanted` threads have one of at least the key that is compared with, so others cannot matter.
template <class R, class K = typename R::K>
BARACUDA_D int shortlist(R& row, const Held<K>& held, int wanted, K bottom) {
  const K least = max<K>(wanted < row.cols ? nth_largest(held.key[0], wanted) : K(0), bottom + 1);
  ShortList<K>& list = row.memory.candidates;
  if (threadIdx.x == 0) row.memory.listed = 0;
  const auto put = [&](K key, u32 col) {
    if (key < least) return;
    const u32 slot = atomicAdd(&row.memory.listed, 1u);
    if (slot < short_list) list.key[slot] = key, list.col[slot] = col;
  };
  if (__syncthreads_or(held.key[3] >= least)) {  // a thread may have had more of them
    row.template visit<1>(0, row.cols, threadIdx.x, blockDim.x, put);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) put(held.key[i], held.col[i]);
  }
  __syncthreads();
  return static_cast<int>(row.memory.listed);
}

// How many of the list's n candidates come before one: larger, or equal and to the left.
template <class K> BARACUDA_D int rank_of(const ShortList<K>& list, int n, K key, u32 col) {
  int rank = 0;
  for (int j = 0; j < n; ++j) rank += list.key[j] > key || (list.key[j] == key && list.col[j] < col);
  return rank;
}
// Their weights.
template <class K> BARACUDA_D u64 weight_before(const ShortList<K>& list, int n, K key, u32 col) {
  u64 sum = 0;
  for (int j = 0; j < n; ++j) {
    sum += list.key[j] > key || (list.key[j] == key && list.col[j] < col) ? list.weight[j] : 0;
  }
  return sum;
}

// ---- the choice -----------------------------------------------------------------------------------------------------

template <int THREADS, class P, class R, class A = typename R::A, class K = typename R::K>
BARACUDA_D void among_candidates(const P& p, const Options<P, A>& o, R& row, Best<K> best, K bottom, int n) {
  ShortList<K>& list = row.memory.candidates;
  const int t = threadIdx.x;
  const bool mine = t < n;
  const K key = mine ? list.key[t] : K(0);
  const u32 col = mine ? list.col[t] : 0xffffffffu;
  u64 own = key > bottom ? row.weight(key) : 0;
  bool alive = key > bottom;
  const bool counts = o.k > 0 && o.k < p.cols, masses = o.nucleus < 1.0;
  const auto share = [&] {  // what is alive, for all to see
    if (mine) list.weight[t] = own;
    __syncthreads();
  };
  const auto drop = [&](bool gone) {
    if (gone) alive = false, own = 0;
  };
  int rank = 0;
  if (mine && (counts || p.top_n > 0)) rank = rank_of(list, n, key, col);
  if (counts) drop(rank >= o.k);
  if (masses) {
    share();
    const u64 goal = nucleus_goal(o.nucleus, block_reduce<Sum, THREADS>(own));
    drop(alive && weight_before(list, n, key, col) >= goal);
  }
  const auto spread = [&] {
    WideSum sum{};
    if (own != 0) sum.add(own, row.scale.logarithm(Keys<A>::value(key)));
    return Spread<A>(block_reduce<AddWide, THREADS>(sum), p.scale_bits);
  };
  if (o.by_probability()) drop(key <= o.cut_below(spread(), row.scale, best.key));
  if (o.typical() < 1.0) {
    const Spread<A> found = spread();
    const K at = alive ? nearness<A>(key, row.scale, found.shift()) : K(0);
    __syncthreads();
    if (mine) list.key[t] = at;
    share();
    const bool far = alive && weight_before(list, n, at, col) >= nucleus_goal(o.typical(), found.mass);
    __syncthreads();
    drop(far);
    if (mine) list.key[t] = alive ? key : K(0);
    __syncthreads();
    if (alive && p.top_n > 0) rank = rank_of(list, n, key, col);
  } else {
    __syncthreads();
  }
  share();
  const u64 kept = block_reduce<Sum, THREADS>(own);
  const double logprob = alive ? log_probability(key, row.scale, kept, p.scale_bits) : 0.0;
  if (p.top_n > 0) {
    write_top<A>(p, alive ? rank : p.top_n, col, logprob, __syncthreads_count(alive));
  }
  if (p.tokens != nullptr) {
    const bool here = alive && static_cast<int>(col) == o.token();
    if (!__syncthreads_or(here)) {
      if (t == 0) finish<A>(p, o.token(), -numeric<double>::infinity());
    } else if (here) {
      finish<A>(p, col, logprob);
    }
    return;
  }
  if (own == 0) return;
  const u64 target = o.draw(kept);  // below `kept`, so the mass of exactly one candidate contains it
  u64 before = 0;
  for (int j = 0; j < n; ++j) before += list.col[j] < col ? list.weight[j] : 0;
  if (before <= target && before + own > target) finish<A>(p, col, logprob);
}

}  // namespace baracuda::sampling
