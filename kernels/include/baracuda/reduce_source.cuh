#pragma once
// reduce_source  what a reduction reads: the elements of x as they are, or a map of several operands, made on the way.
//
// `Elements<T>` is operand p.x. `Mapped<F, T0, T1, …>` is f(x0, x1, …), where F is a functor of the page P's operands,
// of elements T0, T1, …. Here that of a dot product, Σ a b, with the sum in acc_t<T> and a result of T:
//
//   template <class T> struct Times {
//     using Value = acc_t<T>;                                // what K::Lane adds: acc_t of the T in K<T>
//     BARACUDA_D explicit Times(const VecdotParams&) {}      // scalars, where there are any
//     static BARACUDA_D void operands(const VecdotParams& p, const void* (&x)[2]) { x[0] = p.a, x[1] = p.b; }
//     BARACUDA_D Value operator()(T a, T b) const { return to_acc(a) * to_acc(b); }  // elements as they are stored
//   };
//   reduce_rows<kinds::Sum<T>, Mapped<Times<T>, T, T>, WIDE>(p)
//
// and on the page `reduce_kernels("kinds::Sum<{T}>", PARAMS, source="Mapped<Times<{T}>, {T}, {T}>")` with
// `reduce_params("VecdotParams", ("a", "b"))` and `reduce_geometry(p, (p.a, p.b), (p.y,), axes)`. Operands broadcast by
// strides of 0, along kept and reduced axes. A chunk is as many elements as the widest operand has in 16 bytes; the
// others are read as many at a time, and an operand that stays where it is once a chunk. f sees each element alone, so
// neither layout nor alignment changes a bit. Elements past the end of a row are not given to f: K::fill() stands there.
//
// A source S has: operands, width (elements of a chunk), batch (chunks on the way), Value, Chunk<N>, and reads at `at`,
// the offsets of its row in each operand. P has strides of all operands, then of the results.
#include <baracuda/chunks.cuh>
#include <baracuda/rows.cuh>

