// sdpa_backward    dp = drop(dy vᵀ);  ds = attn (dp - Σ attn dp + dlse), times 1 - tanh²(scores / softcap) under a
//   softcap;  dq = scale ds k;  dk = scale dsᵀ q;  dv = drop(attn)ᵀ dy;  dmask = ds before the softcap, summed over
//   broadcast axes.
//
// The products are cuBLAS's or products.cuh's. Between them sdpa_backward_rows and sdpa_backward_long turn dp into ds
// in place, as the kernels of sdpa.cu do: a row's sum is a tree within a chunk, in order over a thread's chunks, then a
// tree over the threads. sdpa_dmask sums rows of ds in order, in parts that sdpa_dmask_finish adds in order; where keys
// are broadcast too, a thread adds its columns of every row, and then the threads are a tree.
#include "attention/dense/sdpa.cuh"

namespace baracuda {
namespace sdpa {

template <class T, bool FULL, bool DROP, class P> struct GradientWork {
  using A = acc_t<T>;
  static constexpr int V = row_vec<T>;
  const P& p;
  i64 linear;
  int end;
  const T *attn, *scores;
  T *dscores, *masked, *weights;
  u64 seed, offset;

  BARACUDA_D GradientWork(const P& p, i64 row) : p(p), linear(row < p.rows ? row : 0) {
    const HeadRow at(linear, p.num_heads, p.query_len);
    end = row < p.rows ? static_cast<int>(p.key_len) : 0;
    attn = static_cast<const T*>(p.attn) + at.offset(p.stride[0]);
    dscores = static_cast<T*>(p.dscores) + at.offset(p.stride[1]);
    scores = static_cast<const T*>(p.scores) + at.offset(p.stride[2]);
    masked = static_cast<T*>(p.masked) + at.offset(p.stride[3]);
    weights = static_cast<T*>(p.weights) + at.offset(p.stride[4]);
    if constexpr (DROP) seed = static_cast<u64>(p.seed()), offset = static_cast<u64>(p.offset());
  }

  BARACUDA_D void read(RowChunk<T>& weight, RowChunk<T>& gradient, int col) const {
    sdpa::read(weight, attn, col, end, p.wide & 1);
    sdpa::read(gradient, dscores, col, p.dscores == nullptr ? 0 : end, p.wide & 2);
  }

  BARACUDA_D u32 keep(int col) const {
    if constexpr (DROP) return col < end ? keep_bits<T>(p, seed, offset, linear, col) : 0;
    else return 0;
  }

  BARACUDA_D Values<T> dropped(const RowChunk<T>& raw, u32 bits) const {
    if constexpr (DROP) return drop<T>(p, bits, unpack_chunk(raw));
    else return unpack_chunk(raw);
  }

  BARACUDA_D A part(const RowChunk<T>& weight, const RowChunk<T>& raw, u32 bits) const {
    Values<T> x = dropped(raw, bits);
    const Values<T> w = unpack_chunk(weight);
#pragma unroll
    for (int k = 0; k < V; ++k) x[k] = w[k] == A(0) ? A(0) : x[k] * w[k];  // a hidden key's may be NaN
    return tree_reduce<Sum>(x);
  }

  // What ds takes off dp, given the row's sum of attn dp.
  BARACUDA_D A taken(A sum) const {
    return p.dlse == nullptr || end == 0 ? sum : sum - static_cast<const A*>(p.dlse)[linear];
  }

  BARACUDA_D void finish(RowChunk<T>& weight, RowChunk<T>& raw, u32 bits, A sum, int col) const {
    if (col >= end) return;
    forget(weight);
    forget(raw);
    const Values<T> w = unpack_chunk(weight);
    if constexpr (DROP) {
      if (p.weights != nullptr) write(weights, col, end, drop<T>(p, bits, w), p.wide & 16);
    }
    if (p.dscores == nullptr) return;
    Values<T> x = dropped(raw, bits);
#pragma unroll
    for (int k = 0; k < V; ++k) x[k] = w[k] == A(0) ? A(0) : w[k] * (x[k] - sum);
    if (FULL && p.scores != nullptr) {
      if (p.masked != nullptr) write(masked, col, end, x, p.wide & 8);
      RowChunk<T> score;
      sdpa::read(score, scores, col, end, p.wide & 4);
      const Values<T> s = unpack_chunk(score);
      const A inverse = static_cast<A>(1.0 / p.softcap);
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const A t = math::tanh(s[k] * inverse);
        if (w[k] != A(0)) x[k] *= math::fma(-t, t, A(1));
      }
    }
    write(dscores, col, end, x, p.wide & 2);
  }
};

}  // namespace sdpa

template <class T, int G, int K, int R, bool FULL, bool DROP, class P> BARACUDA_D void sdpa_backward_rows(const P& p) {
  using A = acc_t<T>;
  constexpr int V = row_vec<T>, groups = group_block(G) / G;
  static_assert(R == 1, "one row a group");
  const int lane = static_cast<int>(threadIdx.x) % G;
  const sdpa::GradientWork<T, FULL, DROP, P> work(p, sdpa::block() * groups + threadIdx.x / G);
  RowChunk<T> weight[K], raw[K];
#pragma unroll
  for (int j = 0; j < K; ++j) work.read(weight[j], raw[j], (j * G + lane) * V);
  u32 bits[K];
  A sum = 0;
#pragma unroll
  for (int j = 0; j < K; ++j) {
    bits[j] = work.keep((j * G + lane) * V);
    sum += work.part(weight[j], raw[j], bits[j]);
  }
  sum = work.taken(row_reduce<Sum, G>(sum));
#pragma unroll
  for (int j = 0; j < K; ++j) work.finish(weight[j], raw[j], bits[j], sum, (j * G + lane) * V);
}

