// update   the assignments of a formula, element by element, over lists of tensors; what is assigned is written in place.
//
// The formula's text follows this file in the unit: `Formula`, its functor, and `Lists`, which reads and writes the
// elements of all lists as they are stored. One block for each chunk of CHUNK elements of one tensor; a thread's next
// vectors are in flight while it computes the current ones. Numbers are computed once a block, in double. Elementwise: no
// bit depends on the chunk, the width of an access or the strides. States of 8-bit codes (codes8.cuh) share a scale in
// blocks of 256 elements, a warp's share of a chunk; a largest magnitude has no order.
#include <baracuda/index.cuh>
#include <baracuda/multi_tensor.cuh>
#include <baracuda/vector.cuh>
#include <baracuda/math.cuh>
#include "elementwise/expression.cuh"
#include "optimizer/at_random.cuh"
#include "optimizer/codes8.cuh"

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

template <bool WIDE, class L, int THREADS, int CHUNK, class P>
BARACUDA_D void update_chunk(const P& p, const typename L::Rule& f, const typename L::Tables& tables, int t,
                             i64 start) {
  constexpr int V = L::width;
  const int size = static_cast<int>(min<i64>(CHUNK, p.sizes[t] - start));
  u64 number = 0;
  if constexpr (L::numbered) number = static_cast<u64>(p.begin[t] + start);
  int at = static_cast<int>(threadIdx.x) * V;
  auto next = L::template read<V, WIDE>(p, t, Alike{start + at}, size - at);
  // Whole warps stay together, as those that encode share what they find; past the end nothing is read or written.
#pragma unroll 1
  for (int base = 0; base < size; base += THREADS * V, at += THREADS * V) {
    const auto now = next;
    next = L::template read<V, WIDE>(p, t, Alike{start + at + THREADS * V}, size - at - THREADS * V);
    L::template write<V, WIDE>(p, f, tables, t, Alike{start + at}, size - at, now, number + static_cast<u64>(at));
  }
}

template <class L, int THREADS, int CHUNK, class P> BARACUDA_D void update(const P& p) {
  __shared__ Shared<typename L::Rule> shared;
  __shared__ typename L::Tables tables;
  if (p.found_inf() != 0.0) return;
  if (threadIdx.x == 0) shared.fill(p);
  tables.fill(static_cast<int>(threadIdx.x), THREADS);
  __syncthreads();
  const int t = find_tensor(p, static_cast<int>(blockIdx.x));
  const i64 start = static_cast<i64>(static_cast<int>(blockIdx.x) - p.first[t]) * CHUNK;
  if (L::aligned(p, t)) update_chunk<true, L, THREADS, CHUNK>(p, shared.value(), tables, t, start);
  else update_chunk<false, L, THREADS, CHUNK>(p, shared.value(), tables, t, start);
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
  u64 number = 0;
  if constexpr (L::numbered) number = static_cast<u64>(p.begin + at[L::count]);
  const auto in = L::template read<1, false>(p, 0, at, 1);
  L::template write<1, false>(p, shared.value(), tables, 0, at, 1, in, number);
}

}  // namespace baracuda
