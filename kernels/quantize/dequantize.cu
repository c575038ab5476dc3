// dequantize   y = (x - zero) scale of codes x; schedule map over blocks.
//
// A thread makes 16 bytes of y, twice that where blocks are several, an element, or the two of a byte. What x holds is a
// constant, what y holds a parameter. Differences are exact, of int32 in double; products are rounded in acc_t<T> (of
// int32 in double), then to T.
#include "quantize/codes.cuh"

namespace baracuda {

namespace affine {

template <int CODE, class A> BARACUDA_D auto value_of(stored_t<CODE> code, i32 zero, A scale) {
  const auto x = element_value<CODE>(code);
  if constexpr (CODE == code_i32) return (static_cast<double>(x) - zero) * static_cast<double>(scale);
  else if constexpr (is_coded_float(CODE)) return static_cast<A>(x) * scale;
  else
    return (static_cast<A>(x) - static_cast<A>(max(WholeRange<CODE>::low, min(WholeRange<CODE>::high, zero)))) * scale;
}

template <int CODE> constexpr bool is_short = !is_coded_float(CODE) && CODE != code_i32;  // an integer of 4 to 16 bits

// V short integers as words, each counted from the lowest there is.
template <int CODE, int V> struct ShortCodes {
  using Range = WholeRange<CODE>;
  static constexpr int bits = Range::bits, each = V * bits < 32 ? V : 32 / bits;
  static constexpr u32 ones = bits == 4 ? 0x11111111u : bits == 8 ? 0x01010101u : 0x00010001u;
  Vec<u32, V / each> word;

  static BARACUDA_D ShortCodes load(const void* x, const MapPlace<V, places>& place) {
    if constexpr (bits == 4) {
      const u8* const from = static_cast<const u8*>(x) + (place.at[at_x] >> 1);
      ShortCodes codes;
      if constexpr (V == 4) codes.word[0] = *reinterpret_cast<const u16*>(from);
      else codes.word = baracuda::load<V / each>(reinterpret_cast<const u32*>(from));
      return codes;
    } else {
      using Item = Word<bits / 8>;
      return {MapWords<Item, V>::load(static_cast<const Item*>(x), place, at_x).word};
    }
  }
  BARACUDA_D ShortCodes spread(const MapPlace<V, places>& place) const {
    if constexpr (bits == 4) return *this;
    else return {MapWords<Word<bits / 8>, V>{word}.spread(place, at_x).word};
  }
  // 2^23 and the count of code k, which is in the last bits of that float.
  BARACUDA_D float counted(int k) const {
    const u32 from = word[k / each] ^ (Range::is_signed ? ones << (bits - 1) : 0u);
    const u32 some = bits == 4 ? (k % 2 ? from >> 4 : from) & 0x0f0f0f0fu : from;
    constexpr u32 exponent = 0x4b000000u;
    if (bits == 16) return __uint_as_float(__byte_perm(some, exponent, k % 2 ? 0x7432 : 0x7410));
    return __uint_as_float(__byte_perm(some, exponent, 0x7440 + (bits == 4 ? k % each / 2 : k % each)));
  }
  // Their differences from zero points, exactly.
  template <int S> BARACUDA_D Vec<float, V> above(const Vec<i32, S>& zero) const {
    Vec<float, V> made;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const i32 z = max(Range::low, min(Range::high, zero[S == 1 ? 0 : k]));
      made[k] = counted(k) - static_cast<float>((1 << 23) - Range::low + z);
    }
    return made;
  }
};

// f(T{}) of the float that y holds, of WIDTH bytes; 0: of any.
template <int WIDTH, class F> BARACUDA_D void with_float(int code, const F& f) {
  if constexpr (WIDTH == 0 || WIDTH == 4) {
    if (code == code_f32) return f(float());
  }
  if constexpr (WIDTH == 0 || WIDTH == 8) {
    if (code == code_f64) return f(double());
  }
  if constexpr (WIDTH == 0 || WIDTH == 2) {
    if (code == code_f16) f(f16());
    else if (code == code_bf16) f(bf16());
  }
}

template <int CODE, int WIDTH, bool FLAT> struct DequantizeOp {
  const DequantizeParams& p;
  template <int S> using Own = Shared<conditional<WIDTH == 8, double, float>, S>;
  template <int V> static constexpr bool in_words = is_short<CODE> && WIDTH != 8 && V >= 4;
  template <int V> struct Chunk {
    conditional<in_words<V>, ShortCodes<CODE, V>, Vec<stored_t<CODE>, V>> codes;
    Own<1> first;  // what the first element shares
  };

  template <int V> BARACUDA_D Chunk<V> read(const MapPlace<V, places>& place) const {
    Chunk<V> chunk;
    if constexpr (in_words<V>) chunk.codes = ShortCodes<CODE, V>::load(p.x, place);
    else if constexpr (is_packed(CODE)) chunk.codes = load_codes<CODE, V>(p.x, place.at[at_x]);
    else chunk.codes = place.load(static_cast<const stored_t<CODE>*>(p.x), at_x);
    if constexpr (WIDTH != 0) chunk.first = Own<1>::template read<FLAT>(p, place);
    return chunk;
  }
  template <int V> BARACUDA_D void write(const MapPlace<V, places>& place, const Chunk<V>& chunk, bool wanted) const {
    if (!wanted) return;
    if constexpr (WIDTH == 0) {
      with_float<0>(p.to, [&](auto made) {
        using T = decltype(made);
        put<T>(place, values(place, chunk, Shared<acc_t<T>, V>::template read<FLAT>(p, place)));
      });
    } else if constexpr (FLAT || V == 1) {
      put_any(place, values(place, chunk, chunk.first));
    } else {
      if (shares(place)) put_any(place, values(place, chunk, chunk.first));
      else put_any(place, values(place, chunk, Own<V>::template read<false>(p, place)));
    }
  }

 private:
  template <int V, class A, int S>
  static BARACUDA_D auto values(const MapPlace<V, places>& place, const Chunk<V>& chunk, const Shared<A, S>& shared) {
    Vec<decltype(value_of<CODE>(stored_t<CODE>(), 0, A(0))), V> y;
    if constexpr (in_words<V>) {
      y = chunk.codes.spread(place).above(shared.zero);
#pragma unroll
      for (int k = 0; k < V; ++k) y[k] *= shared.scale[S == 1 ? 0 : k];
    } else {
#pragma unroll
      for (int k = 0; k < V; ++k)
        y[k] = value_of<CODE>(chunk.codes[k], shared.zero[S == 1 ? 0 : k], shared.scale[S == 1 ? 0 : k]);
    }
    return y;
  }
  template <class T, int V, class Y> BARACUDA_D void put(const MapPlace<V, places>& place, const Vec<Y, V>& y) const {
    store(static_cast<T*>(p.y) + place.at[at_y], cast_vec<T>(y));
  }
  template <int V, class Y> BARACUDA_D void put_any(const MapPlace<V, places>& place, const Vec<Y, V>& y) const {
    with_float<WIDTH>(p.to, [&](auto made) { put<decltype(made)>(place, y); });
  }
};

// A thread for each byte of packed codes, of which the last of a row may have a lower half alone.
template <int CODE> struct DequantizeBytes {
  const DequantizeParams& p;
  template <int V> using Chunk = u8;
  template <int V> BARACUDA_D u8 read(const MapPlace<V, places>& place) const {
    return static_cast<const u8*>(p.x)[place.at[at_x]];
  }
  template <int V> BARACUDA_D void write(const MapPlace<V, places>& place, u8 both, bool wanted) const {
    if (!wanted) return;
    with_float<0>(p.to, [&](auto made) {
      using T = decltype(made);
      using Own = Shared<acc_t<T>, 1>;
      T* const y = static_cast<T*>(p.y) + place.at[at_y];
      const Own first = Own::template read<false>(p, place);
      *y = cast<T>(value_of<CODE>(static_cast<u8>(both & 15), first.zero[0], first.scale[0]));
      if (2 * place.at[at_byte] + 1 >= p.columns) return;
      const Own second = Own::beside(p, place);
      y[p.step] = cast<T>(value_of<CODE>(static_cast<u8>(both >> 4), second.zero[0], second.scale[0]));
    });
  }
};

}  // namespace affine

template <int CODE, int WIDTH> BARACUDA_D void dequantize_flat(const DequantizeParams& p) {
  map_chunks<Flat<16 / WIDTH>, affine::places>(p, affine::DequantizeOp<CODE, WIDTH, true>{p});
}
template <int CODE, int WIDTH> BARACUDA_D void dequantize_strided(const DequantizeParams& p) {
  map_chunks<Strided<16 / WIDTH, 2>, affine::places>(p, affine::DequantizeOp<CODE, WIDTH, false>{p});
}
template <int CODE> BARACUDA_D void dequantize_one(const DequantizeParams& p) {
  map_chunks<Strided<1, single_elements>, affine::places>(p, affine::DequantizeOp<CODE, 0, false>{p});
}
template <int CODE> BARACUDA_D void dequantize_bytes(const DequantizeParams& p) {
  map_chunks<Strided<1, single_elements>, affine::places>(p, affine::DequantizeBytes<CODE>{p});
}

}  // namespace baracuda
