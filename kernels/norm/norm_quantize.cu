// norm_quantize   h = x + residual, u = rms_norm or layer_norm of h in float, y = u / scale in 8 bits; the scale is given, or
// max |u| / largest of each row.
//
// A block for each row, which reads it again from cache for the deviations, the maximum and the quotients. Sums are in
// double: a thread adds its chunks in order, then the block as a tree. WIDE: all rows are dense, of whole chunks, and
// aligned.
#include <baracuda/convert.cuh>
#include <baracuda/reduce.cuh>
#include <baracuda/rows.cuh>
#include "norm/channel.cuh"

namespace baracuda {

namespace norm {

enum QuantizedOperand { AT_CODES, AT_VALUES, AT_SCALES, AT_SHIFTS, AT_RESIDUAL, AT_SUM };
enum Code { fp8_e4m3, fp8_e5m2, int8 };

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

// NaN as an integer is 0.
BARACUDA_D u8 code_of(float x, int code) {
  if (code == fp8_e4m3) return coded<code_e4m3>(x, true);
  if (code == fp8_e5m2) return coded<code_e5m2>(x, true);
  const float whole = x != x ? 0.0f : math::rint(x);
  return static_cast<u8>(static_cast<i8>(whole > 127.0f ? 127.0f : whole < -128.0f ? -128.0f : whole));
}

}  // namespace norm

template <class T, bool CENTER, int THREADS, bool WIDE> BARACUDA_D void norm_quantize(const NormQuantizeParams& p) {
  using namespace norm;
  constexpr int V = vec_elems<T>;
  const i64 row = static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x;
  if (row >= p.rows) return;
  i64 at[6];
  row_offsets<6>(p, row, at);
  const T* const x = static_cast<const T*>(p.x) + at[AT_VALUES];
  const T* const residual = static_cast<const T*>(p.residual) + at[AT_RESIDUAL];
  T* const h = static_cast<T*>(p.h) + at[AT_SUM];
  u8* const y = static_cast<u8*>(p.y) + at[AT_CODES];
  const double count = static_cast<double>(p.cols);

  // f(column, h, left) for every chunk of this thread. h is written on the way the first time, and then read: it may have
  // replaced x or the residual.
  const auto each = [&](bool again, const auto& f) {
#pragma unroll 1
    for (i64 c = static_cast<i64>(threadIdx.x) * V; c < p.cols; c += THREADS * V) {
      const i64 left = p.cols - c;
      const bool stored = again && p.h != nullptr;
      Chunk v = stored ? load_chunk<T, WIDE>(p, AT_SUM, h, c, left) : load_chunk<T, WIDE>(p, AT_VALUES, x, c, left);
      if (p.residual != nullptr && !stored) {
        auto sum = to_acc(unpack<T>(v));
        const auto term = to_acc(unpack<T>(load_chunk<T, WIDE>(p, AT_RESIDUAL, residual, c, left)));
#pragma unroll
        for (int k = 0; k < V; ++k) sum[k] += term[k];
        v = pack<T>(from_acc<T>(sum));
        if (p.h != nullptr) store_chunk<T, WIDE>(p, AT_SUM, h, c, v, left);
      }
      f(c, to_acc(unpack<T>(v)), left);
    }
  };

  double mean = 0, squares = 0;
  if constexpr (CENTER) {
    each(false, [&](i64, const Vec<float, V>& v, i64 left) {
#pragma unroll
      for (int k = 0; k < V; ++k) mean += k < left ? static_cast<double>(v[k]) : 0.0;
    });
    mean = block_reduce<Sum, THREADS>(mean) / count;
  }
  each(CENTER, [&](i64, const Vec<float, V>& v, i64 left) {
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const double d = k < left ? static_cast<double>(v[k]) - mean : 0.0;
      squares = math::fma(d, d, squares);
    }
  });
  squares = block_reduce<Sum, THREADS>(squares);
  const Centre<float> s = centre_of<float>(mean, 0.0, 1.0 / math::sqrt(squares / count + p.eps));

  const auto normalized = [&](i64 c, const Vec<float, V>& v, i64 left) {
    Vec<float, V> u, w, b{};
    if (p.weight != nullptr) w = weights_at<T, WIDE>(p, AT_SCALES, p.weight, c, left);
    if (CENTER && p.bias != nullptr) b = weights_at<T, WIDE>(p, AT_SHIFTS, p.bias, c, left);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      u[k] = (math::fma(v[k], s.scale, -s.mean) - s.low) * s.rstd;
      if (p.weight != nullptr) u[k] = math::fma(u[k], w[k] + p.weight_offset, b[k]);
      else u[k] += b[k];
    }
    return u;
  };

  float scale = static_cast<float>(p.scale());
  if (!p.is_static) {
    float most = 0.0f;
    each(true, [&](i64 c, const Vec<float, V>& v, i64 left) {
      const Vec<float, V> u = normalized(c, v, left);
#pragma unroll
      for (int k = 0; k < V; ++k) {
        if (k < left) most = math::maximum(most, math::abs(u[k]));
      }
    });
    most = block_reduce<Max, THREADS>(most);
    const float quotient = most / p.largest;  // a subnormal one has few digits
    scale = quotient < numeric<float>::tiny() ? numeric<float>::tiny() : quotient;
  }
  if (threadIdx.x == 0 && p.scales != nullptr) static_cast<float*>(p.scales)[row] = scale;

  each(true, [&](i64 c, const Vec<float, V>& v, i64 left) {
    const Vec<float, V> u = normalized(c, v, left);
    Vec<u8, V> codes;
#pragma unroll
    for (int k = 0; k < V; ++k) codes[k] = code_of(u[k] / scale, p.code);
    if constexpr (WIDE) {
      store(y + c, codes);
    } else {
#pragma unroll 1
      for (int k = 0; k < V; ++k) {
        if (k < left) y[column_offset<false>(p, AT_CODES, c + k)] = codes[k];
      }
    }
  });
}

}  // namespace baracuda
