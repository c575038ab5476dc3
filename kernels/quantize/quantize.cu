// quantize   y = clamp(round(x / scale) + zero), or x / scale as a small float; schedule map over blocks.
//
// A thread takes a chunk of 32 bytes of x, two where blocks are several, one of half as many where neighbouring elements
// have scales of their own, or a byte of two codes. Each element is made alone, so that no layout changes a bit. STOCHASTIC:
// quotients are rounded up or down at random, by the word of the element's row-major number in a Philox stream, and a
// thread takes one chunk.
#include "quantize/codes.cuh"
#include "random/draws.cuh"
#include "random/stochastic_code.cuh"

namespace baracuda {

namespace affine {

template <class T, bool FLAT, bool COLUMNS, bool STOCHASTIC> struct QuantizeOp {
  using A = acc_t<T>;
  const QuantizeParams& p;
  template <int V> using OfChunk = Shared<A, (COLUMNS ? V : 1)>;
  template <int V> struct Chunk {
    MapHeld<T, V> x;
    OfChunk<V> shared;
  };

  template <int V> BARACUDA_D Chunk<V> read(const MapPlace<V, places>& place) const {
    Chunk<V> chunk;
    chunk.x = MapHeld<T, V>::load(static_cast<const T*>(p.x), place, at_x);
    chunk.shared = OfChunk<V>::template read<FLAT>(p, place);
    return chunk;
  }
  // The codes of quotients, of which the first is that of element `number`.
  template <int V, int S> BARACUDA_D Vec<i32, V> codes(Vec<A, V> v, const Vec<i32, S>& zero, i64 number) const {
    if constexpr (STOCHASTIC) {
      u32 words[V];
      draws<V>(p.seed(), p.offset(), static_cast<u64>(number + p.base), words);
      if (is_coded_float(p.code)) {
        const FloatCodes codes{p.fraction, p.least, p.top, p.top};
        Vec<i32, V> q;
#pragma unroll
        for (int k = 0; k < V; ++k) {
          const u32 nan = p.code == code_e4m3 ? 0x7f : 0x7e;
          const u32 size = v[k] != v[k] ? nan : stochastic_code(codes, math::abs(v[k]), words[k]);
          q[k] = static_cast<i32>(size | (math::signbit(v[k]) ? 0x80u : 0u));
        }
        return q;
      }
#pragma unroll
      for (int k = 0; k < V; ++k) v[k] = dithered(v[k], words[k]);
    }
    return codes_of(p, v, zero);
  }
  template <int V> BARACUDA_D void write(const MapPlace<V, places>& place, const Chunk<V>& chunk, bool wanted) const {
    if (!wanted) return;
    const i64 at = place.at[at_y], number = place.at[at_number];
    const auto x = widened(chunk.x.elements(place, at_x));
    if constexpr (is_same<A, float> && V >= 4 && !STOCHASTIC && !COLUMNS) {
      if (divides(chunk.shared.scale, quantize::most_of(x, V)) && p.code != code_i32) {
        const auto v = near_quotients(x, chunk.shared.scale);
        return with_codes(p, [&](auto codes) { codes.store(p, at, v, chunk.shared.zero); });
      }
    }
    const auto q = codes(quotients(x, chunk.shared.scale), chunk.shared.zero, number);
    if (V > 1 || !is_packed(p.code)) {
      store_codes(p.y, p.code, at, q);
    } else if constexpr (FLAT) {  // of a tail: the thread of a pair's first element makes both
      if (at & 1) return;
      Vec<T, 1> second;
      second[0] = static_cast<const T*>(p.x)[place.at[at_x] + 1];
      const auto next = codes(quotients(to_acc(second), chunk.shared.scale), chunk.shared.zero, number + 1);
      static_cast<u8*>(p.y)[at >> 1] = static_cast<u8>((q[0] & 15) | next[0] << 4);
    }
  }
};

// Of packed targets a thread makes a byte of any row, whose last may have a lower half alone.
template <class T, bool STOCHASTIC> struct QuantizeBytes {
  using A = acc_t<T>;
  using Op = QuantizeOp<T, false, false, STOCHASTIC>;
  const QuantizeParams& p;
  template <int V> struct Chunk {
    Vec<T, 1> x[2];
    Shared<A, 1> shared[2];
  };
  BARACUDA_D bool alone(i64 byte) const { return 2 * byte + 1 >= p.columns; }
  template <int V> BARACUDA_D Chunk<V> read(const MapPlace<V, places>& place) const {
    const T* const x = static_cast<const T*>(p.x) + place.at[at_x];
    const bool one = alone(place.at[at_byte]);
    Chunk<V> chunk;
    chunk.x[0][0] = *x, chunk.x[1][0] = one ? *x : x[p.step];
    chunk.shared[0] = Shared<A, 1>::template read<false>(p, place);
    chunk.shared[1] = one ? chunk.shared[0] : Shared<A, 1>::beside(p, place);
    return chunk;
  }
  template <int V> BARACUDA_D void write(const MapPlace<V, places>& place, const Chunk<V>& chunk, bool wanted) const {
    if (!wanted) return;
    i32 both = 0;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const auto v = quotients(to_acc(chunk.x[k]), chunk.shared[k].scale);
      both |= (Op{p}.codes(v, chunk.shared[k].zero, place.at[at_number] + k)[0] & 15) << 4 * k;
    }
    static_cast<u8*>(p.y)[place.at[at_y]] = static_cast<u8>(alone(place.at[at_byte]) ? both & 15 : both);
  }
};

template <bool STOCHASTIC> constexpr int chunks_each = STOCHASTIC ? 1 : 2;  // draws of two are many registers

}  // namespace affine

template <class T, bool STOCHASTIC> BARACUDA_D void quantize_flat(const QuantizeParams& p) {
  map_chunks<Flat<affine::chunk_width<T>>, affine::places>(p, affine::QuantizeOp<T, true, false, STOCHASTIC>{p});
}
template <class T, bool STOCHASTIC> BARACUDA_D void quantize_groups(const QuantizeParams& p) {
  map_chunks<Strided<affine::chunk_width<T>, affine::chunks_each<STOCHASTIC>>, affine::places>(
      p, affine::QuantizeOp<T, false, false, STOCHASTIC>{p});
}
template <class T, bool STOCHASTIC> BARACUDA_D void quantize_columns(const QuantizeParams& p) {
  map_chunks<Strided<affine::chunk_width<T> / 2, 1>, affine::places>(p,
                                                                     affine::QuantizeOp<T, false, true, STOCHASTIC>{p});
}
template <class T, bool STOCHASTIC> BARACUDA_D void quantize_one(const QuantizeParams& p) {
  map_chunks<Strided<1, single_elements>, affine::places>(p, affine::QuantizeOp<T, false, false, STOCHASTIC>{p});
}
template <class T, bool STOCHASTIC> BARACUDA_D void quantize_bytes(const QuantizeParams& p) {
  map_chunks<Strided<1, single_elements>, affine::places>(p, affine::QuantizeBytes<T, STOCHASTIC>{p});
}

}  // namespace baracuda
