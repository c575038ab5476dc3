// global_norm    norm = sqrt(sum over all tensors of x^2);   clip_factor = min(1, max_norm / (norm + 1e-6))
//
// Pass 1: one block for each chunk of CHUNK elements of one tensor (in logical order). Thread t has the vectors of VEC
// elements t, t + THREADS, …; the squares of a vector are added as a tree in acc_t, vectors in order in double. Pass 2:
// one block adds the chunks, thread t those at t, t + THREADS, … in order, then the threads as a tree. The order
// depends on the shapes and the element alone: alignment, strides and the split into launches change no bit. A vector
// whose squares leave the safe range of acc_t is summed again element by element: of float in double, whose range holds
// every square; of double in three sums of scaled squares (Blue, 1978). Nothing overflows on the way.
#include <baracuda/index.cuh>
#include <baracuda/multi_tensor.cuh>
#include <baracuda/reduce.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {

// A sum of squares. parts: mid-range; of double also those of |x| > 2^400 times 2^-1200, and of |x| < 2^-400 times
// 2^1200.
template <class A> struct Squares {
  static constexpr int parts = is_same<A, double> ? 3 : 1;
  double part[parts] = {};

  template <int N> BARACUDA_D void add(const Vec<A, N>& x) {
    Vec<A, N> square;
#pragma unroll
    for (int i = 0; i < N; ++i) square[i] = x[i] * x[i];
    const A sum = tree_reduce<Sum>(square);
    constexpr bool wide = is_same<A, double>;
    if (sum >= A(wide ? 0x1p-800 : 0x1p-100) && sum <= A(wide ? 0x1p+900 : 0x1p+127)) {
      part[0] += static_cast<double>(sum);
      return;
    }
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const double value = static_cast<double>(x[i]);
      if constexpr (wide) {
        const double size = math::abs(value), large = value * 0x1p-600, small = value * 0x1p+600;
        if (size > 0x1p+400) part[1] += large * large;
        else if (size < 0x1p-400) part[2] += small * small;
        else part[0] += value * value;  // NaN too
      } else {
        part[0] += value * value;
      }
    }
  }
  BARACUDA_D double root() const {
    if constexpr (parts == 3) {
      if (part[1] != 0) return math::sqrt(part[1] + part[0] * 0x1p-600 * 0x1p-600) * 0x1p+600;
      if (part[0] == 0) return math::sqrt(part[2]) * 0x1p-600;
      return math::sqrt(part[0] + part[2] * 0x1p-600 * 0x1p-600);
    } else {
      return math::sqrt(part[0]);
    }
  }
};

// Reduces every thread's sums over the block.
template <int THREADS, class S> BARACUDA_D S norm_reduce(S sums) {
#pragma unroll
  for (int k = 0; k < S::parts; ++k) sums.part[k] = block_reduce<Sum, THREADS>(sums.part[k]);
  return sums;
}

template <class T, int THREADS, int CHUNK, int FLIGHT> struct NormChunk {
  using S = Squares<acc_t<T>>;
  static constexpr int VEC = vec_elems<T>;
  static constexpr int STEPS = CHUNK / (THREADS * VEC);
  static constexpr int BATCH = STEPS < FLIGHT ? STEPS : FLIGHT;  // 16-byte loads in flight a thread
  static_assert(STEPS * THREADS * VEC == CHUNK && STEPS % BATCH == 0, "whole batches");

  // fetch(at, left): the vector that starts at element `at` of the chunk, zeros from `left` on. Writes partial sum
  // `slot`.
  template <class Fetch> static BARACUDA_D void run(void* partials, i64 slot, int size, const Fetch& fetch) {
    S sums;
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
      for (int k = 0; k < BATCH; ++k) sums.add(to_acc(v[k]));
    }
    sums = norm_reduce<THREADS>(sums);
    if (threadIdx.x == 0) static_cast<S*>(partials)[slot] = sums;
  }
};

template <class T, int THREADS, int CHUNK, class P> BARACUDA_D void global_norm_chunks(const P& p) {
  using Chunk = NormChunk<T, THREADS, CHUNK, 8>;
  const int tensor = find_tensor(p, static_cast<int>(blockIdx.x));
  const int chunk = static_cast<int>(blockIdx.x) - p.first[tensor];
  const i64 start = static_cast<i64>(chunk) * CHUNK;
  const int size = static_cast<int>(min<i64>(CHUNK, p.sizes[tensor] - start));
  const T* x = static_cast<const T*>(p.tensors[tensor]) + start;  // CHUNK elements are a multiple of 16 bytes
  const i64 slot = p.slot[tensor] + chunk;
  if (all_aligned(x)) {
    Chunk::run(p.partials, slot, size,
               [x](int at, int left) { return load_vec<T, Chunk::VEC, true, Access::streaming>(x + at, left); });
  } else {
    Chunk::run(p.partials, slot, size, [x](int at, int left) { return load_vec<T, Chunk::VEC, false>(x + at, left); });
  }
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
  Chunk::run(p.partials, p.slot + blockIdx.x, size, [&](int at, int left) {
    Vec<T, Chunk::VEC> v;
#pragma unroll
    for (int k = 0; k < Chunk::VEC; ++k) {
      v[k] = T{};
      if (k < left) v[k] = x[norm_offset(p, start + at + k)];
    }
    return v;
  });
}

template <class A, int THREADS, class P> BARACUDA_D void global_norm_finish(const P& p) {
  using S = Squares<A>;
  const S* partials = static_cast<const S*>(p.partials);
  S sums;
#pragma unroll 4
  for (i64 i = threadIdx.x; i < p.count; i += THREADS) {
#pragma unroll
    for (int k = 0; k < S::parts; ++k) sums.part[k] += partials[i].part[k];
  }
  sums = norm_reduce<THREADS>(sums);
  if (threadIdx.x != 0) return;
  const double norm = sums.root();
  if (p.norm != nullptr) *static_cast<A*>(p.norm) = static_cast<A>(norm);
  if (p.clip_factor != nullptr) {
    const double factor = p.max_norm() / (norm + 1e-6);
    *static_cast<A*>(p.clip_factor) = static_cast<A>(factor > 1.0 ? 1.0 : factor);  // NaN stays
  }
}

}  // namespace baracuda
