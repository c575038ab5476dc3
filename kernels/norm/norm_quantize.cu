// norm_quantize   h = x + residual, u = rms_norm or layer_norm of h in float, y = u / scale in 8 or 4 bits; the scale is
// given, or that of each row, or of each block of its columns, by the largest |u| in it.
//
// A group of LANES threads for each row, of which chunk c of 16 bytes belongs to thread c % LANES. CHUNKS of them a thread
// stay in registers; with CHUNKS = 0 the row is read again, from cache, for the deviations, the maximum and the quotients.
// Sums are in double: a thread adds its chunks in order, then the group as a tree, so that LANES, which follows from the
// number of columns, alone fixes their order. WIDE: all rows are dense, of whole chunks, and aligned.
#include <baracuda/quantize.cuh>
#include <baracuda/rows.cuh>
#include "norm/channel.cuh"

namespace baracuda {

namespace norm {

enum QuantizedOperand { AT_CODES, AT_VALUES, AT_SCALES, AT_SHIFTS, AT_RESIDUAL, AT_SUM };

// Weights of V columns: of T, or float beside it.
template <class T, bool WIDE, class P>
BARACUDA_D Vec<float, vec_elems<T>> weights_at(const P& p, int n, const void* from, i64 col, i64 left) {
  constexpr int V = vec_elems<T>;
  if constexpr (is_half<T>) {
    if (p.wide) {
      const float* const w = static_cast<const float*>(from);
      if constexpr (WIDE) return load<V>(w + col);
      else return load_columns<float, V>(p, n, w, col, left);
    }
  }
  const T* const w = static_cast<const T*>(from);
  if constexpr (WIDE) return to_acc(load<V>(w + col));
  else return to_acc(load_columns<T, V>(p, n, w, col, left));
}

// The group of threads of a row, in a block of `threads`; groups are warps or the whole block.
template <int LANES> struct RowGroup {
  static constexpr int threads = LANES < 128 ? 128 : LANES;
  template <class Op, class A> static BARACUDA_D A reduced(A x) {
    if constexpr (LANES <= warp_size) return group_reduce<Op, LANES>(x);
    else return block_reduce<Op, LANES>(x);
  }
};

template <class T, int LANES, int CHUNKS, bool WIDE> struct QuantizedRow {
  static constexpr int V = vec_elems<T>, held = CHUNKS == 0 ? 1 : CHUNKS;
  const NormQuantizeParams& p;
  i64 at[6];
  int lane;
  Chunk chunks[held];

  BARACUDA_D QuantizedRow(const NormQuantizeParams& params, i64 row)
      : p(params), lane(static_cast<int>(threadIdx.x) % LANES) {
    row_offsets<6>(p, row, at);
    if constexpr (CHUNKS > 0) {
#pragma unroll
      for (int i = 0; i < CHUNKS; ++i) chunks[i] = loaded<Access::streaming>(AT_VALUES, p.x, column(i));
      if (p.residual == nullptr) return;
      Chunk terms[held];
#pragma unroll
      for (int i = 0; i < CHUNKS; ++i) terms[i] = loaded<Access::streaming>(AT_RESIDUAL, p.residual, column(i));
#pragma unroll
      for (int i = 0; i < CHUNKS; ++i) chunks[i] = summed(chunks[i], terms[i], column(i));
    }
  }
  BARACUDA_D i64 column(i64 i) const { return (i * LANES + lane) * V; }
  template <Access ACCESS = Access::plain> BARACUDA_D Chunk loaded(int n, const void* from, i64 col) const {
    return load_chunk<T, WIDE, ACCESS>(p, n, static_cast<const T*>(from) + at[n], col, p.cols - col);
  }
  // h, which is written on the way.
  BARACUDA_D Chunk summed(const Chunk& x, const Chunk& residual, i64 col) const {
    auto sum = to_acc(unpack<T>(x));
    const auto term = to_acc(unpack<T>(residual));
#pragma unroll
    for (int k = 0; k < V; ++k) sum[k] += term[k];
    const Chunk h = pack<T>(from_acc<T>(sum));
    if (p.h != nullptr) store_chunk<T, WIDE>(p, AT_SUM, static_cast<T*>(p.h) + at[AT_SUM], col, h, p.cols - col);
    return h;
  }
  // f(column, h, left) for every chunk of this thread, as often for every thread; left <= 0: it is beyond the row. What is
  // read again is read from h where that was written, as it may have replaced x or the residual.
  template <class F> BARACUDA_D void each(bool again, const F& f) const {
    if constexpr (CHUNKS > 0) {
#pragma unroll
      for (int i = 0; i < CHUNKS; ++i) {
        Chunk h = chunks[i];
        keep_packed(h);
        f(column(i), to_acc(unpack<T>(h)), p.cols - column(i));
      }
    } else {
#pragma unroll 1
      for (i64 first = 0; first < p.cols; first += LANES * V) {
        const i64 col = first + lane * V;
        const bool stored = again && p.h != nullptr;
        Chunk h = stored ? loaded(AT_SUM, p.h, col) : loaded(AT_VALUES, p.x, col);
        if (p.residual != nullptr && !stored) h = summed(h, loaded(AT_RESIDUAL, p.residual, col), col);
        f(col, to_acc(unpack<T>(h)), p.cols - col);
      }
    }
  }
  template <bool CENTER> BARACUDA_D Centre<float> centre() const {
    const double count = static_cast<double>(p.cols);
    double mean = 0, squares = 0;
    if constexpr (CENTER) {
      each(false, [&](i64, const Vec<float, V>& v, i64 left) {
#pragma unroll
        for (int k = 0; k < V; ++k) mean += k < left ? static_cast<double>(v[k]) : 0.0;
      });
      mean = RowGroup<LANES>::template reduced<Sum>(mean) / count;
    }
    each(CENTER, [&](i64, const Vec<float, V>& v, i64 left) {
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const double d = !CENTER || k < left ? static_cast<double>(v[k]) - mean : 0.0;  // beyond the row v is 0
        squares = math::fma(d, d, squares);
      }
    });
    squares = RowGroup<LANES>::template reduced<Sum>(squares);
    return centre_of<float>(mean, 0.0, 1.0 / math::sqrt(squares / count + p.eps));
  }
  template <bool CENTER>
  BARACUDA_D Vec<float, V> normalized(const Centre<float>& s, i64 c, const Vec<float, V>& v, i64 left) const {
    Vec<float, V> u{}, w, b;
    if (left <= 0) return u;
#pragma unroll
    for (int k = 0; k < V; ++k) b[k] = -0.0f;  // added to any number it changes none, not even the sign of 0
    if (p.weight != nullptr) w = weights_at<T, WIDE>(p, AT_SCALES, p.weight, c, left);
    if (CENTER && p.bias != nullptr) b = weights_at<T, WIDE>(p, AT_SHIFTS, p.bias, c, left);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      if constexpr (CENTER) u[k] = (math::fma(v[k], s.scale, -s.mean) - s.low) * s.rstd;
      else u[k] = v[k] * s.scale * s.rstd;
      const float by = p.weight != nullptr ? w[k] + p.weight_offset : 1.0f;
      u[k] = math::fma(u[k], by, b[k]);
    }
    return u;
  }
  // The larger of `most` and the sizes of a chunk; `normalized` is 0 where a chunk is beyond the row.
  static BARACUDA_D float larger(float most, const Vec<float, V>& u, i64 left) {
    return math::maximum(most, quantize::most_of(u, WIDE ? V : left));
  }
  BARACUDA_D void put(i64 c, const Vec<u8, V>& codes, i64 left) const {
    if (left <= 0) return;
    u8* const y = static_cast<u8*>(p.y);
    const bool pairs = p.code == quantize::to_e2m1;  // offsets of y are then in halves of bytes
    if constexpr (WIDE) {
      if (pairs) store(y + (at[AT_CODES] + c) / 2, quantize::paired(codes));
      else store(y + at[AT_CODES] + c, codes);
    } else {
#pragma unroll 1
      for (int k = 0; k < V && k < left; k += pairs ? 2 : 1) {
        const i64 to = at[AT_CODES] + column_offset<false>(p, AT_CODES, c + k);
        if (pairs) y[to / 2] = static_cast<u8>(codes[k] | codes[k + 1] << 4);
        else y[to] = codes[k];
      }
    }
  }
};

}  // namespace norm

