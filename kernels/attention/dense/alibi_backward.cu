// alibi_backward    dscores = dy;   dslopes[h] = sum over b, i, j of dy[b, h, i, j] * (j - i)
//
// Pass 1: a block takes a slab of one matrix, EACH chunks a thread, alibi_threads apart; dy is read once, copied and
// summed. The products of a chunk are added as a tree, a thread's chunks in order, the threads of a block as a tree.
// Pass 2: a block adds the slabs of one slope: thread t those at t, t + alibi_threads, … in order, then the threads as
// a tree. So the order is fixed by the shape, the element and whether dscores is wanted; strides do not change a bit.
#include "alibi.cuh"
#include <baracuda/reduce.cuh>

namespace baracuda {

template <class T, int MODE> struct AlibiSlab {
  static constexpr int VEC = vec_elems<T>;
  const AlibiBackwardParams& p;
  i64 from, to;  // where the matrix starts in dy and dscores

  // Calls f(element, offset in the matrix of operand n) for the existing elements of chunk m.
  template <class F> BARACUDA_D void each(i64 m, int n, const F& f) const {
    AlibiCell at = alibi_cell(p, m * VEC);
    const i64 left = p.matrix - m * VEC;
#pragma unroll
    for (int k = 0; k < VEC; ++k) {
      if (k < left) f(k, at.query * p.strides[n][2] + at.key * p.strides[n][3]);
      next_cell(p, at);
    }
  }
  BARACUDA_D i64 offset(i64 m, int n) const {
    if constexpr (MODE == alibi_flat) return m * VEC;
    const AlibiCell at = alibi_cell(p, m * VEC);
    return at.query * p.strides[n][2] + at.key;
  }
  BARACUDA_D Chunk fetch(i64 m) const {
    const T* const dy = static_cast<const T*>(p.dy) + from;
    if constexpr (MODE != alibi_strided) {
      return load<4>(reinterpret_cast<const u32*>(dy + offset(m, 0)));
    } else {
      Vec<T, VEC> v{};
      each(m, 0, [&](int k, i64 at) { v[k] = dy[at]; });
      return pack<T>(v);
    }
  }
  BARACUDA_D void put(i64 m, const Chunk& c) const {
    T* const out = static_cast<T*>(p.dscores) + to;
    if constexpr (MODE != alibi_strided) {
      store_streaming(reinterpret_cast<u32*>(out + offset(m, 1)), c);
    } else {
      const auto v = unpack<T>(c);
      each(m, 1, [&](int k, i64 at) { out[at] = v[k]; });
    }
  }
  // The sum of the chunk's x times their distances.
  BARACUDA_D acc_t<T> moment(i64 m, Vec<acc_t<T>, VEC> x) const {
    using A = acc_t<T>;
    AlibiCell at = alibi_cell(p, m * VEC);
    if (alibi_plain<VEC>(p, at)) {
      const A start = alibi_start<A>(at);
#pragma unroll
      for (int k = 0; k < VEC; ++k) x[k] *= start + static_cast<A>(k);
    } else {
#pragma unroll
      for (int k = 0; k < VEC; ++k, next_cell(p, at)) x[k] *= static_cast<A>(at.key - at.query);
    }
    return tree_reduce<Sum>(x);
  }
};

template <class T, int MODE, int EACH> BARACUDA_D void alibi_backward(const AlibiBackwardParams& p) {
  constexpr int BATCH = EACH < 8 || MODE == alibi_strided ? 4 : 8;  // chunks in flight
  using A = acc_t<T>;
  using Slab = AlibiSlab<T, MODE>;
  constexpr int VEC = Slab::VEC;
  u32 slab, head;
  const u32 matrix = divmod(blockIdx.x, p.slabs, slab);
  const u32 batch = divmod(matrix, static_cast<u32>(p.heads), head);
  i64 start[2];
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    start[n] = MODE == alibi_flat ? matrix * p.matrix : batch * p.strides[n][0] + head * p.strides[n][1];
  }
  const Slab at{p, start[0], start[1]};
  const i64 first = static_cast<i64>(slab) * (alibi_threads * EACH);
  A sum = 0;
#pragma unroll 1
  for (int step = 0; step < EACH; step += BATCH) {
    const i64 base = first + step * alibi_threads;
    if (base >= p.matrix_chunks) break;
    Chunk v[BATCH];
#pragma unroll
    for (int k = 0; k < BATCH; ++k) {
      const i64 m = base + k * alibi_threads + threadIdx.x;
      v[k] = Chunk{};
      if (m < p.matrix_chunks) v[k] = at.fetch(m);
    }
    if (p.dscores != nullptr) {
#pragma unroll
      for (int k = 0; k < BATCH; ++k) {
        const i64 m = base + k * alibi_threads + threadIdx.x;
        if (m < p.matrix_chunks) at.put(m, v[k]);
      }
    }
    if (p.summing) {
#pragma unroll
      for (int k = 0; k < BATCH; ++k) {
        const i64 m = base + k * alibi_threads + threadIdx.x;
        if (m < p.matrix_chunks) sum += at.moment(m, to_acc(unpack<T>(v[k])));
      }
    }
  }
  if (!p.summing) return;
  sum = block_reduce<Sum, alibi_threads>(sum);
  if (threadIdx.x == 0) {
    static_cast<A*>(p.partials)[(static_cast<i64>(head) * p.batch + batch) * p.slabs + slab] = sum;
  }
}

// Writes slope o from its `count` slabs for each head and sample, samples in order.
template <class T> BARACUDA_D void alibi_backward_finish(const AlibiFinishParams& p) {
  using A = acc_t<T>;
  const A* const part = static_cast<const A*>(p.partials) + blockIdx.x * p.count;
  A sum = 0;
#pragma unroll 4
  for (i64 n = threadIdx.x; n < p.count; n += alibi_threads) sum += part[n];
  sum = block_reduce<Sum, alibi_threads>(sum);
  if (threadIdx.x == 0) {
    u32 sample;
    const u32 head = divmod(blockIdx.x, p.samples, sample);
    const i64 at = sample * p.strides[0] + head * p.strides[1];
    if (p.wide_slopes) static_cast<A*>(p.dslopes)[at] = sum;
    else static_cast<T*>(p.dslopes)[at] = from_acc<T>(sum);
  }
}

}  // namespace baracuda
