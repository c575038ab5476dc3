// one_hot    y = on where a class is the one of the index, off elsewhere; schedule map. No sums.
//
// The third operand of the map has no memory: its offset is the class. Where the classes are neighbours in y, chunks of
// a row lie apart from its one element by a number that is found once.
#include <baracuda/map.cuh>

namespace baracuda {

template <int BYTES> BARACUDA_D Word<BYTES> word_of(const long long (&bits)[2]) {
  const u64 low = static_cast<u64>(bits[0]), high = static_cast<u64>(bits[1]);
  const u32 first = static_cast<u32>(low), second = static_cast<u32>(low >> 32);
  if constexpr (BYTES == 16) return uint4{first, second, static_cast<u32>(high), static_cast<u32>(high >> 32)};
  else if constexpr (BYTES == 8) return uint2{first, second};
  else return static_cast<Word<BYTES>>(first);
}

template <int BYTES, class P> struct OneHot {
  using W = Word<BYTES>;
  const P& p;

  template <int V> struct Chunk {
    i64 index[V];
  };
  BARACUDA_D i64 index(i64 at) const {
    return p.index_wide ? static_cast<const i64*>(p.index)[at] : static_cast<const i32*>(p.index)[at];
  }
  template <int V> BARACUDA_D Chunk<V> read(const MapPlace<V, 3>& place) const {
    Chunk<V> in;
#pragma unroll
    for (int k = 0; k < V; ++k) in.index[k] = k == 0 || p.step ? index(place.at[1] + k * p.step) : in.index[0];
    return in;
  }
  template <int V> BARACUDA_D void write(const MapPlace<V, 3>& place, const Chunk<V>& in, bool wanted) const {
    if (!wanted) return;
    const W on = word_of<BYTES>(p.on), off = word_of<BYTES>(p.off);
    Vec<W, V> out;
#pragma unroll
    for (int k = 0; k < V; ++k) out[k] = in.index[k] == place.at[2] + k * p.along ? on : off;
    place.store(static_cast<W*>(p.y), 0, out);
  }
};

// Chunks whose elements have one index and classes that follow one another.
template <int BYTES, class P> struct OneHotRows {
  using W = Word<BYTES>;
  const P& p;

  template <int V> struct Chunk {
    i64 index;
  };
  template <int V> BARACUDA_D Chunk<V> read(const MapPlace<V, 3>& place) const {
    const i64 at = place.at[1];
    return {p.index_wide ? static_cast<const i64*>(p.index)[at] : static_cast<const i32*>(p.index)[at]};
  }
  template <int V> BARACUDA_D void write(const MapPlace<V, 3>& place, const Chunk<V>& in, bool wanted) const {
    if (!wanted) return;
    const W on = word_of<BYTES>(p.on), off = word_of<BYTES>(p.off);
    const i64 from = in.index - place.at[2];
    const int hot = from >= 0 && from < V ? static_cast<int>(from) : -1;
    Vec<W, V> out;
#pragma unroll
    for (int k = 0; k < V; ++k) out[k] = k == hot ? on : off;
    place.store(static_cast<W*>(p.y), 0, out);
  }
};

template <int BYTES, class L, class P> BARACUDA_D void one_hot(const P& p) { map_chunks<L, 3>(p, OneHot<BYTES, P>{p}); }
template <int BYTES, class L, class P> BARACUDA_D void one_hot_rows(const P& p) {
  map_chunks<L, 3>(p, OneHotRows<BYTES, P>{p});
}

}  // namespace baracuda
