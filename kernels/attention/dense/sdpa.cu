// sdpa    attn = softmax(softcap(scale q kᵀ) + mask, causal); y = drop(attn) v: the weights in memory.
//
// The two products are cuBLAS's or products.cuh's; sdpa_rows and sdpa_long stand between them. They read a row of
// scores (scale q kᵀ, rounded to T) and write, where asked for, the capped or masked scores, the weights, and the
// weights after dropout. A row may be written over the scores it is read from: each thread writes only what it has
// read. sdpa_rows holds the row in registers; sdpa_long (a block for each row) passes over it twice, with an online
// softmax. A sum is taken as a tree within a chunk, in order over a thread's chunks, then as a tree over the threads.
#include "attention/dense/sdpa.cuh"

namespace baracuda {
namespace sdpa {

enum Stage { stage_none = 0, stage_softcap = 1, stage_mask = 2 };  // what is written to p.scores

template <class M, int V, class P> BARACUDA_D Vec<M, V> load_mask(const P& p, i64 at, i64 col, int left) {
  const M* mask = static_cast<const M*>(p.mask) + at + col * p.mask_stride[3];
  return p.mask_wide ? load_vec<M, V, true>(mask, left) : load_strided<M, V>(mask, p.mask_stride[3], left, M{});
}

// What is added to the scores: 0 or -inf for a boolean mask.
template <class T, class P> BARACUDA_D Values<T> bias(const P& p, i64 at, int col, int left) {
  constexpr int V = row_vec<T>;
  using A = acc_t<T>;
  if (p.mask_kind == mask_bool) {
    const auto seen = load_mask<u8, V>(p, at, col, left);
    Values<T> out;
#pragma unroll
    for (int k = 0; k < V; ++k) out[k] = seen[k] ? A(0) : -numeric<A>::infinity();
    return out;
  }
  if (p.mask_kind == mask_f32) return cast_vec<A>(load_mask<float, V>(p, at, col, left));
  return to_acc(load_mask<T, V>(p, at, col, left));
}

template <class T, bool FULL, bool DROP, class P> struct RowWork {
  using A = acc_t<T>;
  static constexpr int V = row_vec<T>;
  const P& p;
  i64 linear;
  bool exists;
  int end, limit, needed;  // existing keys, keys this query may see, and keys whose scores are read; 0 without a row
  const T* source;
  T *scores, *attn, *weights;
  i64 mask_at;
  u64 seed, offset;

  BARACUDA_D RowWork(const P& p, i64 row) : p(p), linear(row < p.rows ? row : 0), exists(row < p.rows) {
    const HeadRow at(linear, p.num_heads, p.query_len);
    end = exists ? static_cast<int>(p.key_len) : 0;
    limit = p.causal ? static_cast<int>(min<i64>(end, max<i64>(at.row + p.shift + 1, 0))) : end;
    needed = FULL && p.stage == stage_softcap ? end : min(end, round_up(limit, V));
    source = static_cast<const T*>(p.source) + at.offset(p.stride[0]);
    scores = static_cast<T*>(p.scores) + at.offset(p.stride[1]);
    attn = static_cast<T*>(p.attn) + at.offset(p.stride[2]);
    weights = static_cast<T*>(p.weights) + at.offset(p.stride[3]);
    mask_at = at.batch * p.mask_stride[0] + at.head * p.mask_stride[1] + at.row * p.mask_stride[2];
    if constexpr (DROP) seed = static_cast<u64>(p.seed()), offset = static_cast<u64>(p.offset());
  }

  BARACUDA_D void read(RowChunk<T>& out, int col) const { sdpa::read(out, source, col, needed, p.wide & 1); }

  // The chunk's scores, capped and masked: -inf where a key is not seen and beyond the row.
  template <bool WRITE> BARACUDA_D Values<T> masked(const RowChunk<T>& raw, int col) const {
    Values<T> x = unpack_chunk(raw);
    if (FULL && p.softcap > 0.0) {
      const A cap = static_cast<A>(p.softcap), inverse = static_cast<A>(1.0 / p.softcap);
#pragma unroll
      for (int k = 0; k < V; ++k) x[k] = cap * math::tanh(x[k] * inverse);
    }
    if (FULL && WRITE && p.stage == stage_softcap) sdpa::write(scores, col, end, x, p.wide & 2);
    if constexpr (FULL) {
      if (p.mask_kind != mask_none && col < limit) {
        const auto add = bias<T>(p, mask_at, col, end - col);
#pragma unroll
        for (int k = 0; k < V; ++k) x[k] = add[k] == -numeric<A>::infinity() ? add[k] : x[k] + add[k];
      }
    }
    if (col + V > limit) {
#pragma unroll
      for (int k = 0; k < V; ++k) x[k] = col + k < limit ? x[k] : -numeric<A>::infinity();
    }
    if (FULL && WRITE && p.stage == stage_mask) sdpa::write(scores, col, end, x, p.wide & 2);
    return x;
  }

  BARACUDA_D void finish(const Values<T>& x, int col) const {
    if (col >= end) return;
    if (p.attn != nullptr) sdpa::write(attn, col, end, x, p.wide & 4);
    if constexpr (DROP) {
      sdpa::write(weights, col, end, drop<T>(p, keep_bits<T>(p, seed, offset, linear, col), x), p.wide & 8);
    } else if (p.weights != nullptr) {
      sdpa::write(weights, col, end, x, p.wide & 8);
    }
  }

  BARACUDA_D void statistics(A top, A sum) const {
    if (p.lse != nullptr && exists) static_cast<A*>(p.lse)[linear] = top + math::log(sum);  // -inf of an unseen row
  }
};

}  // namespace sdpa

template <class T, int G, int K, int R, bool FULL, bool DROP, class P> BARACUDA_D void sdpa_rows(const P& p) {
  using A = acc_t<T>;
  constexpr int V = row_vec<T>, groups = group_block(G) / G;
  static_assert(R == 1, "one row a group");
  const int lane = static_cast<int>(threadIdx.x) % G;
  const sdpa::RowWork<T, FULL, DROP, P> work(p, sdpa::block() * groups + threadIdx.x / G);
  RowChunk<T> raw[K];
#pragma unroll
  for (int j = 0; j < K; ++j) work.read(raw[j], (j * G + lane) * V);
  Vec<A, V> x[K];
  A top = -numeric<A>::infinity();
#pragma unroll
  for (int j = 0; j < K; ++j) {
    x[j] = work.template masked<true>(raw[j], (j * G + lane) * V);
    top = math::maximum(top, tree_reduce<Max>(x[j]));
  }
  top = row_reduce<Max, G>(top);
  const A base = top == -numeric<A>::infinity() ? A(0) : top;  // a row that sees nothing: weights 0
  A sum = 0;
#pragma unroll
  for (int j = 0; j < K; ++j) {
#pragma unroll
    for (int k = 0; k < V; ++k) x[j][k] = row_exp<T>(x[j][k] - base);
    sum += tree_reduce<Sum>(x[j]);
  }
  sum = row_reduce<Sum, G>(sum);
  const A factor = sum == A(0) ? A(0) : A(1) / sum;
#pragma unroll
  for (int j = 0; j < K; ++j) {
#pragma unroll
    for (int k = 0; k < V; ++k) x[j][k] *= factor;
    work.finish(x[j], (j * G + lane) * V);
  }
  if (lane == 0) work.statistics(top, sum);
}

template <class T, bool FULL, bool DROP, class P> BARACUDA_D void sdpa_long(const P& p) {
  using A = acc_t<T>;
  constexpr int G = long_group, V = row_vec<T>, K = V == 2 ? 1 : 2;
  const int lane = static_cast<int>(threadIdx.x);
  const sdpa::RowWork<T, FULL, DROP, P> work(p, sdpa::block());
  MaxSum<A> state{-numeric<A>::infinity(), A(0)};
  for (int first = lane * V; first < work.end; first += K * G * V) {
    RowChunk<T> raw[K];
#pragma unroll
    for (int j = 0; j < K; ++j) work.read(raw[j], first + j * G * V);
#pragma unroll
    for (int j = 0; j < K; ++j) {
      auto x = work.template masked<false>(raw[j], first + j * G * V);
      const A top = math::maximum(state.max, tree_reduce<Max>(x)), base = top == -numeric<A>::infinity() ? A(0) : top;
#pragma unroll
      for (int k = 0; k < V; ++k) x[k] = row_exp<T>(x[k] - base);
      state = {top, math::fma(state.sum, row_exp<T>(state.max - base), tree_reduce<Sum>(x))};
    }
  }
  const MaxSum<A> row = block_reduce<LogSumExp, G>(state);
  const A base = row.max == -numeric<A>::infinity() ? A(0) : row.max;
  const A factor = row.sum == A(0) ? A(0) : A(1) / row.sum;
  for (int first = lane * V; first < work.end; first += K * G * V) {
    RowChunk<T> raw[K];
#pragma unroll
    for (int j = 0; j < K; ++j) work.read(raw[j], first + j * G * V);
#pragma unroll
    for (int j = 0; j < K; ++j) {
      auto x = work.template masked<true>(raw[j], first + j * G * V);
#pragma unroll
      for (int k = 0; k < V; ++k) x[k] = row_exp<T>(x[k] - base) * factor;
      work.finish(x, first + j * G * V);
    }
  }
  if (lane == 0) work.statistics(row.max, row.sum);
}

}  // namespace baracuda