template <class T, bool FULL, bool DROP, class P> BARACUDA_D void sdpa_backward_long(const P& p) {
  using A = acc_t<T>;
  constexpr int G = long_group, V = row_vec<T>, K = V == 2 ? 1 : 2;
  const sdpa::GradientWork<T, FULL, DROP, P> work(p, sdpa::block());
  const int start = static_cast<int>(threadIdx.x) * V;
  A sum = 0;
  for (int first = start; first < work.end; first += K * G * V) {
    RowChunk<T> weight[K], raw[K];
#pragma unroll
    for (int j = 0; j < K; ++j) work.read(weight[j], raw[j], first + j * G * V);
#pragma unroll
    for (int j = 0; j < K; ++j) sum += work.part(weight[j], raw[j], work.keep(first + j * G * V));
  }
  sum = work.taken(block_reduce<Sum, G>(sum));
  for (int first = start; first < work.end; first += K * G * V) {
    RowChunk<T> weight[K], raw[K];
#pragma unroll
    for (int j = 0; j < K; ++j) work.read(weight[j], raw[j], first + j * G * V);
#pragma unroll
    for (int j = 0; j < K; ++j) work.finish(weight[j], raw[j], work.keep(first + j * G * V), sum, first + j * G * V);
  }
}

namespace sdpa {

// Offset for an index into [batch, heads, queries] where axes that are not counted have extent 1.
BARACUDA_D i64 place_of(i64 linear, const i64 (&shape)[3], const i64* stride) {
  return HeadRow(linear, shape[1], shape[2]).offset(stride);
}

template <class T, class P> BARACUDA_D void put_dmask(const P& p, i64 kept, i64 col, acc_t<T> value) {
  const i64 at = place_of(kept, p.kept, p.out_stride) + col * p.out_stride[3];
  if (p.out_f32) static_cast<float*>(p.dmask)[at] = cast<float>(value);
  else static_cast<T*>(p.dmask)[at] = from_acc<T>(value);
}

}  // namespace sdpa

// A block: a tile of `columns` keys (all of them where keys are broadcast) of one kept row, and one part of the rows
// that are summed.
template <class T, bool KEYS, class P> BARACUDA_D void sdpa_dmask(const P& p) {
  using A = acc_t<T>;
  constexpr int V = row_vec<T>, THREADS = 128, UNROLL = KEYS ? 4 : 2;
  const i64 tile = blockIdx.x % p.tiles, part = blockIdx.x / p.tiles % p.parts, kept = blockIdx.x / (p.tiles * p.parts);
  const i64 first = part * p.part_rows, last = min(p.summed_rows, first + p.part_rows);
  const T* const source = static_cast<const T*>(p.source) + sdpa::place_of(kept, p.kept, p.stride);
  const int cols = static_cast<int>(p.key_len);
  Vec<A, V> sum{};
  for (int col = (static_cast<int>(tile) * THREADS + static_cast<int>(threadIdx.x)) * V; col < cols;
       col += THREADS * V) {
    for (i64 row = first; row < last; row += UNROLL) {
      RowChunk<T> raw[UNROLL];
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) {
        sdpa::read(raw[u], source + sdpa::place_of(min(row + u, last - 1), p.summed, p.stride), col,
                   row + u < last ? cols : 0, true);
      }
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) {
        const auto x = unpack_chunk(raw[u]);
        if (row + u < last) {
#pragma unroll
          for (int k = 0; k < V; ++k) sum[k] += x[k];
        }
      }
    }
    if constexpr (KEYS) break;
  }
  if constexpr (KEYS) {
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const i64 col = (tile * THREADS + threadIdx.x) * V + k;
      if (col >= cols) break;
      if (p.parts == 1) sdpa::put_dmask<T>(p, kept, col, sum[k]);
      else static_cast<A*>(p.partial)[part * p.outputs + kept * cols + col] = sum[k];
    }
  } else {
    const A total = block_reduce<Sum, THREADS>(tree_reduce<Sum>(sum));
    if (threadIdx.x == 0) {
      if (p.parts == 1) sdpa::put_dmask<T>(p, kept, 0, total);
      else static_cast<A*>(p.partial)[part * p.outputs + kept] = total;
    }
  }
}

template <class T, class P> BARACUDA_D void sdpa_dmask_finish(const P& p) {
  using A = acc_t<T>;
  const i64 at = thread_index<i64>();
  if (at >= p.outputs) return;
  A sum = 0;
  for (i64 part = 0; part < p.parts; ++part) sum += static_cast<const A*>(p.partial)[part * p.outputs + at];
  u64 col;
  const u64 kept = divmod(static_cast<u64>(at), static_cast<u64>(p.columns), col);
  sdpa::put_dmask<T>(p, static_cast<i64>(kept), static_cast<i64>(col), sum);
}

}  // namespace baracuda
