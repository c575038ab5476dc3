// dequantize   y = (x - zero) scale of codes x; schedule map over blocks.
//
// A thread makes 16 bytes of y, an element, or the two of a byte. What x holds is a constant, what y holds a parameter. Differences are exact, of int32 in double; products are rounded in acc_t<T> (of int32 in double), then to T.
#include "quantize/affine.cuh"

namespace baracuda {

namespace affine {

template <int CODE, class A> BARACUDA_D auto value_of(stored_t<CODE> code, i32 zero, A scale) {
  const auto x = element_value<CODE>(code);
  if constexpr (CODE == code_i32) return (static_cast<double>(x) - zero) * static_cast<double>(scale);
  else if constexpr (is_coded_float(CODE)) return static_cast<A>(x) * scale;
  else
    return (static_cast<A>(x) - static_cast<A>(max(WholeRange<CODE>::low, min(WholeRange<CODE>::high, zero)))) * scale;
}

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
  template <int V> using Chunk = Vec<stored_t<CODE>, V>;

  template <int V> BARACUDA_D Chunk<V> read(const MapPlace<V, places>& place) const {
    if constexpr (is_packed(CODE)) return load_codes<CODE, V>(p.x, place.at[at_x]);
    else return place.load(static_cast<const stored_t<CODE>*>(p.x), at_x);
  }
  template <int V> BARACUDA_D void write(const MapPlace<V, places>& place, const Chunk<V>& q, bool wanted) const {
    if (!wanted) return;
    with_float<WIDTH>(p.to, [&](auto made) {
      using T = decltype(made);
      using A = acc_t<T>;
      constexpr int S = FLAT ? 1 : V;
      const auto shared = Shared<A, S>::template read<FLAT>(p, place);
      Vec<decltype(value_of<CODE>(q[0], 0, A(0))), V> y;
#pragma unroll
      for (int k = 0; k < V; ++k)
        y[k] = value_of<CODE>(q[k], shared.zero[S == 1 ? 0 : k], shared.scale[S == 1 ? 0 : k]);
      store(static_cast<T*>(p.y) + place.at[at_y], cast_vec<T>(y));
    });
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
  map_chunks<Strided<16 / WIDTH, 1>, affine::places>(p, affine::DequantizeOp<CODE, WIDTH, false>{p});
}
template <int CODE> BARACUDA_D void dequantize_one(const DequantizeParams& p) {
  map_chunks<affine::Single, affine::places>(p, affine::DequantizeOp<CODE, 0, false>{p});
}
template <int CODE> BARACUDA_D void dequantize_bytes(const DequantizeParams& p) {
  map_chunks<affine::Single, affine::places>(p, affine::DequantizeBytes<CODE>{p});
}

}  // namespace baracuda
