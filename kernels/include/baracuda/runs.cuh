#pragma once
// runs       y[j] = f(x[j + shift], …, x[j + shift + REACH - 1]) along rows that are runs of memory at any alignment;
//            geometry in schedules/runs.py.
//
// Views that are shifted by an element have no common alignment. A row of y is cut where 16 bytes of it are aligned:
// chunk c of a row is one aligned access of y, of which the first and the last chunk have only what is in the row. What
// f reads for it lies in two or three aligned accesses of x, which are shifted into place in registers. Where one of
// those would leave the row, elements are read one by one, and nothing beyond the row: there stands edge(the element at
// that end). f sees each element alone, so that alignment changes no bit.
//
// P has the fields of `schedules/runs.py: run_params`; operands are y, x, and what a row has one of.
#include <baracuda/reduce_source.cuh>

namespace baracuda {

// Element `first` of a row is the first of the chunk; it is negative where the row begins inside the chunk.
template <int N> struct RunChunk {
  i64 at[N];  // of the row, in each operand
  i32 first;
  bool wanted;
};

// The thread's chunk u, of N operands.
template <class T, int N, class P> BARACUDA_D RunChunk<N> run_chunk(const P& p, const T* y, int u) {
  constexpr int V = vec_elems<T>;
  const u32 c = blockIdx.x * (run_threads * run_unroll) + u * run_threads + threadIdx.x, last = p.total - 1;
  RunChunk<N> chunk;
  u32 place;
  const u32 row = DivMod{p.divider[0], p.divider[1], p.divider[2]}.divmod(min(c, last), place);
  narrow_offsets<N>(row, p.outer_rank, p.outer_dividers, p.outer, chunk.at);
  const u32 lead = static_cast<u32>(reinterpret_cast<u64>(y + chunk.at[0]) / sizeof(T)) % V;
  chunk.first = static_cast<i32>(place * V - lead);
  chunk.wanted = c <= last;
  return chunk;
}

// Stores what of the chunk is in the row.
template <class T, int N, class P, int V>
BARACUDA_D void store_run(const P& p, T* y, const RunChunk<N>& chunk, const Vec<T, V>& values) {
  T* const to = y + chunk.at[0] + chunk.first;
  if (!chunk.wanted) return;
  if (chunk.first >= 0 && chunk.first + V <= p.cols) {
    store(to, values);
    return;
  }
#pragma unroll
  for (int k = 0; k < V; ++k) {
    if (chunk.first + k >= 0 && chunk.first + k < p.cols) to[k] = values[k];
  }
}

// Elements n … n + COUNT - 1 of a row of x.
template <class T, int COUNT> struct RunWindow {
  static constexpr int V = vec_elems<T>, accesses = (V - 1 + COUNT + V - 1) / V;
  static constexpr int words = (COUNT * static_cast<int>(sizeof(T)) + 3) / 4;
  u32 held[4 * accesses];
  const T* row;
  i32 first, lead;  // lead: elements of the accesses before the first
  bool whole;       // no access leaves the row

  BARACUDA_D void read(const T* x, i32 n, i32 run) {
    row = x, first = n;
    lead = static_cast<i32>(reinterpret_cast<u64>(row + n) / sizeof(T) % V);
    const int needed = (lead + COUNT + V - 1) / V;
    whole = n >= lead && n - lead + needed * V <= run;
    if (!whole) return;
    const uint4* const from = reinterpret_cast<const uint4*>(row + (n - lead));
#pragma unroll
    for (int k = 0; k < accesses; ++k) {
      if (k >= 2 && k >= needed) break;  // two are needed at any alignment
      const uint4 got = from[k];
      held[4 * k] = got.x, held[4 * k + 1] = got.y, held[4 * k + 2] = got.z, held[4 * k + 3] = got.w;
    }
  }

  union Elements {
    u32 word[words];
    T at[words * 4 / sizeof(T)];
    BARACUDA_D Elements() {}
  };
  template <class E> BARACUDA_D Elements elements(i32 run, const E& edge) {
    Elements x;
    if (whole) {
      const u32 skipped = static_cast<u32>(lead) * static_cast<u32>(sizeof(T));
#pragma unroll
      for (int k = 0; k + 2 < 4 * accesses; ++k) held[k] = skipped & 8 ? held[k + 2] : held[k];
      if constexpr (sizeof(T) <= 4) {
#pragma unroll
        for (int k = 0; k + 1 < 4 * accesses; ++k) held[k] = skipped & 4 ? held[k + 1] : held[k];
      }
#pragma unroll
      for (int k = 0; k < words; ++k) {
        if constexpr (sizeof(T) >= 4) x.word[k] = held[k];
        else x.word[k] = __funnelshift_r(held[k], held[k + 1], (skipped & 3) * 8);
      }
    } else {
#pragma unroll
      for (int k = 0; k < COUNT; ++k) {
        const i32 n = first + k;
        const T one = row[max<i32>(min<i32>(n, run - 1), 0)];
        x.at[k] = n < 0 || n >= run ? edge(one) : one;
      }
    }
#pragma unroll
    for (int k = 0; k < words; ++k) asm volatile("" : "+r"(x.word[k]));  // else a register for each element
    return x;
  }
};

// each(at) is what a row has one of, read at the offsets of the row in N operands; f(that, x) gets the elements
// x[j + shift] … for the chunk of y from j on.
template <class T, int REACH, int N, class P, class R, class F, class E>
BARACUDA_D void runs(const P& p, T* y, const T* x, const R& each, const F& f, const E& edge) {
  constexpr int V = vec_elems<T>;
  RunChunk<N> chunk[run_unroll];
  RunWindow<T, V + REACH - 1> window[run_unroll];
  decltype(each(chunk[0].at)) of_row[run_unroll];
#pragma unroll
  for (int u = 0; u < run_unroll; ++u) {
    chunk[u] = run_chunk<T, N>(p, y, u);
    of_row[u] = each(chunk[u].at);
    window[u].read(x + chunk[u].at[1], chunk[u].first + p.shift, p.run);
  }
#pragma unroll
  for (int u = 0; u < run_unroll; ++u) {
    store_run<T, N>(p, y, chunk[u], f(of_row[u], window[u].elements(p.run, edge).at));
  }
}

// The same of f(each(at), end) alone, where end says whether an element is the first or the last of its row.
template <class T, int N, class P, class R, class F>
BARACUDA_D void constant_runs(const P& p, T* y, const R& each, const F& f) {
  constexpr int V = vec_elems<T>;
#pragma unroll
  for (int u = 0; u < run_unroll; ++u) {
    const RunChunk<N> chunk = run_chunk<T, N>(p, y, u);
    const auto of_row = each(chunk.at);
    const T inner = f(of_row, false), end = f(of_row, true);
    Vec<T, V> values;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const i32 j = chunk.first + k;
      values[k] = j == 0 || j == p.cols - 1 ? end : inner;
    }
    store_run<T, N>(p, y, chunk, values);
  }
}

}  // namespace baracuda
