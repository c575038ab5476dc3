// selective_state_update   one step of the selective scan of each sequence, its state in a slot, updated in place.
//
// Lanes and the order of the sum over states are those of selective_scan.
#include "recurrence/selective_scan.cuh"

namespace baracuda {

template <class T, int NS> BARACUDA_D void selective_state_update(const SelectiveStateUpdateParams& p) {
  using namespace selective;
  using A = acc_t<T>;
  const i64 channel =
      (static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x) * (blockDim.x / p.lanes) + threadIdx.x / p.lanes;
  const int lane = static_cast<int>(threadIdx.x) & (p.lanes - 1);
  const bool mine = channel < p.batch * p.dim;
  const i64 b = mine ? channel / p.dim : 0, d = mine ? channel % p.dim : 0, group = d / p.per_group;
  i64 slot = b;
  if (p.state_indices != nullptr) {
    const i64 at = b * p.index_step;
    slot = p.wide_indices ? static_cast<const i64*>(p.state_indices)[at] : static_cast<const i32*>(p.state_indices)[at];
  }
  const bool known = mine && slot >= 0 && slot < p.slots;
  const auto at = [&](const void* from, const i64* strides) {
    return to_acc(static_cast<const T*>(from)[b * strides[0] + d * strides[1]]);
  };
  const A x = at(p.u, p.u_strides);
  A dt = at(p.delta, p.delta_strides);
  if (p.delta_bias != nullptr) dt += static_cast<const A*>(p.delta_bias)[d * p.bias_step];
  if (p.softplus) dt = math::softplus(dt);
  A y = A(0);
#pragma unroll
  for (int k = 0; k < NS; ++k) {
    const int n = lane + p.lanes * k;
    if (!known || n >= p.states) continue;
    void* const h = p.state;
    const i64 place = slot * p.state_strides[0] + d * p.state_strides[1] + n * p.state_strides[2];
    const A a = static_cast<const A*>(p.a)[d * p.a_strides[0] + n * p.a_strides[1]];
    const auto of_group = [&](const void* from, const i64* strides) {
      return to_acc(static_cast<const T*>(from)[b * strides[0] + group * strides[1] + n * strides[2]]);
    };
    const A old = p.wide_state ? static_cast<const A*>(h)[place] : to_acc(static_cast<const T*>(h)[place]);
    const A next = math::fma(decay_of<T>(dt * a), old, dt * x * of_group(p.b, p.b_strides));
    if (p.wide_state) static_cast<A*>(h)[place] = next;
    else static_cast<T*>(h)[place] = from_acc<T>(next);
    y = math::fma(next, of_group(p.c, p.c_strides), y);
  }
  y = over_lanes(y, p.lanes);
  if (!mine || lane != 0) return;
  if (p.d != nullptr) y = math::fma(static_cast<const A*>(p.d)[d * p.d_step], x, y);
  if (p.z != nullptr) {
    const A z = at(p.z, p.z_strides);
    y *= times_sigmoid<T>(z, z);
  }
  static_cast<T*>(p.y)[b * p.y_strides[0] + d * p.y_strides[1]] = from_acc<T>(known ? y : A(0));
}

}  // namespace baracuda
