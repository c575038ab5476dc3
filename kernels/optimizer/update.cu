// update   the assignments of a formula, element by element, over lists of tensors; what is assigned is written in place.
//
// The formula's text follows this file in the unit: `Formula`, its functor, and `Lists`, which reads and writes the
// elements of all lists as they are stored. One block for each chunk of CHUNK elements of one tensor; a thread's next
// vectors are in flight while it computes the current ones, and its first ones while numbers are computed, once a block,
// in double. Chunks that are whole and aligned ask for no ends. Elementwise: no bit depends on the chunk, the width of an
// access or the strides. States of 8-bit codes (codes8.cuh) share a scale in blocks of 256 elements, a warp's share of a
// chunk; a largest magnitude has no order.
#include <baracuda/index.cuh>
#include <baracuda/multi_tensor.cuh>
#include <baracuda/vector.cuh>
#include <baracuda/math.cuh>
#include "elementwise/expression.cuh"
#include "optimizer/at_random.cuh"
#include "optimizer/codes8.cuh"
#include "optimizer/near.cuh"

namespace baracuda {

// The place of an element that all lists have in common.
struct Alike {
  i64 at;
  BARACUDA_D i64 operator[](int) const { return at; }
};

// A formula's numbers in shared memory, computed by the block's first thread.
template <class F> struct alignas(16) Shared {
  unsigned char bytes[sizeof(F)];
  template <class P> BARACUDA_D void fill(const P& p) {
    const F made(p);
    const unsigned char* from = reinterpret_cast<const unsigned char*>(&made);
    for (int i = 0; i < static_cast<int>(sizeof(F)); ++i) bytes[i] = from[i];
  }
  BARACUDA_D const F& value() const { return *reinterpret_cast<const F*>(bytes); }
};

// The stream that a list is rounded by, and the number in it of a chunk's first element.
struct Drawing {
  u64 seed, offset, number;
};

// N elements on their way to a thread. Those of less than four bytes stay in words until they are used: to take one out
// is to wait for it.
template <class T, int N> struct Held {
  static constexpr bool packed = sizeof(T) < 4 && N * sizeof(T) % 4 == 0;
  conditional<packed, Vec<u32, N * sizeof(T) / 4>, Vec<T, N>> in;
  BARACUDA_D Vec<T, N> value() const {
    Vec<T, N> x;
    if constexpr (packed) {
#pragma unroll
      for (int k = 0; k < in.size; ++k) reinterpret_cast<u32*>(&x)[k] = in[k];
    } else {
      x = in;
    }
    return x;
  }
  // The elements as A; a bfloat16 is the upper half of a float.
  template <class A> BARACUDA_D Vec<A, N> as() const {
    if constexpr (packed && is_same<T, bf16> && is_same<A, float>) {
      Vec<A, N> x;
#pragma unroll
      for (int k = 0; k < N; k += 2) {
        x[k] = __uint_as_float(in[k / 2] << 16), x[k + 1] = __uint_as_float(in[k / 2] & 0xffff0000u);
      }
      return x;
    } else {
      return cast_vec<A>(value());
    }
  }
};

// N elements at p: a whole vector in wide accesses where all lists are aligned (`wide`), else those before `left`. FULL:
// there are N, and p is aligned.
template <bool FULL, int N, class T> BARACUDA_D Held<T, N> fetched(const T* p, int left, bool wide) {
  Held<T, N> x;
  if (FULL || (wide && left >= N)) {
    if constexpr (Held<T, N>::packed) x.in = load<x.in.size>(reinterpret_cast<const u32*>(p));
    else x.in = load<N>(p);
  } else {
    const Vec<T, N> each = load_strided<T, N>(p, 1, left);
    if constexpr (Held<T, N>::packed) {
#pragma unroll
      for (int k = 0; k < x.in.size; ++k) x.in[k] = reinterpret_cast<const u32*>(&each)[k];
    } else {
      x.in = each;
    }
  }
  return x;
}
template <bool FULL, int N, class T> BARACUDA_D void put(T* p, const Vec<T, N>& x, int left, bool wide) {
  if (FULL || (wide && left >= N)) store(p, x);
  else store_strided(p, 1, x, left);
}

// What a thread does of a chunk of `size` elements; `next` holds its first ones.
template <bool FULL, class L, int THREADS, int CHUNK>
BARACUDA_D void update_chunk(const typename L::Place& place, const typename L::Rule& f,
                             const typename L::Tables& tables, int size, bool wide, Drawing drawing,
                             typename L::template Chunk<L::width> next) {
  constexpr int V = L::width, step = THREADS * V;
  u32 at = threadIdx.x * V;
  // Whole warps stay together, as those that encode share what they find; past the end nothing is read or written.
#pragma unroll 1
  for (int base = 0; base < (FULL ? CHUNK : size); base += step, at += step) {
    const auto now = next;
    if (base + step < (FULL ? CHUNK : size)) {
      next = L::template read<V, FULL>(place, at + step, size - static_cast<int>(at) - step, wide);
    }
    L::template write<V, FULL>(place, f, tables, at, size - static_cast<int>(at), wide, now, drawing);
  }
}

template <class L, int THREADS, int CHUNK, class P> BARACUDA_D void update(const P& p) {
  __shared__ Shared<typename L::Rule> shared;
  __shared__ typename L::Tables tables;
  if (p.found_inf() != 0.0) return;
  const int t = find_tensor(p, static_cast<int>(blockIdx.x));
  const u32 at = threadIdx.x * L::width;
  const i64 start = static_cast<i64>(static_cast<int>(blockIdx.x) - p.first[t]) * CHUNK;
  const int size = static_cast<int>(min<i64>(CHUNK, p.sizes[t] - start));
  Drawing drawing{};
  if constexpr (L::numbered) {
    drawing = {static_cast<u64>(p.seed()), static_cast<u64>(p.offset()), static_cast<u64>(p.begin[t] + start)};
  }
  const typename L::Place place = L::place(p, t, Alike{start});
  const bool wide = L::aligned(p, t), full = wide && size == CHUNK;
  typename L::template Chunk<L::width> next;
  if (full) next = L::template read<L::width, true>(place, at, size - static_cast<int>(at), wide);
  else next = L::template read<L::width, false>(place, at, size - static_cast<int>(at), wide);
  if (threadIdx.x == 0) shared.fill(p);
  tables.fill(static_cast<int>(threadIdx.x), THREADS);
  __syncthreads();
  const auto& f = shared.value();
  if (full) update_chunk<true, L, THREADS, CHUNK>(place, f, tables, size, wide, drawing, next);
  else update_chunk<false, L, THREADS, CHUNK>(place, f, tables, size, wide, drawing, next);
}

// One tensor whose lists have different strides.
template <class L, int THREADS, class P> BARACUDA_D void update_strided(const P& p) {
  __shared__ Shared<typename L::Rule> shared;
  __shared__ typename L::Tables tables;
  if (p.found_inf() != 0.0) return;
  if (threadIdx.x == 0) shared.fill(p);
  __syncthreads();
  const i64 i = thread_index();
  if (i >= p.size) return;
  constexpr int places = L::count + L::numbered;  // the last is the element's number, in an operand without memory
  i64 at[places];
  offsets<i64, places>(i, p.rank, p.shape, p.strides, at);
  Drawing drawing{};
  if constexpr (L::numbered) {
    drawing = {static_cast<u64>(p.seed()), static_cast<u64>(p.offset()), static_cast<u64>(p.begin + at[L::count])};
  }
  const typename L::Place place = L::place(p, 0, at);
  const auto in = L::template read<1, false>(place, 0, 1, false);
  L::template write<1, false>(place, shared.value(), tables, 0, 1, false, in, drawing);
}

}  // namespace baracuda
