// gated_rms_norm   y = rms_norm(x) * weight * silu(z), or with the gate first rms_norm(x * silu(z)) * weight.
//
// LANES lanes have a row, whose x and z stay in registers, or with CHUNKS 0 are read three times. What fixes the order of
// the sum is in gated_rms_norm.cuh.
#include "gated_rms_norm.cuh"

namespace baracuda {

template <class T, class W, int THREADS, int LANES, int CHUNKS, bool WIDE>
BARACUDA_D void gated_rms_norm_row(const GatedRMSNormParams& p) {
  using namespace gated;
  using A = acc_t<T>;
  constexpr int VEC = vec_elems<T>;
  enum { X, Z, WEIGHT, Y };
  __shared__ A board[2 * warp_size];
  const i64 block = static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x;
  const i64 row = block * (THREADS / LANES) + threadIdx.x / LANES;
  const int lane = static_cast<int>(threadIdx.x) % LANES;
  const bool live = row < p.rows;
  const RowAt<WIDE> at(p, live ? row : 0);
  using H = Held<T, LANES, CHUNKS, WIDE>;
  const H x(p, X, p.x, at.offset(p, X), lane, live), z(p, Z, p.z, at.offset(p, Z), lane, live);
  const Statistics<A> s = statistics<T, LANES, CHUNKS, WIDE>(p, x, z, lane, board);
  if (!live) return;
  const W* const weight = static_cast<const W*>(p.weight) + at.offset(p, WEIGHT);
  T* const y = static_cast<T*>(p.y) + at.offset(p, Y);
  chunks_of<VEC, LANES, CHUNKS>(p, lane, [&](int i, i64 col) {
    const auto gate = z.at(p, i, col);
    auto a = normalised<T, VEC>(p.before, x.at(p, i, col), gate);
    Vec<A, VEC> w;
    if (p.weight != nullptr) w = norm::load_weights<T, W, WIDE>(p, WEIGHT, weight, col, p.cols - col);
#pragma unroll
    for (int k = 0; k < VEC; ++k) {
      a[k] = a[k] * s.scale * s.rstd;
      if (p.weight != nullptr) a[k] *= w[k];
      if (p.before) a[k] *= gate[k] * sigmoid<T>(gate[k]);
    }
    store_chunk<T, WIDE>(p, Y, y, col, pack<T>(from_acc<T>(a)), p.cols - col);
  });
}

}  // namespace baracuda