template <class T, bool CENTER, int LANES, int CHUNKS, bool WIDE, bool BLOCKS>
BARACUDA_D void norm_quantize(const NormQuantizeParams& p) {
  using namespace norm;
  constexpr int V = vec_elems<T>;
  const i64 row = (static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x) * (RowGroup<LANES>::threads / LANES) +
                  threadIdx.x / LANES;
  if (row >= p.rows) return;  // whole groups
  const QuantizedRow<T, LANES, CHUNKS, WIDE> h(p, row);
  const Centre<float> s = h.template centre<CENTER>();
  const quantize::Coder coder(p.code);
  const float given = static_cast<float>(p.scale());

  if constexpr (BLOCKS) {
    const quantize::BlockScaler scaler(p.largest, p.scale_code, given);
    const int bits = 31 - __clz(p.block);  // of a number in a block
    const i64 first = row * (p.cols >> bits);
    h.each(true, [&](i64 c, const Vec<float, V>& v, i64 left) {
      const Vec<float, V> u = h.template normalized<CENTER>(s, c, v, left);
      const float most = quantize::block_most(h.larger(0.0f, u, left), p.block / V);
      const quantize::BlockScale scale = scaler(most);
      h.put(c, quantize::codes_of(u, quantize::Divisor(scale.value), coder, most), left);
      if (left <= 0 || (c & (p.block - 1)) != 0) return;
      const i64 to = first + (c >> bits);
      if (p.scale_code == quantize::scale_f32) static_cast<float*>(p.scales)[to] = scale.value;
      else static_cast<u8*>(p.scales)[to] = scale.code;
    });
  } else {
    Vec<float, V> u[h.held];  // of a row that is held; others are made again
    if constexpr (CHUNKS > 0) {
      int i = 0;
      h.each(true,
             [&](i64 c, const Vec<float, V>& v, i64 left) { u[i++] = h.template normalized<CENTER>(s, c, v, left); });
    }
    float scale = given;
    if (!p.is_static) {
      float most = 0.0f;
      int i = 0;
      h.each(true, [&](i64 c, const Vec<float, V>& v, i64 left) {
        most = h.larger(most, CHUNKS > 0 ? u[i++] : h.template normalized<CENTER>(s, c, v, left), left);
      });
      scale = quantize::scale_of(RowGroup<LANES>::template reduced<Max>(most), p.largest);
    }
    if (h.lane == 0 && p.scales != nullptr) static_cast<float*>(p.scales)[row] = scale;
    const quantize::Divisor by(scale);
    int i = 0;
    h.each(true, [&](i64 c, const Vec<float, V>& v, i64 left) {
      const Vec<float, V> made = CHUNKS > 0 ? u[i++] : h.template normalized<CENTER>(s, c, v, left);
      // A scale that is found is NaN, or infinite, where a number of the row is.
      const float most = p.is_static ? quantize::most_of(made, V) : scale;
      h.put(c, quantize::codes_of(made, by, coder, most), left);
    });
  }
}

}  // namespace baracuda
