// gated_quantize   u = act(gate) up in float, scale = max |u| / largest of each row, y = u / scale as fp8.
//
// A block for each row, which reads it twice: for the maximum, and for the quotients; the second time from cache. The
// maximum is the same whatever the order it is taken in. WIDE: all rows are dense, of whole chunks, and aligned.
#include <baracuda/convert.cuh>
#include <baracuda/reduce.cuh>
#include <baracuda/rows.cuh>
#include "gated/gates.cuh"

namespace baracuda {

template <class F, class G, class T, int THREADS, bool WIDE>
BARACUDA_D void gated_quantize(const GatedQuantizeParams& p) {
  constexpr int V = vec_elems<T>;
  const Coefficients<float> k(p.coefficients);
  const i64 row = blockIdx.x;
  if (row >= p.rows) return;
  i64 at[3];
  row_offsets<3>(p, row, at);
  u8* const y = static_cast<u8*>(p.y) + at[0];
  const T* const gate = static_cast<const T*>(p.gate) + at[1];
  const T* const up = static_cast<const T*>(p.up) + at[2];

  // f(column, values, left) for every chunk of this thread; values beyond `left` are those of zeros.
  const auto each_chunk = [&](const auto& f) {
    for (i64 c = static_cast<i64>(threadIdx.x) * V; c < p.cols; c += THREADS * V) {
      const i64 left = p.cols - c;
      const auto g = to_acc(unpack<T>(load_chunk<T, WIDE>(p, 1, gate, c, left)));
      const auto u = to_acc(unpack<T>(load_chunk<T, WIDE>(p, 2, up, c, left)));
      Vec<float, V> made;
#pragma unroll
      for (int n = 0; n < V; ++n) made[n] = gated<F, G>(g[n], u[n], k);
      f(c, made, left);
    }
  };

  float most = 0.0f;
  each_chunk([&](i64, const Vec<float, V>& made, i64 left) {
#pragma unroll
    for (int n = 0; n < V; ++n) {
      if (n < left) most = math::maximum(most, math::abs(made[n]));
    }
  });
  most = block_reduce<Max, THREADS>(most);
  const float quotient = most / p.largest;  // a subnormal one has few digits
  const float scale = quotient < numeric<float>::tiny() ? numeric<float>::tiny() : quotient;
  if (threadIdx.x == 0) static_cast<float*>(p.scales)[row] = scale;

  each_chunk([&](i64 c, const Vec<float, V>& made, i64 left) {
    Vec<u8, V> codes;
#pragma unroll
    for (int n = 0; n < V; ++n) {
      const float x = made[n] / scale;
      codes[n] = p.e5m2 ? coded<code_e5m2>(x, true) : coded<code_e4m3>(x, true);
    }
    if constexpr (WIDE) {
      store(y + c, codes);
    } else {
#pragma unroll 1
      for (int n = 0; n < V; ++n) {
        if (n < left) y[column_offset<false>(p, 0, c + n)] = codes[n];
      }
    }
  });
}

}  // namespace baracuda