namespace baracuda {

// ---- where elements are ---------------------------------------------------------------------------------------------

// Element offsets in N operands, by divisions that the host prepared: linear is below 2^31, offsets may be beyond.
template <int N>
BARACUDA_D void narrow_offsets(u32 linear, int rank, const u32 (*by)[3], const i64 (*strides)[max_axes],
                               i64 (&out)[N]) {
#pragma unroll
  for (int n = 0; n < N; ++n) out[n] = 0;
#pragma unroll 1
  for (int axis = rank - 1; axis > 0; --axis) {
    u32 coordinate;
    linear = DivMod{by[axis][0], by[axis][1], by[axis][2]}.divmod(linear, coordinate);
#pragma unroll
    for (int n = 0; n < N; ++n) out[n] += coordinate * strides[n][axis];
  }
#pragma unroll
  for (int n = 0; n < N; ++n) out[n] += linear * strides[n][0];  // without axes the stride is 0
}

// FAST kernels: rows times segments, and the reduced elements where they lie along several axes, are below 2^31; so
// there is no 64-bit division in them, which is a call.
template <bool FAST, class P, int N> BARACUDA_D void reduced_offsets(const P& p, i64 r, i64 (&at)[N]) {
  if (p.inner_rank <= 1) {
#pragma unroll
    for (int n = 0; n < N; ++n) at[n] = r * p.inner[n][0];
    return;
  }
  if constexpr (FAST) narrow_offsets<N>(static_cast<u32>(r), p.inner_rank, p.inner_dividers, p.inner, at);
  else offsets<i64, N>(r, p.inner_rank, p.inner_shape, p.inner, at);
}
template <bool FAST, class P> BARACUDA_D i64 reduced_offset(const P& p, i64 r) {
  i64 at[1];
  reduced_offsets<FAST>(p, r, at);
  return at[0];
}
template <bool FAST, class P, int N> BARACUDA_D void kept_offsets(const P& p, i64 row, i64 (&at)[N]) {
  if constexpr (FAST) narrow_offsets<N>(static_cast<u32>(row), p.outer_rank, p.outer_dividers, p.outer, at);
  else row_offsets(p, row, at);
}

// ---- one operand ----------------------------------------------------------------------------------------------------

// Chunks of 16 bytes, or of fewer elements where those are far apart.
template <class T, int WIDTH = vec_elems<T>> struct Elements {
  static constexpr int operands = 1, width = WIDTH, batch = sizeof(T) > 1 ? 4 : 2;
  using Value = acc_t<T>;
  template <int N> using Chunk = Vec<T, N>;
  const T* row;

  template <class P> BARACUDA_D Elements(const P& p, const i64* at) : row(static_cast<const T*>(p.x) + at[0]) {}

  // N aligned elements from element r on, of this row or of N neighbouring ones. LINE: reduced elements lie along an axis.
  template <int N, bool LINE, class P> BARACUDA_D Vec<T, N> whole(const P& p, i64 r) const {
    if constexpr (LINE) return load<N>(row + r * p.inner[0][0]);
    else return load<N>(row + reduced_offset<true>(p, r));
  }
  // Elements r … of the row, of which `left` are in it. WIDE: a whole chunk is 16 aligned bytes.
  template <bool WIDE, class P> BARACUDA_D Vec<T, width> read(const P& p, i64 r, i64 left, T fill) const {
    if constexpr (WIDE) {
      return load_vec<T, width, true>(row + (left > 0 ? reduced_offset<true>(p, r) : 0), left, fill);
    } else {
      if (p.inner_rank <= 1) return load_strided<T, width>(row + r * p.inner[0][0], p.inner[0][0], left, fill);
      Vec<T, width> out;
#pragma unroll 1
      for (int k = 0; k < width; ++k) out[k] = k < left ? row[reduced_offset<false>(p, r + k)] : fill;
      return out;
    }
  }
  BARACUDA_D Vec<Value, width> values(const Vec<T, width>& x, i64, T) const { return cast_vec<Value>(x); }

  // Of neighbouring rows the elements past the end; that of column c as a value.
  template <int VEC> BARACUDA_D Vec<T, VEC> beyond(T fill) const { return spread<T, VEC>(fill); }
  template <int VEC> BARACUDA_D Value value(const Vec<T, VEC>& x, int c, bool, T) const { return cast<Value>(x[c]); }
};

// ---- a map of several -----------------------------------------------------------------------------------------------

template <class... Ts> constexpr int widest = 1;
template <class T, class... Rest> constexpr int widest<T, Rest...> = max(static_cast<int>(sizeof(T)), widest<Rest...>);

template <class F, class... Ts> struct Mapped {
  static constexpr int operands = sizeof...(Ts), width = 16 / widest<Ts...>;
  static constexpr int batch = operands > 2 || width > 8 ? 1 : 2;
  using Value = typename F::Value;
  template <int N> using Chunk = Chunks<N, Ts...>;
  F f;
  const void* from[operands];
  i64 start[operands];

  template <class P> BARACUDA_D Mapped(const P& p, const i64* at) : f(p) {
    F::operands(p, from);
#pragma unroll
    for (int n = 0; n < operands; ++n) start[n] = at[n];
  }

  // Fill stands in values, not in chunks: f need not map any operands to it.
  template <bool WIDE, class P, class V> BARACUDA_D Chunk<width> read(const P& p, i64 r, i64 left, V) const {
    Chunk<width> out;
    i64 at[operands];
    if constexpr (WIDE) {
      reduced_offsets<true>(p, left > 0 ? r : 0, at);
      move(at);
      load_chunks<0>(from, at, p.splat, left, out);
    } else if (p.inner_rank <= 1) {
      reduced_offsets<false>(p, r, at);
      move(at);
      load_strided_chunks<0>(from, at, [&](int n) { return p.inner[n][0]; }, left, out);
    } else {
#pragma unroll 1
      for (int k = 0; k < width; ++k) {
        if (k >= left) break;
        reduced_offsets<false>(p, r + k, at);
        move(at);
        load_element<0>(from, at, k, out);
      }
    }
    return out;
  }
  template <class V> BARACUDA_D Vec<Value, width> values(const Chunk<width>& x, i64 left, V fill) const {
    Vec<Value, width> out;
#pragma unroll
    for (int k = 0; k < width; ++k) out[k] = value(x, k, k < left, fill);
    return out;
  }

  template <int N, bool LINE, class P> BARACUDA_D Chunk<N> whole(const P& p, i64 r) const {
    Chunk<N> out;
    i64 at[operands];
    if constexpr (LINE) {
#pragma unroll
      for (int n = 0; n < operands; ++n) at[n] = r * p.inner[n][0];
    } else {
      reduced_offsets<true>(p, r, at);
    }
    move(at);
    load_chunks<0>(from, at, p.splat, out);
    return out;
  }
  template <int VEC, class V> BARACUDA_D Chunk<VEC> beyond(V) const { return {}; }
  template <int N, class V> BARACUDA_D Value value(const Chunks<N, Ts...>& x, int k, bool exists, V fill) const {
    return exists ? apply(f, x, k) : cast<Value>(fill);
  }

 private:
  BARACUDA_D void move(i64 (&at)[operands]) const {
#pragma unroll
    for (int n = 0; n < operands; ++n) at[n] += start[n];
  }
};

}  // namespace baracuda
