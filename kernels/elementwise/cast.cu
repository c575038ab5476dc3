// cast       y = x in another element, rounded once (convert.cuh); schedule map.
//
// A kernel for each source element and width of the destination, which switches on the destination itself: every thread
// takes the same way. Two 4-bit elements share a byte, along the last axis: the flat kernels take even numbers of them
// as they lie; otherwise a thread takes a byte, of which the last one of a row may have a half.
#include <baracuda/convert.cuh>
#include <baracuda/map.cuh>

namespace baracuda {

template <int CODE> struct Constant {
  static constexpr int value = CODE;
};

constexpr bool has_width(int code, int width) { return is_packed(code) ? width == 0 : stored_widths[code] == width; }

// Calls f with the destination as a constant, which has `WIDTH` bytes (0: half a byte, -1: any).
template <int WIDTH, int CODE = 0, class F> BARACUDA_D void with_destination(int to, const F& f) {
  if constexpr (CODE < element_codes) {
    if constexpr (WIDTH < 0 || has_width(CODE, WIDTH)) {
      if (to == CODE) return f(Constant<CODE>{});
    }
    with_destination<WIDTH, CODE + 1>(to, f);
  }
}

// Whole vectors: floats to 16-bit floats by pairs, and small integers to them by way of float, which is exact.
template <int FROM, int TO, int N>
BARACUDA_D Vec<stored_t<TO>, N> convert_all(const Vec<stored_t<FROM>, N>& x, bool saturate) {
  using From = stored_t<FROM>;
  using To = stored_t<TO>;
  Vec<To, N> y;
  if constexpr (is_half<To> && !is_coded_float(FROM) && !is_packed(FROM) && (is_floating<From> || sizeof(From) <= 2) &&
                !is_same<From, double>) {
    y = cast_vec<To>(cast_vec<float>(x));
    if (saturate) {
#pragma unroll
      for (int k = 0; k < N; ++k) y[k] = within_range(y[k]);
    }
  } else {
#pragma unroll
    for (int k = 0; k < N; ++k) y[k] = element_of<TO>(element_value<FROM>(x[k]), saturate);
  }
  return y;
}

// ---- one byte or more an element ------------------------------------------------------------------------------------

template <int FROM, int WIDTH> struct PlainCast {
  using From = stored_t<FROM>;
  const CastParams& p;

  template <int V> using Chunk = Vec<From, V>;
  template <int V> BARACUDA_D Chunk<V> read(const MapPlace<V, 2>& place) const {
    return place.load(static_cast<const From*>(p.x), 1);
  }
  template <int V> BARACUDA_D void write(const MapPlace<V, 2>& place, const Chunk<V>& x, bool wanted) const {
    with_destination<WIDTH>(p.to, [&](auto to) {
      constexpr int TO = decltype(to)::value;
      if constexpr (!is_packed(TO)) {
        const auto y = convert_all<FROM, TO>(x, p.saturate);
        if (wanted) place.store(static_cast<stored_t<TO>*>(p.y), 0, y);
      }
    });
  }
};

// ---- half a byte, in pairs as they lie ------------------------------------------------------------------------------

// Elements at .. at + V - 1 of two a byte; at is even, or V is 1.
template <int V> BARACUDA_D Vec<u8, V> load_halves(const u8* x, i64 at) {
  Vec<u8, V> half;
  if constexpr (V == 1) {
    half[0] = x[at >> 1] >> (at & 1 ? 4 : 0) & 15;
  } else {
    const Vec<u8, V / 2> whole = load<V / 2>(x + (at >> 1));
#pragma unroll
    for (int k = 0; k < V; ++k) half[k] = whole[k / 2] >> (k % 2 ? 4 : 0) & 15;
  }
  return half;
}

template <int FROM, int WIDTH> struct PairCast {
  using From = stored_t<FROM>;
  const CastParams& p;

  template <int V> using Chunk = Vec<From, V>;
  template <int V> BARACUDA_D Chunk<V> fetch(i64 at) const {
    if constexpr (is_packed(FROM)) return load_halves<V>(static_cast<const u8*>(p.x), at);
    else return load<V>(static_cast<const From*>(p.x) + at);
  }
  template <int V> BARACUDA_D Chunk<V> read(const MapPlace<V, 1>& place) const { return fetch<V>(place.at[0]); }
  template <int V> BARACUDA_D void write(const MapPlace<V, 1>& place, const Chunk<V>& x, bool wanted) const {
    const i64 at = place.at[0];
    with_destination<WIDTH>(p.to, [&](auto to) {
      constexpr int TO = decltype(to)::value;
      using To = stored_t<TO>;
      const Vec<To, V> y = convert_all<FROM, TO>(x, p.saturate);
      if (!wanted) return;
      if constexpr (!is_packed(TO)) {
        store(static_cast<To*>(p.y) + at, y);
      } else if constexpr (V == 1) {  // a tail is even: the thread of its first element has the second, too
        if (at & 1) return;
        const Vec<To, 1> next = convert_all<FROM, TO>(fetch<1>(at + 1), p.saturate);
        static_cast<u8*>(p.y)[at >> 1] = static_cast<u8>(y[0] | next[0] << 4);
      } else {
        Vec<u8, V / 2> whole;
#pragma unroll
        for (int k = 0; k < V / 2; ++k) whole[k] = static_cast<u8>(y[2 * k] | y[2 * k + 1] << 4);
        store(static_cast<u8*>(p.y) + (at >> 1), whole);
      }
    });
  }
};

// ---- half a byte, any strides ---------------------------------------------------------------------------------------

// A thread for each byte of every row: operands y, x and the byte's number in its row. Of an element of whole bytes the
// pair's second is `step` from the first; in a row of an odd number of elements, the upper half of the last byte is 0.
template <int FROM> struct ByteCast {
  using From = stored_t<FROM>;
  const CastParams& p;

  template <int V> struct Chunk {
    From first, second;
  };
  BARACUDA_D bool alone(i64 byte) const { return 2 * byte + 1 >= p.columns; }
  template <int V> BARACUDA_D Chunk<V> read(const MapPlace<V, 3>& place) const {
    const From* const x = static_cast<const From*>(p.x) + place.at[1];
    if constexpr (is_packed(FROM)) return {static_cast<u8>(*x & 15), static_cast<u8>(*x >> 4)};
    else return {*x, alone(place.at[2]) ? *x : x[p.step]};
  }
  template <int V> BARACUDA_D void write(const MapPlace<V, 3>& place, const Chunk<V>& x, bool wanted) const {
    if (!wanted) return;
    const bool both = !alone(place.at[2]);
    with_destination<is_packed(FROM) ? -1 : 0>(p.to, [&](auto to) {
      constexpr int TO = decltype(to)::value;
      using To = stored_t<TO>;
      const To first = element_of<TO>(element_value<FROM>(x.first), p.saturate);
      const To second = element_of<TO>(element_value<FROM>(x.second), p.saturate);
      To* const y = static_cast<To*>(p.y) + place.at[0];
      if constexpr (is_packed(TO)) {
        *y = static_cast<u8>(first | (both ? second << 4 : 0));
      } else {
        *y = first;
        if (both) y[p.step] = second;
      }
    });
  }
};

// ---- kernels --------------------------------------------------------------------------------------------------------

// Elements in 16 bytes of the wider of two elements.
constexpr int cast_width(int from, int width) {
  return 16 / (stored_widths[from] > width ? stored_widths[from] : width);
}

template <int FROM, int WIDTH> BARACUDA_D void cast_flat(const CastParams& p) {
  constexpr int V = is_packed(FROM) && WIDTH == 0 ? 32 : cast_width(FROM, WIDTH);
  if constexpr (is_packed(FROM) || WIDTH == 0) map_chunks<Flat<V>, 1>(p, PairCast<FROM, WIDTH>{p});
  else map_chunks<Flat<V>, 2>(p, PlainCast<FROM, WIDTH>{p});
}
template <int FROM, int WIDTH> BARACUDA_D void cast_strided(const CastParams& p) {
  map_chunks<Strided<cast_width(FROM, WIDTH), strided_chunks, strided_elements>, 2>(p, PlainCast<FROM, WIDTH>{p});
}
template <int FROM> BARACUDA_D void cast_one(const CastParams& p) {
  map_chunks<Strided<1, strided_elements>, 2>(p, PlainCast<FROM, -1>{p});
}
template <int FROM> BARACUDA_D void cast_bytes(const CastParams& p) {
  map_chunks<Strided<1, cast_pairs>, 3>(p, ByteCast<FROM>{p});
}

}  // namespace baracuda
