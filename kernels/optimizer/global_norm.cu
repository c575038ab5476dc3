// global_norm    norm = sqrt(sum over all tensors of x^2);   clip_factor = min(1, max_norm / (norm + 1e-6))
//
// Pass 1: one block a chunk of CHUNK elements of one tensor (in logical order) writes one double. Thread t owns the vectors
// of VEC elements t, t + THREADS, …; a vector of squares is a tree in acc_t, vectors are added in double.
// Pass 2: one block adds the doubles, thread t those at t, t + THREADS, …
// The order depends on the shapes and the element alone: alignment, strides and the split into launches change no bit.
#include <baracuda/index.cuh>
#include <baracuda/multi_tensor.cuh>
#include <baracuda/reduce.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {

template <class T, int THREADS, int CHUNK, int FLIGHT> struct NormChunk {
  static constexpr int VEC = vec_elems<T>;
  static constexpr int STEPS = CHUNK / (THREADS * VEC);
  static constexpr int BATCH = STEPS < FLIGHT ? STEPS : FLIGHT;  // 16-byte loads in flight a thread
  static_assert(STEPS * THREADS * VEC == CHUNK && STEPS % BATCH == 0, "whole batches");

  // fetch(at, left): the vector that starts at element `at` of the chunk, zeros from `left` on.
  template <class Fetch> static BARACUDA_D double sum(int size, const Fetch& fetch) {
    double total = 0;
#pragma unroll 1
    for (int step = 0; step < STEPS; step += BATCH) {
      if (step * THREADS * VEC >= size) break;  // the rest would add zeros
      Vec<T, VEC> v[BATCH];
#pragma unroll
      for (int k = 0; k < BATCH; ++k) {
        const int at = ((step + k) * THREADS + static_cast<int>(threadIdx.x)) * VEC;
        v[k] = fetch(at, size - at);
      }
#pragma unroll
      for (int k = 0; k < BATCH; ++k) {
        auto square = to_acc(v[k]);
#pragma unroll
        for (int i = 0; i < VEC; ++i) square[i] = square[i] * square[i];
        total += static_cast<double>(tree_reduce<Sum>(square));
      }
    }
    return block_reduce<Sum, THREADS>(total);
  }
};

template <class T, int THREADS, int CHUNK, class P> BARACUDA_D void global_norm_chunks(const P& p) {
  using Chunk = NormChunk<T, THREADS, CHUNK, 8>;
  const int tensor = find_tensor(p, static_cast<int>(blockIdx.x));
  const int chunk = static_cast<int>(blockIdx.x) - p.first[tensor];
  const i64 start = static_cast<i64>(chunk) * CHUNK;
  const int size = static_cast<int>(min<i64>(CHUNK, p.sizes[tensor] - start));
  const T* x = static_cast<const T*>(p.tensors[tensor]) + start;  // CHUNK elements are a multiple of 16 bytes
  double sum;
  if (all_aligned(x)) {
    sum = Chunk::sum(size, [x](int at, int left) { return load_vec<T, Chunk::VEC, true, Access::streaming>(x + at, left); });
  } else {
    sum = Chunk::sum(size, [x](int at, int left) { return load_vec<T, Chunk::VEC, false>(x + at, left); });
  }
  if (threadIdx.x == 0) static_cast<double*>(p.partials)[p.slot[tensor] + chunk] = sum;
}

// Not inlined: eight copies of a run-time division loop would make the kernel slow to compile.
template <class P> __device__ __noinline__ i64 norm_offset(const P& p, i64 i) {
  return offset<i64>(i, p.rank, p.shape, p.strides[0]);
}

template <class T, int THREADS, int CHUNK, class P> BARACUDA_D void global_norm_strided(const P& p) {
  using Chunk = NormChunk<T, THREADS, CHUNK, 1>;
  const i64 start = static_cast<i64>(blockIdx.x) * CHUNK;
  const int size = static_cast<int>(min<i64>(CHUNK, p.size - start));
  const T* x = static_cast<const T*>(p.tensors[0]);
  const double sum = Chunk::sum(size, [&](int at, int left) {
    Vec<T, Chunk::VEC> v;
#pragma unroll
    for (int k = 0; k < Chunk::VEC; ++k) {
      v[k] = T{};
      if (k < left) v[k] = x[norm_offset(p, start + at + k)];
    }
    return v;
  });
  if (threadIdx.x == 0) static_cast<double*>(p.partials)[p.slot + blockIdx.x] = sum;
}

template <class A, int THREADS, class P> BARACUDA_D void global_norm_finish(const P& p) {
  const double* partials = static_cast<const double*>(p.partials);
  double total = 0;
#pragma unroll 8
  for (i64 i = threadIdx.x; i < p.count; i += THREADS) total += partials[i];
  total = block_reduce<Sum, THREADS>(total);
  if (threadIdx.x != 0) return;
  const double norm = math::sqrt(total);
  if (p.norm != nullptr) *static_cast<A*>(p.norm) = static_cast<A>(norm);
  if (p.clip_factor != nullptr) {
    const double factor = p.max_norm() / (norm + 1e-6);
    *static_cast<A*>(p.clip_factor) = static_cast<A>(factor > 1.0 ? 1.0 : factor);  // NaN stays
  }
}

}  // namespace baracuda
