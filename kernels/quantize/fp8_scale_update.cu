// fp8_scale_update   scale and its inverse from a history of amax, and the history one slot on: all tensors in one launch.
//
// A block has 32 tensors, a column of its threads each, and the threads of a column the slots in turn. A maximum depends on
// no order. Slot i takes what slot i + 1 had, the last slot what slot 0 had, and slot 0 becomes 0 for the next step.
#include <baracuda/math.cuh>

namespace baracuda {

BARACUDA_D void fp8_scale_update(const Fp8ScaleUpdateParams& p) {
  constexpr int columns = 32, lanes = 8;
  __shared__ float found[lanes][columns];
  const int column = static_cast<int>(threadIdx.x) % columns, lane = static_cast<int>(threadIdx.x) / columns;
  const i64 tensor = static_cast<i64>(blockIdx.x) * columns + column;
  const bool there = tensor < p.tensors;
  float* const history = static_cast<float*>(p.history) + (there ? tensor : 0) * p.history_strides[1];
  const i64 step = p.history_strides[0];
  const float newest = there ? history[0] : 0.0f;
  float most = newest;
  __syncthreads();

#pragma unroll 1
  for (i64 slot = 0; slot < p.slots; slot += lanes) {
    const i64 own = slot + lane;
    const bool held = there && own < p.slots;
    const float next = !held ? 0.0f : own + 1 < p.slots ? history[(own + 1) * step] : newest;
    most = math::maximum(most, next);
    __syncthreads();
    if (held) history[own * step] = own == 0 ? 0.0f : next;
    __syncthreads();
  }
  found[lane][column] = most;
  __syncthreads();
  if (lane != 0 || !there) return;
#pragma unroll
  for (int k = 1; k < lanes; ++k) most = math::maximum(most, found[k][column]);
  const float amax = p.newest ? newest : most;
  if (!(amax > 0.0f && math::isfinite(amax))) return;
  const float scale = math::fmin(math::ldexp(p.largest / amax, -p.margin), numeric<float>::max());
  static_cast<float*>(p.scale)[tensor * p.scale_stride] = scale;
  static_cast<float*>(p.scale_inv)[tensor * p.inverse_stride] = 1.0f / scale;
}

}  // namespace baracuda
