#pragma once
// scan_chunks  what a thread holds of a scan's operands: a chunk of each, and the tile that the chunks of a group make.
//
// baracuda/scan_axis.cuh says what a kind K is, and in which order its states are merged.
#include <baracuda/reduce.cuh>
#include <baracuda/rows.cuh>

namespace baracuda {

template <class T> constexpr int scan_vec = min(vec_elems<T>, 8);

// Operands are numbered: inputs, outputs, and what a row has one of before its first element and after its last.
constexpr int scan_ins = 0, scan_outs = 4, scan_begins = 6, scan_ends = 9, scan_operands = 11;
using ScanPlaces = i64[scan_operands];  // where a row begins in each, in elements

// ---- elements of several operands -----------------------------------------------------------------------------------

template <class... X> struct Types;
template <> struct Types<> {
  static constexpr int count = 0;
};
template <class X, class... R> struct Types<X, R...> {
  static constexpr int count = 1 + sizeof...(R);
  using first = X;
  using others = Types<R...>;
};
template <int N, class L> struct Pick_ : Pick_<N - 1, typename L::others> {};
template <class L> struct Pick_<0, L> {
  using type = typename L::first;
};
template <int N, class L> using Pick = typename Pick_<N, L>::type;

template <int N> struct Number {
  static constexpr int value = N;
};
template <int N, class F> BARACUDA_D void each_of(const F& f) {  // f(Number<0>{}), …, f(Number<N - 1>{})
  if constexpr (N > 0) {
    each_of<N - 1>(f);
    f(Number<N - 1>{});
  }
}

// V elements of each operand.
template <int V, class L> struct ScanChunks {
  Vec<typename L::first, V> own;
  ScanChunks<V, typename L::others> others;
  template <int N> BARACUDA_D Vec<Pick<N, L>, V>& get() {
    if constexpr (N == 0) return own;
    else return others.template get<N - 1>();
  }
};
template <int V> struct ScanChunks<V, Types<>> {};

// Element k of each: x.at<n>().
template <int V, class L> struct ScanItem {
  ScanChunks<V, L>& all;
  int k;
  template <int N> BARACUDA_D Pick<N, L>& at() const { return all.template get<N>()[k]; }
};

// ---- pointers -------------------------------------------------------------------------------------------------------

template <int N, class P> BARACUDA_D void* scan_input(const P& p) {
  if constexpr (N == 0) return p.in0;
  else if constexpr (N == 1) return p.in1;
  else if constexpr (N == 2) return p.in2;
  else return p.in3;
}
template <int N, class P> BARACUDA_D void* scan_output(const P& p) {
  if constexpr (N == 0) return p.out0;
  else return p.out1;
}

// What a row has one of: element at[n] of an array, or null where that is absent.
template <class X> BARACUDA_D X* scan_own(void* array, i64 at) {
  return array == nullptr ? nullptr : static_cast<X*>(array) + at;
}

// Where element r of the scan lies along the row.
template <class P> BARACUDA_D i64 scan_place(const P& p, i64 r) { return p.reverse ? p.cols - 1 - r : r; }

// ---- merges ---------------------------------------------------------------------------------------------------------

// Inclusive over aligned groups of `lanes` lanes. All 32 lanes call.
template <class K, class S> BARACUDA_D S scan_lanes(S x, int lanes) {
  const int lane = lane_id(), first = lane & (lanes - 1);
#pragma unroll 1
  for (int step = 1; step < lanes; step *= 2) {
    const S before = shuffle(x, (lane - step) & (warp_size - 1));
    if (first >= step) x = K::merge(before, x);
  }
  return x;
}

// s[k], the leaves of a group's chunks, become what is up to each within its chunk; the result is what is up to the last
// within the tile.
template <class K, class S, int V> BARACUDA_D S scan_chunk(S (&s)[V], int lanes) {
#pragma unroll
  for (int k = 1; k < V; ++k) s[k] = K::merge(s[k - 1], s[k]);
  return scan_lanes<K>(s[V - 1], lanes);
}

// The total of a group's tile, from what `scan_chunk` returned.
template <class S> BARACUDA_D S tile_total(const S& up, int lanes) { return shuffle(up, lane_id() | (lanes - 1)); }

// s[k] become what is up to each in its row (exclusive: before it), where carry is before the tile.
template <class K, class S, int V>
BARACUDA_D void scan_tile(S (&s)[V], const S& up, const S& carry, int lanes, bool exclusive) {
  const int lane = lane_id(), first = lane & (lanes - 1);
  const S left = shuffle(up, (lane - 1) & (warp_size - 1));
  const S before = first == 0 ? carry : K::merge(carry, left);
  if (exclusive) {
#pragma unroll
    for (int k = V - 1; k > 0; --k) s[k] = K::merge(before, s[k - 1]);
    s[0] = before;
  } else {
#pragma unroll
    for (int k = 0; k < V; ++k) s[k] = K::merge(before, s[k]);
  }
}

// The leaves of elements r, r + 1, … of a row, of which `left` exist.
template <class K, class L, int V>
BARACUDA_D void scan_leaves(const K& kind, ScanChunks<V, L>& x, i64 r, i64 left, typename K::State (&s)[V]) {
#pragma unroll
  for (int k = 0; k < V; ++k) s[k] = k < left ? kind.leaf(ScanItem<V, L>{x, k}, r + k) : K::empty();
}

}  // namespace baracuda
