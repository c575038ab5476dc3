// selective_state_update   one step of the selective scan of each sequence, its state in a slot, updated in place.
//
// Lanes and the order of the sum over states are those of selective_scan. A lane reads all of its operands before it
// stores a state, so that they are under way together, and walks them by pointers: 64-bit products for each of them took
// more time than the states' bytes. COMPLEX: a, b, c and the states are pairs of parts side by side, states in the
// accumulator's element, and y is twice the real part of the sum.
#include "recurrence/selective_scan.cuh"

namespace baracuda {

template <class T, int NS, bool COMPLEX = false>
BARACUDA_D void selective_state_update(const SelectiveStateUpdateParams& p) {
  using namespace selective;
  using A = acc_t<T>;
  using N = number_t<T, COMPLEX>;
  const i64 channel =
      (static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x) * (blockDim.x / p.lanes) + threadIdx.x / p.lanes;
  const int lane = static_cast<int>(threadIdx.x) & (p.lanes - 1);
  const bool mine = channel < p.batch * p.dim;
  const u32 dim = static_cast<u32>(p.dim);  // below 2^31, as are batch and groups
  const u32 b = !mine ? 0 : channel >> 32 == 0 ? static_cast<u32>(channel) / dim : static_cast<u32>(channel / dim);
  const u32 d = mine ? static_cast<u32>(channel) - b * dim : 0, group = d / static_cast<u32>(p.per_group);
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
  const A direct = p.d == nullptr ? A(0) : static_cast<const A*>(p.d)[d * p.d_step];
  const A gate = p.z == nullptr ? A(0) : at(p.z, p.z_strides);

  const i64 place = slot * p.state_strides[0] + d * p.state_strides[1] + lane * p.state_strides[2];
  const i64 next_place = p.lanes * p.state_strides[2];
  A* const wide = static_cast<A*>(p.state) + place;
  T* const narrow = static_cast<T*>(p.state) + place;
  const A* rates = static_cast<const A*>(p.a) + (d * p.a_strides[0] + lane * p.a_strides[1]);
  const auto of_group = [&](const void* from, const i64* strides) {
    return static_cast<const T*>(from) + (b * strides[0] + group * strides[1] + lane * strides[2]);
  };
  const T *in = of_group(p.b, p.b_strides), *out = of_group(p.c, p.c_strides);
  const auto input = [](const T* x) { return number<A, COMPLEX>(to_acc(x[0]), COMPLEX ? to_acc(x[COMPLEX]) : A(0)); };
  N old[NS], rate[NS], from[NS], to[NS];
  const auto has = [&](int k) { return known && lane + p.lanes * k < p.states; };
#pragma unroll
  for (int k = 0; k < NS; ++k) {
    old[k] = rate[k] = from[k] = to[k] = N(A(0));
    if (!has(k)) continue;
    if constexpr (COMPLEX) old[k] = number_at<A, true>(wide, k * next_place);
    else old[k] = p.wide_state ? wide[k * next_place] : to_acc(narrow[k * next_place]);
    rate[k] = number_at<A, COMPLEX>(rates, 0), from[k] = input(in), to[k] = input(out);
    rates += p.lanes * p.a_strides[1], in += p.lanes * p.b_strides[2], out += p.lanes * p.c_strides[2];
  }

  if (p.softplus) dt = math::softplus(dt);
  A y = A(0);
#pragma unroll
  for (int k = 0; k < NS; ++k) {
    if (!has(k)) continue;
    const N next = add_product(decay_of<T>(scaled(rate[k], dt)), old[k], scaled(from[k], dt * x));
    if constexpr (COMPLEX) put_number(wide, k * next_place, next);
    else if (p.wide_state) wide[k * next_place] = next;
    else narrow[k * next_place] = from_acc<T>(next);
    y = add_real_product(next, to[k], y);
  }
  y = over_lanes(y, p.lanes);
  if constexpr (COMPLEX) y *= A(2);
  if (!mine || lane != 0) return;
  if (p.d != nullptr) y = math::fma(direct, x, y);
  if (p.z != nullptr) y *= times_sigmoid<T>(gate, gate);
  static_cast<T*>(p.y)[b * p.y_strides[0] + d * p.y_strides[1]] = from_acc<T>(known ? y : A(0));
}

}  // namespace baracuda
