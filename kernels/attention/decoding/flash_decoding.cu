// flash_decoding    y[b, h] = sum_j softmax_j(scale q[b, h] k[b, j]) v[b, j],  j < lengths[b];   lse as in flash_sdpa
//
// f32 and f64; 16-bit elements take flash_decoding_mma. flash_decoding_split: a block takes 256 keys of one key head
// for up to HEADS of the query heads that share it, so k and v are read once for them. Four lanes for each key compute
// the scores, with several 16-byte loads in flight; one warp for each head turns them into weights; then each lane owns
// 16 bytes of v's columns, and the lanes that share them walk the keys in quads. flash_decoding_combine: a block for
// each query head adds the outputs of the splits. A split starts at a multiple of 256, and the order of every sum
// follows from (element, D) and the length alone: neither the batch nor alignment changes a bit.
//
// parts[(b, h, split)][d_v] is sum_j 2^((s_j - max(s)) c) v_j with c = |scale| log2(e);
// stats[(b, h, split)] = {max(s), sum_j 2^((s_j - max(s)) c)}.
#include "attention/decoding/flash_decoding_terms.cuh"
#include "attention/decoding/flash_decoding_weights.cuh"

namespace baracuda {
namespace decoding {

constexpr int threads = 256;

// 16 bytes of a row as words, elements from `left` on zero. A Vec of 16-bit elements would take a register for each.
template <class T, bool WIDE> BARACUDA_D uint4 fetch(const T* from, int left) {
  if constexpr (WIDE) {  // rows are whole pieces
    return left > 0 ? *reinterpret_cast<const uint4*>(from) : uint4{0, 0, 0, 0};
  } else {
    uint4 word;
    const auto x = load_vec<T, vec_elems<T>, false>(from, left);
    memcpy(&word, &x, sizeof(word));
    return word;
  }
}
template <class T> BARACUDA_D auto widened(const uint4& word) {
  Vec<T, vec_elems<T>> x;
  memcpy(&x, &word, sizeof(word));
  return to_acc(x);
}

// What follows from the element and the sizes of a kernel.
template <class T, int D, int MOST_HEADS> struct SplitShape {
  using A = acc_t<T>;
  static constexpr int HEADS = MOST_HEADS, VEC = vec_elems<T>;
  static constexpr int PIECES = D / VEC / 4;  // 16-byte pieces of a key for each of its four lanes
  static constexpr int LOADS = PIECES < 4 ? PIECES : PIECES % 4 == 0 ? 4 : 3;  // pieces loaded at once
  static constexpr int KEYS = LOADS >= 3 || HEADS > 4 ? 2 : 4;                 // keys a lane has in flight
  static constexpr int PAIR = HEADS > 4 ? 2 : 4;                               // values widened at a time
  static constexpr int LANES = D / VEC, GROUPS = threads / LANES;  // lanes of a row of v, and rows in flight
  static_assert(PIECES % LOADS == 0, "whole batches");
};

// ALiBi's slopes of a block's heads, and the distance of a split's first key.
template <class A, int HEADS> struct SplitTerms {
  A slopes[HEADS], last;
};

// Scores. A warp takes 8 KEYS keys from `first` on: lane l has keys l / 4 + 8 u and pieces l % 4, l % 4 + 4, …
template <class T, int D, int HEADS, bool WIDE, class Cache, class P, class Cells>
BARACUDA_D void score_keys(const P& p, acc_t<T>* weights, const acc_t<T>* queries, const Cells& k, int first, int keys,
                           const SoftCap<acc_t<T>>& cap, [[maybe_unused]] const SplitTerms<acc_t<T>, HEADS>& terms) {
  using A = acc_t<T>;
  using Shape = SplitShape<T, D, HEADS>;
  constexpr int VEC = Shape::VEC, KEYS = Shape::KEYS, LOADS = Shape::LOADS;
  const int lane = lane_id();
  A s[HEADS][KEYS];
#pragma unroll
  for (int h = 0; h < HEADS; ++h) {
#pragma unroll
    for (int u = 0; u < KEYS; ++u) s[h][u] = A(0);
  }
#pragma unroll 1
  for (int piece = 0; piece < Shape::PIECES; piece += LOADS) {
    uint4 x[KEYS][LOADS];
#pragma unroll
    for (int u = 0; u < KEYS; ++u) {
      const int key = first + lane / 4 + 8 * u;
      const T* row = k.at(p, key);
#pragma unroll
      for (int n = 0; n < LOADS; ++n) {
        const int d = ((piece + n) * 4 + lane % 4) * VEC;
        x[u][n] = fetch<T, WIDE>(row + d, key < keys && k.has(key) ? p.d_k - d : 0);
      }
    }
#pragma unroll
    for (int n = 0; n < LOADS; ++n) {
      const int d = ((piece + n) * 4 + lane % 4) * VEC;
      Vec<A, VEC> key[KEYS];
#pragma unroll
      for (int u = 0; u < KEYS; ++u) key[u] = widened<T>(x[u][n]);
#pragma unroll
      for (int h = 0; h < HEADS; ++h) {
        const auto query = load<VEC>(queries + h * D + d);
#pragma unroll
        for (int u = 0; u < KEYS; ++u) {
#pragma unroll
          for (int e = 0; e < VEC; ++e) s[h][u] = math::fma(query[e], key[u][e], s[h][u]);
        }
      }
    }
  }
#pragma unroll
  for (int h = 0; h < HEADS; ++h) {
#pragma unroll
    for (int u = 0; u < KEYS; ++u) {
      A score = group_reduce<Sum, 4>(s[h][u]) * static_cast<A>(p.sign);
      if constexpr (Cache::terms) score *= static_cast<A>(p.scale);
      if constexpr (Cache::capped) {
        if (p.softcap != 0.0) score = cap(score);
      }
      const int key = first + lane / 4 + 8 * u;
      if constexpr (Cache::terms) {
        if (p.slopes != nullptr) score = math::fma(-terms.slopes[h], terms.last - static_cast<A>(key), score);
      }
      if constexpr (Cache::masked) {
        if (k.biases() != nullptr) score = attention::with_bias(score, k.biases()[key]);
      }
      if (lane % 4 == h % 4) weights[h * split_keys + key] = k.has(key) ? score : -numeric<A>::infinity();
    }
  }
}

// Softmax of a split, by a warp for one head: turns scores into weights 2^((s - max(s)) c), copies the scores to
// `scores` where KEEP, and writes stats = {max(s), sum of weights}.
template <bool KEEP, class A> BARACUDA_D void softmax(A* weights, int keys, A c, A* scores, A* stats) {
  constexpr int EACH = split_keys / warp_size;
  const int lane = lane_id();
  A x[EACH], row_max = -numeric<A>::infinity(), row_sum = A(0);
#pragma unroll
  for (int n = 0; n < EACH; ++n) {
    const int key = lane + warp_size * n;
    x[n] = key < keys ? weights[key] : -numeric<A>::infinity();
    row_max = math::maximum(row_max, x[n]);
    if constexpr (KEEP) {
      if (key < keys) scores[key] = x[n];
    }
  }
  row_max = warp_reduce<Max>(row_max);
  const A base = base_of(row_max);
#pragma unroll
  for (int n = 0; n < EACH; ++n) {
    x[n] = exp2_fast((x[n] - base) * c);
    row_sum += x[n];
    weights[lane + warp_size * n] = x[n];
  }
  row_sum = warp_reduce<Sum>(row_sum);
  if (lane == 0) stats[0] = row_max, stats[1] = row_sum;
}

// The values of a split: a lane's columns of four keys at a time.
template <class T, bool WIDE, class P, class Cells> struct ValueQuads {
  const P& p;
  const Cells& v;
  const int column, keys;

  BARACUDA_D void load(uint4 (&x)[4], int key) const {
    const T* at = v.at(p, key) + column;
#pragma unroll
    for (int u = 0; u < 4; ++u, at = v.next(p, at, key + u, column)) {
      x[u] = fetch<T, WIDE>(at, key + u < keys && v.has(key + u) ? p.d_v - column : 0);
    }
  }
};

// acc += weights v for the quads of keys 4 row, 4 (row + GROUPS), …; `values` has the first of them.
template <class T, int D, int HEADS, class A, class Quads>
BARACUDA_D void add_values(A (&acc)[HEADS][SplitShape<T, D, HEADS>::VEC], uint4 (&values)[4], const Quads& quads,
                           const A* weights, int row) {
  using Shape = SplitShape<T, D, HEADS>;
  constexpr int VEC = Shape::VEC, PAIR = Shape::PAIR, GROUPS = Shape::GROUPS;
#pragma unroll 1
  for (int key = 4 * row; key < quads.keys; key += 4 * GROUPS) {
#pragma unroll
    for (int half = 0; half < 4; half += PAIR) {
      Vec<A, VEC> value[PAIR];
#pragma unroll
      for (int u = 0; u < PAIR; ++u) value[u] = widened<T>(values[half + u]);
#pragma unroll
      for (int h = 0; h < HEADS; ++h) {
        const auto weight = load<PAIR>(weights + h * split_keys + key + half);
#pragma unroll
        for (int u = 0; u < PAIR; ++u) {
#pragma unroll
          for (int e = 0; e < VEC; ++e) acc[h][e] = math::fma(weight[u], value[u][e], acc[h][e]);
        }
      }
    }
    quads.load(values, key + 4 * GROUPS);
  }
}

// Adds the groups of lanes in order, as many heads at a time as 16 KB hold, and stores the split's outputs. takes:
// whether this thread has outputs, of row `row` from `column` on.
template <class T, int D, int HEADS, class A, class P>
BARACUDA_D void add_groups(const P& p, const A (&acc)[HEADS][SplitShape<T, D, HEADS>::VEC], A* sums, bool takes,
                           int row, int column, const int& heads, const i64& first_row) {
  using Shape = SplitShape<T, D, HEADS>;
  constexpr int VEC = Shape::VEC, GROUPS = Shape::GROUPS;
  constexpr int FIT = 16384 / (GROUPS * D * static_cast<int>(sizeof(A)));
  constexpr int ONCE = FIT < 1 ? 1 : FIT < HEADS ? FIT : HEADS;
#pragma unroll
  for (int h0 = 0; h0 < HEADS; h0 += ONCE) {
    __syncthreads();
    if (takes) {
#pragma unroll
      for (int h = 0; h < ONCE && h0 + h < HEADS; ++h) {
        Vec<A, VEC> x;
#pragma unroll
        for (int e = 0; e < VEC; ++e) x[e] = acc[h0 + h][e];
        store(sums + (row * ONCE + h) * D + column, x);
      }
    }
    __syncthreads();
#pragma unroll 1
    for (int n = threadIdx.x; n < ONCE * D; n += threads) {
      const int h = h0 + n / D, d = n % D;
      if (h >= heads || d >= p.d_v) continue;
      A sum = sums[n];
#pragma unroll 4
      for (int g = 1; g < GROUPS; ++g) sum += sums[g * ONCE * D + n];
      static_cast<A*>(p.parts)[(first_row + h * p.splits) * p.d_v + d] = sum;
    }
  }
}

}  // namespace decoding

template <class T, class Cache, int D, int HEADS, bool WIDE, bool KEEP, class P>
BARACUDA_D void flash_decoding_split(const P& p) {
  using namespace decoding;
  using A = acc_t<T>;
  using Shape = SplitShape<T, D, HEADS>;
  constexpr int VEC = Shape::VEC, LANES = Shape::LANES;
  BARACUDA_DYNAMIC_SMEM(A, queries);       // [HEADS][D]
  A* const weights = queries + HEADS * D;  // [HEADS][256]
  A* const sums = weights + HEADS * split_keys;

  const u32 splits = static_cast<u32>(p.splits), kv_heads = p.num_heads / p.group;  // the grid fits 31 bits
  const u32 split = blockIdx.x % splits, chunk = blockIdx.x / splits % p.chunks;
  const u32 kv_head = blockIdx.x / splits / p.chunks, b = kv_head / kv_heads, kv = kv_head % kv_heads;
  const int most = block_heads<Cache, HEADS>(p);
  const int head0 = chunk * most, heads = min<int>(most, p.group - head0);  // of the group
  Cache cache(p, b);
  if constexpr (Cache::masked) cache.enter(p, b, kv * p.group + head0);
  const i64 length = cache.length;
  if (cache.bad && p.status != nullptr && threadIdx.x == 0) atomicOr(p.status, 1u);
  const i64 k0 = static_cast<i64>(split) * split_keys;
  if (k0 >= length) return;
  const int keys = static_cast<int>(min<i64>(split_keys, length - k0));
  const int warp = threadIdx.x / warp_size;
  const T* q = static_cast<const T*>(p.q) + b * p.q_stride[0] + (kv * p.group + head0) * p.q_stride[1];
  const typename Cache::template Cells<T, 0> k(p, cache, b, kv, k0);
  cache.template locate<A>(p, k0, keys);

  // The soft cap, this split's row of the first head, and the number of heads: in shared memory, as the accumulators
  // need the registers.
  [[maybe_unused]] __shared__ SoftCap<A> cap;
  __shared__ i64 first_row;
  __shared__ int row_count;
  [[maybe_unused]] __shared__ A* first_scores;
  [[maybe_unused]] __shared__ SplitTerms<A, HEADS> terms;
  if (threadIdx.x == 0) {
    row_count = heads;
    if constexpr (Cache::capped) cap = SoftCap<A>::of(p, Cache::scale(p, kv));
    if constexpr (KEEP) first_scores = Scores<A>(p, b, kv * p.group + head0).at + cache.first + k0;
    if constexpr (Cache::terms) {
      terms.last = static_cast<A>(length - 1 - k0);
      for (int h = 0; h < HEADS; ++h) terms.slopes[h] = h < heads ? slope_of<A>(p, b, kv * p.group + head0 + h) : A(0);
    }
    first_row = (static_cast<i64>(b) * p.num_heads + kv * p.group + head0) * splits + split;
  }
  for (int n = threadIdx.x; n < HEADS * D; n += threads) {
    const int h = n / D, d = n % D;
    queries[n] = h < heads && d < p.d_k ? to_acc(q[h * p.q_stride[1] + d]) : A(0);
  }
  __syncthreads();

  // Scores, by warps.
#pragma unroll 1
  for (int first = warp * 8 * Shape::KEYS; first < keys; first += threads / 4 * Shape::KEYS) {
    score_keys<T, D, HEADS, WIDE, Cache>(p, weights, queries, k, first, keys, cap, terms);
  }

  // The lanes of v load their first quads of keys while the weights are computed.
  const int column = static_cast<int>(threadIdx.x) % LANES * VEC, row = static_cast<int>(threadIdx.x) / LANES;
  const typename Cache::template Cells<T, 1> v(p, cache, b, kv, i64(split) * split_keys);
  const ValueQuads<T, WIDE, P, typename Cache::template Cells<T, 1>> quads{p, v, column, keys};
  uint4 values[4];
  const bool takes = threads % LANES == 0 || row < Shape::GROUPS;
  if (takes) quads.load(values, 4 * row);
  __syncthreads();

  // Softmax, a warp for each head.
  const A c = static_cast<A>(Cache::scale(p, kv) * 1.4426950408889634);
  for (int h = warp; h < row_count; h += threads / warp_size) {
    A* scores = nullptr;
    if constexpr (KEEP) scores = first_scores + h * p.score_stride[1];
    softmax<KEEP>(weights + h * split_keys, keys, c, scores, static_cast<A*>(p.stats) + (first_row + h * p.splits) * 2);
  }
  __syncthreads();

  // Outputs.
  A acc[HEADS][VEC];
#pragma unroll
  for (int h = 0; h < HEADS; ++h) {
#pragma unroll
    for (int e = 0; e < VEC; ++e) acc[h][e] = A(0);
  }
  if (takes) add_values<T, D, HEADS>(acc, values, quads, weights, row);
  add_groups<T, D, HEADS>(p, acc, sums, takes, row, column, row_count, first_row);
}

// A block for each query head adds the outputs of the splits: a warp takes every eighth split, and the warps are added
// in order.
template <class T, class Cache, bool KEEP, class P> BARACUDA_D void flash_decoding_combine(const P& p) {
  using namespace decoding;
  using A = acc_t<T>;
  constexpr int warps = threads / warp_size, wide = 256 / warp_size;  // most columns of a lane
  __shared__ A partial[warps][256];
  const i64 head = blockIdx.x, b = head / p.num_heads, h = head % p.num_heads;
  const i64 splits = div_up(Cache(p, b).length, i64(split_keys));
  const double scale = Cache::scale(p, 0);
  const A c = static_cast<A>(scale * 1.4426950408889634);
  const A* stats = static_cast<const A*>(p.stats) + head * p.splits * 2;
  const A* parts = static_cast<const A*>(p.parts) + head * p.splits * p.d_v;
  const int lane = lane_id(), warp = threadIdx.x / warp_size;

  A row_max = -numeric<A>::infinity();
  for (i64 n = threadIdx.x; n < splits; n += threads) row_max = math::maximum(row_max, stats[2 * n]);
  row_max = block_reduce<Max, threads>(row_max);
  [[maybe_unused]] A sink;
  if constexpr (Cache::terms) {
    sink = sink_of<A>(p, h);
    row_max = math::maximum(row_max, sink);
  }
  const A base = base_of(row_max);
  A acc[wide], sum = A(0);
#pragma unroll
  for (int j = 0; j < wide; ++j) acc[j] = A(0);
#pragma unroll(sizeof(A) == 8 ? 2 : 4)
  for (i64 n = warp; n < splits; n += warps) {
    const A weight = exp2_fast((stats[2 * n] - base) * c);  // 0 where a split's maximum is -inf
    sum = math::fma(weight, stats[2 * n + 1], sum);
#pragma unroll
    for (int j = 0; j < wide; ++j) {
      const int d = lane + warp_size * j;
      if (d < p.d_v) acc[j] = math::fma(weight, parts[n * p.d_v + d], acc[j]);
    }
  }
  __shared__ A totals[warps];
  if (lane == 0) totals[warp] = sum;
#pragma unroll
  for (int j = 0; j < wide; ++j) partial[warp][lane + warp_size * j] = acc[j];
  __syncthreads();
  A total = totals[0];
#pragma unroll
  for (int w = 1; w < warps; ++w) total += totals[w];
  if constexpr (Cache::terms) total += exp2_fast((sink - base) * c);
  const A factor = total == A(0) ? A(0) : A(1) / total;
  for (int d = threadIdx.x; d < p.d_v; d += threads) {
    A x = partial[0][d];
#pragma unroll
    for (int w = 1; w < warps; ++w) x += partial[w][d];
    static_cast<T*>(p.y)[b * p.y_stride[0] + h * p.y_stride[1] + d] = from_acc<T>(total == A(0) ? A(0) : x * factor);
  }
  if constexpr (KEEP) {
    if (threadIdx.x == 0) {
      A* const finals = static_cast<A*>(p.finals) + 2 * head;
      finals[0] = row_max, finals[1] = total;
    }
  }
  if (p.lse != nullptr && threadIdx.x == 0) {
    const A lse = math::fma(row_max, static_cast<A>(scale), math::log(total));
    static_cast<A*>(p.lse)[head] = total == A(0) ? -numeric<A>::infinity() : lse;
  }
}

}  // namespace baracuda
