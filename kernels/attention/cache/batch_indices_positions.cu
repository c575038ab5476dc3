// batch_indices_positions   batch_indices[t] = b, positions[t] = lengths[b] - (token_indptr[b + 1] - t).
//
// A thread a token finds the last sequence that begins at or before it by bisection, as the appends do. Sums wrap modulo
// 2^64, as in the reference.
#include <baracuda/types.cuh>

namespace baracuda {

template <class T> BARACUDA_D void batch_indices_positions(const BatchIndicesPositionsParams& p) {
  const i64 block = static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x;
  const i64 t = block * blockDim.x + threadIdx.x;
  if (t >= p.num_tokens) return;
  const auto bound = [&](i64 b) { return static_cast<i64>(static_cast<const T*>(p.token_indptr)[b * p.strides[0]]); };
  T sequence = -1, position = -1;
  if (p.batch > 0) {
    i64 b = 0, high = p.batch;
    while (high - b > 1) {
      const i64 middle = (b + high) / 2;
      if (bound(middle) <= t) b = middle;
      else high = middle;
    }
    const i64 end = bound(b + 1);
    if (bound(b) <= t && t < end) {
      const u64 length = static_cast<u64>(static_cast<i64>(static_cast<const T*>(p.lengths)[b * p.strides[1]]));
      sequence = static_cast<T>(b);
      position = static_cast<T>(length - (static_cast<u64>(end) - static_cast<u64>(t)));
    }
  }
  static_cast<T*>(p.batch_indices)[t * p.strides[2]] = sequence;
  static_cast<T*>(p.positions)[t * p.strides[3]] = position;
}

}  // namespace baracuda
