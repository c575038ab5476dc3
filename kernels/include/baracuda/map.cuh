#pragma once
// map        y = f(x0, x1, …) element by element over operands of one shape; geometry in schedules/map.py.
//
// A thread takes a few chunks of VEC elements, map_threads chunks apart: all their loads are issued before the first is
// used.
//
//   Flat<VEC>      every operand dense, one chunk for each thread (more were slower: docs/design/map.md); chunk c has
//                  elements c * VEC …; the last block takes the count % VEC elements left
//   Strided<VEC, CHUNKS, ELEMENTS>
//                  chunk numbers are split into coordinates over up to 8 merged axes; VEC > 1 where every operand moves
//                  along the last axis by 1 (one wide access) or by 0 (one element for the whole chunk). A thread has
//                  CHUNKS of several elements, or ELEMENTS of one
//
// P has the fields of `schedules/map.py: map_params`; strides and splat bits are in the order outputs, inputs.
//
// f(in, out) gets arrays of Vec<In, N> and Vec<Out, N> and must treat each element alone, whatever N is: then neither
// layout nor alignment changes a bit. An output may be the same view as an input: a chunk is read before it is written,
// by the same thread. Threads beyond the last chunk read it again instead of branching.
#include <baracuda/elements.cuh>
#include <baracuda/index.cuh>
#include <baracuda/vector.cuh>

namespace baracuda {

template <int VEC> struct Flat {
  static constexpr int vec = VEC;
  static constexpr bool flat = true;
  static constexpr int unroll = 1;
};
template <int VEC, int CHUNKS, int ELEMENTS = CHUNKS> struct Strided {
  static constexpr int vec = VEC;
  static constexpr bool flat = false;
  static constexpr int unroll = VEC > 1 ? CHUNKS : ELEMENTS;
};

// at[u][n]: element offset of chunk c[u] in operand n, in arithmetic of I. The outermost extent is never a divisor.
template <class I, int U, int N, class P>
BARACUDA_D void map_offsets_in(const P& p, const i64 (&c)[U], i64 (&at)[U][N]) {
  using W = conditional<sizeof(I) == 4, u32, u64>;
  W rest[U];
  I sum[U][N];
#pragma unroll
  for (int u = 0; u < U; ++u) {
    rest[u] = static_cast<W>(c[u]);
#pragma unroll
    for (int n = 0; n < N; ++n) sum[u][n] = 0;
  }
#pragma unroll 1
  for (int axis = p.rank - 1; axis >= 0; --axis) {
    W coordinate[U];
#pragma unroll
    for (int u = 0; u < U; ++u) {
      if (axis == 0) {
        coordinate[u] = rest[u];
      } else if constexpr (sizeof(I) == 4) {
        const DivMod d{p.dividers[axis][0], p.dividers[axis][1], p.dividers[axis][2]};
        rest[u] = d.divmod(rest[u], coordinate[u]);
      } else {
        rest[u] = divmod(rest[u], static_cast<u64>(p.shape[axis]), coordinate[u]);
      }
    }
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const I stride = static_cast<I>(p.strides[n][axis]);
#pragma unroll
      for (int u = 0; u < U; ++u) sum[u][n] += static_cast<I>(coordinate[u]) * stride;
    }
  }
#pragma unroll
  for (int u = 0; u < U; ++u) {
#pragma unroll
    for (int n = 0; n < N; ++n) at[u][n] = sum[u][n];
  }
}
// Both index widths in one kernel: the branch is uniform, and only index arithmetic is duplicated.
template <int U, int N, class P> BARACUDA_D void map_offsets(const P& p, const i64 (&c)[U], i64 (&at)[U][N]) {
  if (p.narrow) map_offsets_in<i32>(p, c, at);
  else map_offsets_in<i64>(p, c, at);
}

// Where a chunk is: its first element in each of N operands, and which operands have one element for all of it.
template <int V, int N> struct MapPlace {
  static constexpr int vec = V;
  i64 at[N];
  u32 splat;  // a bit for each operand

  template <class T> BARACUDA_D Vec<T, V> load(const T* x, int n) const {
    if (V == 1 || !(splat >> n & 1)) return baracuda::load<V>(x + at[n]);
    const T one = x[at[n]];
    Vec<T, V> all;
#pragma unroll
    for (int k = 0; k < V; ++k) all[k] = one;
    return all;
  }
  template <class T> BARACUDA_D void store(T* y, int n, const Vec<T, V>& chunk) const {
    baracuda::store(y + at[n], chunk);
  }
};

