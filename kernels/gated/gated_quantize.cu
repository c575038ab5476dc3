// gated_quantize   u = act(gate) up in float, scale = max |u| / largest of each row, y = u / scale as fp8.
//
// A block of LANES threads for each row, of which chunk c of 16 bytes belongs to thread c % LANES. CHUNKS of them a thread
// stay in registers, as u; with CHUNKS = 0 the row is read twice, for the maximum and for the quotients, the second time
// from cache. The maximum is the same whatever the order it is taken in. WIDE: all rows are dense, of whole chunks, and
// aligned.
#include <baracuda/quantize.cuh>
#include <baracuda/rows.cuh>
#include "gated/gates.cuh"

namespace baracuda {

namespace gates {

template <class F, class G, class T, int LANES, bool WIDE> struct GatedRow {
  static constexpr int V = vec_elems<T>;
  const GatedQuantizeParams& p;
  const Coefficients<float> k;
  i64 at[3];
  BARACUDA_D GatedRow(const GatedQuantizeParams& params, i64 row) : p(params), k(params.coefficients) {
    row_offsets<3>(p, row, at);
  }
  BARACUDA_D i64 column(i64 i) const { return (i * LANES + threadIdx.x) * V; }
  template <Access ACCESS> BARACUDA_D Chunk loaded(int n, const void* from, i64 col) const {
    return load_chunk<T, WIDE, ACCESS>(p, n, static_cast<const T*>(from) + at[n], col, p.cols - col);
  }
  // Of zeros beyond the row.
  BARACUDA_D Vec<float, V> made(const Chunk& gate, const Chunk& up) const {
    const auto g = to_acc(unpack<T>(gate)), u = to_acc(unpack<T>(up));
    Vec<float, V> out;
#pragma unroll
    for (int n = 0; n < V; ++n) out[n] = gated<F, G>(g[n], u[n], k);
    return out;
  }
  BARACUDA_D float scale(float most) const {
    const float found = quantize::scale_of(block_reduce<Max, LANES>(most), p.largest);
    if (threadIdx.x == 0) static_cast<float*>(p.scales)[blockIdx.x] = found;
    return found;
  }
  BARACUDA_D void put(i64 c, const Vec<u8, V>& codes) const {
    u8* const y = static_cast<u8*>(p.y) + at[0];
    if constexpr (WIDE) {
      if (c < p.cols) store(y + c, codes);
    } else {
#pragma unroll 1
      for (int n = 0; n < V && c + n < p.cols; ++n) y[column_offset<false>(p, 0, c + n)] = codes[n];
    }
  }
};

}  // namespace gates

template <class F, class G, class T, int LANES, int CHUNKS, bool WIDE>
BARACUDA_D void gated_quantize(const GatedQuantizeParams& p) {
  constexpr int V = vec_elems<T>, held = CHUNKS == 0 ? 1 : CHUNKS;
  if (static_cast<i64>(blockIdx.x) >= p.rows) return;
  const gates::GatedRow<F, G, T, LANES, WIDE> row(p, blockIdx.x);
  const quantize::Coder coder(p.e5m2 ? quantize::to_e5m2 : quantize::to_e4m3);
  float most = 0.0f;
  if constexpr (CHUNKS > 0) {
    Chunk gate[held], up[held];
    Vec<float, V> u[held];
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i) gate[i] = row.template loaded<Access::streaming>(1, p.gate, row.column(i));
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i) up[i] = row.template loaded<Access::streaming>(2, p.up, row.column(i));
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i) {
      u[i] = row.made(gate[i], up[i]);
      most = row.column(i) < p.cols ? math::maximum(most, quantize::most_of(u[i], V)) : most;
    }
    const quantize::Divisor by(row.scale(most));  // NaN, or infinite, where a number of the row is
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i) row.put(row.column(i), quantize::codes_of(u[i], by, coder, by.scale));
  } else {
    const auto u_of = [&](i64 c) {
      return row.made(row.template loaded<Access::plain>(1, p.gate, c), row.template loaded<Access::plain>(2, p.up, c));
    };
#pragma unroll 1
    for (i64 c = row.column(0); c < p.cols; c += LANES * V) {
      most = math::maximum(most, quantize::most_of(u_of(c), p.cols - c));
    }
    const quantize::Divisor by(row.scale(most));
#pragma unroll 1
    for (i64 c = row.column(0); c < p.cols; c += LANES * V)
      row.put(c, quantize::codes_of(u_of(c), by, coder, by.scale));
  }
}

}  // namespace baracuda
