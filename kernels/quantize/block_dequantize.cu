// block_dequantize   the values of a stored matrix. A thread has chunks of 8 values, each of one row.
#include "quantize/format.cuh"

namespace baracuda {

constexpr int dequantize_threads = 256, dequantize_chunks = 2;

template <class F, class T> BARACUDA_D void block_dequantize(const BlockDequantizeParams& p) {
  const Stored w(p);
  const i64 per_row = p.k / format_part, chunks = per_row * p.rows;
  float x[dequantize_chunks][format_part];
  T* to[dequantize_chunks];
#pragma unroll
  for (int c = 0; c < dequantize_chunks; ++c) {
    const i64 own = (i64(blockIdx.x) * dequantize_chunks + c) * dequantize_threads + threadIdx.x;
    const i64 at = min(own, chunks - 1);  // all are read, so that loads are in flight together
    const i64 row = chunks <= 0x7fffffff ? static_cast<u32>(at) / static_cast<u32>(per_row) : at / per_row;
    const i64 k = (at - row * per_row) * format_part;
    const i64 batch = row / p.n;
    F::decode(w, StoredRow(w, batch, row - batch * p.n), k, x[c]);
    to[c] = own < chunks ? static_cast<T*>(p.y) + row * p.y_step + k : nullptr;
  }
#pragma unroll
  for (int c = 0; c < dequantize_chunks; ++c) {
    if (to[c] == nullptr) continue;
    Vec<T, format_part> y;
#pragma unroll
    for (int j = 0; j < format_part; ++j) y[j] = cast<T>(x[c][j]);
    if (p.wide) store(to[c], y);
    else store_strided(to[c], 1, y, format_part);
  }
}

}  // namespace baracuda