// The loop over chunks, for operands of any types. op.read(place) loads what a chunk needs, an op.Chunk<V>; when all
// chunks of the thread are on their way, op.write(place, chunk, wanted) makes the results, and stores them if `wanted`.
template <class L, int N, class P, class Op> BARACUDA_D void map_chunks(const P& p, const Op& op) {
  constexpr int V = L::vec, U = L::unroll;
  const i64 first = static_cast<i64>(blockIdx.x) * (map_threads * U) + threadIdx.x;
  if (first < p.chunks) {
    i64 c[U], at[U][N];
    MapPlace<V, N> place[U];
    typename Op::template Chunk<V> in[U];
#pragma unroll
    for (int u = 0; u < U; ++u) {
      c[u] = first + u * map_threads < p.chunks ? first + u * map_threads : p.chunks - 1;
    }
    if constexpr (!L::flat) map_offsets(p, c, at);
#pragma unroll
    for (int u = 0; u < U; ++u) {
#pragma unroll
      for (int n = 0; n < N; ++n) place[u].at[n] = L::flat ? c[u] * V : at[u][n];
      place[u].splat = L::flat ? 0 : p.splat;
      in[u] = op.read(place[u]);
    }
#pragma unroll
    for (int u = 0; u < U; ++u) op.write(place[u], in[u], first + u * map_threads < p.chunks);
  }
  if constexpr (L::flat && V > 1) {
    const i64 e = p.chunks * V + threadIdx.x;
    if (blockIdx.x == gridDim.x - 1 && e < p.count) {
      MapPlace<1, N> place;
#pragma unroll
      for (int n = 0; n < N; ++n) place.at[n] = e;
      place.splat = 0;
      op.write(place, op.read(place), true);
    }
  }
}

// Operands of one type each way: f as above.
template <class Out, int NO, class In, int NI, class F> struct MapArrays {
  Out* const (&y)[NO];
  const In* const (&x)[NI];
  const F& f;

  template <int V> struct Chunk {
    Vec<In, V> x[NI];
  };
  template <int V> BARACUDA_D Chunk<V> read(const MapPlace<V, NO + NI>& place) const {
    Chunk<V> in;
#pragma unroll
    for (int i = 0; i < NI; ++i) in.x[i] = place.load(x[i], NO + i);
    return in;
  }
  template <int V> BARACUDA_D void write(const MapPlace<V, NO + NI>& place, const Chunk<V>& in, bool wanted) const {
    Vec<Out, V> out[NO];
    f(in.x, out);
    if (!wanted) return;
#pragma unroll
    for (int o = 0; o < NO; ++o) {
      if (NO > 1 && y[o] == nullptr) continue;  // of several outputs one may be unwanted
      place.store(y[o], o, out[o]);
    }
  }
};
template <class L, class P, class Out, int NO, class In, int NI, class F>
BARACUDA_D void map(const P& p, Out* const (&y)[NO], const In* const (&x)[NI], const F& f) {
  map_chunks<L, NO + NI>(p, MapArrays<Out, NO, In, NI, F>{y, x, f});
}

// Sets every element of y to `value`.
template <class L, class P, class Out> BARACUDA_D void map_write(const P& p, Out* y, Out value) {
  constexpr int V = L::vec, U = L::unroll;
  Vec<Out, V> chunk;
#pragma unroll
  for (int k = 0; k < V; ++k) chunk[k] = value;
#pragma unroll
  for (int u = 0; u < U; ++u) {
    const i64 c = static_cast<i64>(blockIdx.x) * (map_threads * U) + u * map_threads + threadIdx.x;
    if (c >= p.chunks) break;
    if constexpr (L::flat) {
      store(y + c * V, chunk);
    } else {
      const i64 here[1] = {c};
      i64 at[1][1];
      map_offsets(p, here, at);
      store(y + at[0][0], chunk);
    }
  }
  if constexpr (L::flat && V > 1) {
    const i64 e = p.chunks * V + threadIdx.x;
    if (blockIdx.x == gridDim.x - 1 && e < p.count) y[e] = value;
  }
}

}  // namespace baracuda
