// indexer    logits of the lightning indexer for f32 and f64, and the choice of each query's keys, see indexer.cuh.
//
// indexer_simt: a warp a query and key. A lane has every 32nd column of each product, which a butterfly adds; heads are
// added in order.
//
// indexer_select: the top_k keys of a query by logit, in the order of their numbers, then -1; a block a query. Nothing is
// rounded. The rank of the worst key that is chosen is found by histograms of its digits, the highest first (radix
// select), over the query's logits in memory; then a pass in the order of keys lists what is better, and of its equals the
// first ones. NaN is above every number, zeros are equal, and -inf is never listed.
#include "attention/indexer/indexer.cuh"

namespace baracuda {

template <class T, class P> BARACUDA_D void indexer_simt(const P& p) {
  using namespace indexer;
  using A = acc_t<T>;
  const i64 blocks = div_up(p.keys, i64(256 / warp_size));
  const Query query(p, blockIdx.x / blocks);
  const i64 s = blockIdx.x % blocks * (256 / warp_size) + threadIdx.x / warp_size;
  if (s >= p.keys) return;
  const int lane = lane_id();
  i64 at;
  A scale, sum = A(0);
  const bool there = query.sees(s) && find_key(p, query.sequence, s, at, scale);
  if (there) {
    const T* const k = static_cast<const T*>(p.k) + at;
    const T* q = static_cast<const T*>(p.q) + query.t * p.q_stride[0];
    for (int h = 0; h < p.heads; ++h, q += p.q_stride[1]) {
      A product = A(0);
      for (int d = lane; d < p.d; d += warp_size) product = math::fma(to_acc(q[d]), to_acc(k[d]), product);
      sum = math::fma(weight_at<A>(p, query.t, h), math::maximum(warp_reduce<Sum>(product), A(0)), sum);
    }
  }
  if (lane == 0) {
    static_cast<A*>(p.logits)[blockIdx.x / blocks * p.logits_stride + s] =
        there ? sum * scale : -numeric<A>::infinity();
  }
}

namespace indexer {

template <class A> struct RankOf_ {
  using type = u32;
};
template <> struct RankOf_<double> {
  using type = u64;
};
template <class A> using rank_t = typename RankOf_<A>::type;

// A number of the order of logits; 0 of those that are not listed.
template <class A> BARACUDA_D rank_t<A> rank_of(A x) {
  using U = rank_t<A>;
  constexpr U sign = U(1) << (8 * sizeof(U) - 1);
  if (x != x) return ~U(0);
  if (x == -numeric<A>::infinity()) return 0;
  U bits;
  const A value = x == A(0) ? A(0) : x;
  memcpy(&bits, &value, sizeof(bits));
  return bits & sign ? ~bits : bits | sign;
}

constexpr int select_bits = 11, select_bins = 1 << select_bits, select_threads = 512;

struct SelectMemory {
  u32 count[select_bins], scratch[select_threads / warp_size], digit, above, total;
};

// The highest bin at which the count from the top reaches `want` > 0, and how many are above it.
BARACUDA_D void find_bin(SelectMemory& memory, u32 want) {
  constexpr int own = select_bins / select_threads;
  const int top = select_bins - 1 - static_cast<int>(threadIdx.x) * own;  // a thread's bins, downwards
  u32 sum = 0;
#pragma unroll
  for (int n = 0; n < own; ++n) sum += memory.count[top - n];
  u32 above = block_scan<Sum, select_threads>(sum, memory.scratch) - sum;
#pragma unroll
  for (int n = 0; n < own; ++n) {
    const u32 here = memory.count[top - n];
    if (above < want && want <= above + here) memory.digit = top - n, memory.above = above;
    above += here;
  }
  if (threadIdx.x == select_threads - 1) memory.total = above;
  __syncthreads();
}

}  // namespace indexer

template <class A, class P> BARACUDA_D void indexer_select(const P& p) {
  using namespace indexer;
  using U = rank_t<A>;
  constexpr int levels = (8 * sizeof(U) + select_bits - 1) / select_bits;
  __shared__ SelectMemory memory;
  const Query query(p, blockIdx.x);
  const A* const logits = static_cast<const A*>(p.logits) + blockIdx.x * p.logits_stride;
  i32* const out = static_cast<i32*>(p.indices) + query.t * p.index_stride;
  const i64 most = p.top_k;

  // Ranks above `worst` are chosen, and the first `ties` of those equal to it.
  U worst = 0;
  u32 ties = static_cast<u32>(min<i64>(most, query.end - query.begin > 0 ? query.end - query.begin : 0));
#pragma unroll 1
  for (int level = 0; level < levels; ++level) {
    const int left = static_cast<int>(8 * sizeof(U)) - level * select_bits;  // bits that are open
    const int shift = max(0, left - select_bits);
    for (int n = threadIdx.x; n < select_bins; n += select_threads) memory.count[n] = 0;
    __syncthreads();
    for (i64 s = query.begin + threadIdx.x; s < query.end; s += select_threads) {
      const U rank = rank_of(logits[s]);
      if (rank == 0 || (level > 0 && rank >> left != worst >> left)) continue;
      atomicAdd(&memory.count[static_cast<u32>(rank >> shift) & ((1u << (left - shift)) - 1u)], 1u);
    }
    __syncthreads();
    find_bin(memory, max(ties, 1u));
    if (level == 0 && memory.total <= static_cast<u32>(most)) {  // all that are listed at all
      ties = 0;
      break;
    }
    worst |= static_cast<U>(memory.digit) << shift;
    ties -= memory.above;
    __syncthreads();
  }

  // In the order of keys: a tile's better ones and equals are counted together, in halves of a word.
  u32 better = 0, equal = 0;
#pragma unroll 1
  for (i64 first = query.begin; first < query.end; first += select_threads) {
    const i64 s = first + threadIdx.x;
    const U rank = s < query.end ? rank_of(logits[s]) : U(0);
    const u32 own = rank > worst ? 1u : rank == worst && rank != 0 ? 1u << 16 : 0u;
    const u32 up = block_scan<Sum, select_threads>(own, memory.scratch);
    const u32 before = up - own;
    const u32 all_better = better + (before & 0xffffu), all_equal = equal + (before >> 16);
    if (own == 1u || (own != 0 && all_equal < ties)) {
      out[all_better + min(all_equal, ties)] = static_cast<i32>(s);
    }
    if (threadIdx.x == select_threads - 1) memory.total = up;
    __syncthreads();
    better += memory.total & 0xffffu, equal += memory.total >> 16;
    __syncthreads();
  }
  for (i64 n = better + min(equal, ties) + threadIdx.x; n < most; n += select_threads) out[n] = -1;
}

}  // namespace baracuda
