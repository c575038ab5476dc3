// selective_state_update   one step of the selective scan of each sequence, its state in a slot, updated in place.
//
// Lanes and the order of the sum over states are those of selective_scan. A thread reads all of its operands before it
// stores a state, so that they are under way together, and walks them by pointers: 64-bit products for each of them took
// more time than the states' bytes. COMPLEX: a, b, c and the states are pairs of parts side by side, states in the
// accumulator's element, and y is twice the real part of the sum.
//
// Schedule rows: a thread has the 16 states of a channel, in whole 16 bytes, and sums them as four lanes would.
#include "recurrence/selective_scan.cuh"

namespace baracuda::selective {

constexpr int row_states = 16, row_lanes = 4;

// A channel of a sequence in one step.
template <class T> struct Moved {
  using A = acc_t<T>;
  u32 b, d, group;
  i64 slot;
  bool mine, known;
  A x, dt, direct, gate;

  template <class P> BARACUDA_D Moved(const P& p, i64 channel) {
    mine = channel < p.batch * p.dim;
    const u32 dim = static_cast<u32>(p.dim);  // below 2^31, as are batch and groups
    b = !mine ? 0 : channel >> 32 == 0 ? static_cast<u32>(channel) / dim : static_cast<u32>(channel / dim);
    d = mine ? static_cast<u32>(channel) - b * dim : 0, group = d / static_cast<u32>(p.per_group);
    slot = b;
    if (p.state_indices != nullptr) {
      const i64 at = b * p.index_step;
      slot =
          p.wide_indices ? static_cast<const i64*>(p.state_indices)[at] : static_cast<const i32*>(p.state_indices)[at];
    }
    known = mine && slot >= 0 && slot < p.slots;
    x = to_acc(*of_channel(p.u, p.u_strides)), dt = to_acc(*of_channel(p.delta, p.delta_strides));
    if (p.delta_bias != nullptr) dt += static_cast<const A*>(p.delta_bias)[d * p.bias_step];
    direct = p.d == nullptr ? A(0) : static_cast<const A*>(p.d)[d * p.d_step];
    gate = p.z == nullptr ? A(0) : to_acc(*of_channel(p.z, p.z_strides));
  }
  BARACUDA_D T* of_channel(const void* x, const i64 (&strides)[2]) const {
    return const_cast<T*>(static_cast<const T*>(x)) + (b * strides[0] + d * strides[1]);
  }
  BARACUDA_D const T* of_group(const void* x, const i64 (&strides)[3]) const {
    return static_cast<const T*>(x) + (b * strides[0] + group * strides[1]);
  }
  template <class P> BARACUDA_D i64 of_state(const P& p) const {
    return slot * p.state_strides[0] + d * p.state_strides[1];
  }
  template <class P> BARACUDA_D void step_size(const P& p) {
    if (p.softplus) dt = math::softplus(dt);
  }
  template <class N> BARACUDA_D N next(const N& state, const N& rate, const N& in) const {
    return add_product(decay_of<T>(scaled(rate, dt)), state, scaled(in, dt * x));
  }
  template <class P> BARACUDA_D void put(const P& p, A y) const {
    if (p.d != nullptr) y = math::fma(direct, x, y);
    if (p.z != nullptr) y *= times_sigmoid<T>(gate, gate);
    *of_channel(p.y, p.y_strides) = from_acc<T>(known ? y : A(0));
  }
};

BARACUDA_D i64 first_channel(int channels) {
  return (static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x) * channels;
}

}  // namespace baracuda::selective

namespace baracuda {

template <class T, int NS, bool COMPLEX = false>
BARACUDA_D void selective_state_update(const SelectiveStateUpdateParams& p) {
  using namespace selective;
  using A = acc_t<T>;
  using N = number_t<T, COMPLEX>;
  Moved<T> at(p, first_channel(blockDim.x / p.lanes) + threadIdx.x / p.lanes);
  const int lane = static_cast<int>(threadIdx.x) & (p.lanes - 1);
  const i64 place = at.of_state(p) + lane * p.state_strides[2], next_place = p.lanes * p.state_strides[2];
  A* const wide = static_cast<A*>(p.state) + place;
  T* const narrow = static_cast<T*>(p.state) + place;
  const A* rates = static_cast<const A*>(p.a) + (at.d * p.a_strides[0] + lane * p.a_strides[1]);
  const T *in = at.of_group(p.b, p.b_strides) + lane * p.b_strides[2],
          *out = at.of_group(p.c, p.c_strides) + lane * p.c_strides[2];
  const auto input = [](const T* x) { return number<A, COMPLEX>(to_acc(x[0]), COMPLEX ? to_acc(x[COMPLEX]) : A(0)); };
  N old[NS], rate[NS], from[NS], to[NS];
  const auto has = [&](int k) { return at.known && lane + p.lanes * k < p.states; };
#pragma unroll
  for (int k = 0; k < NS; ++k) {
    old[k] = rate[k] = from[k] = to[k] = N(A(0));
    if (!has(k)) continue;
    if constexpr (COMPLEX) old[k] = number_at<A, true>(wide, k * next_place);
    else old[k] = p.wide_state ? wide[k * next_place] : to_acc(narrow[k * next_place]);
    rate[k] = number_at<A, COMPLEX>(rates, 0), from[k] = input(in), to[k] = input(out);
    rates += p.lanes * p.a_strides[1], in += p.lanes * p.b_strides[2], out += p.lanes * p.c_strides[2];
  }
  at.step_size(p);
  A y = A(0);
#pragma unroll
  for (int k = 0; k < NS; ++k) {
    if (!has(k)) continue;
    const N next = at.next(old[k], rate[k], from[k]);
    if constexpr (COMPLEX) put_number(wide, k * next_place, next);
    else if (p.wide_state) wide[k * next_place] = next;
    else narrow[k * next_place] = from_acc<T>(next);
    y = add_real_product(next, to[k], y);
  }
  y = over_lanes(y, p.lanes);
  if constexpr (COMPLEX) y *= A(2);
  if (at.mine && lane == 0) at.put(p, y);
}

// S: the states' type.
template <class T, class S> BARACUDA_D void selective_state_rows(const SelectiveStateUpdateParams& p) {
  using namespace selective;
  using A = acc_t<T>;
  constexpr int N = row_lanes, parts = row_states / N;
  Moved<T> at(p, first_channel(blockDim.x) + threadIdx.x);
  if (!at.mine) return;
  A sums[N] = {};
  if (at.known) {
    S* const states = static_cast<S*>(p.state) + at.of_state(p);
    const A* const rates = static_cast<const A*>(p.a) + at.d * p.a_strides[0];
    const T *const in = at.of_group(p.b, p.b_strides), *const out = at.of_group(p.c, p.c_strides);
    Vec<S, N> state[parts];
    Vec<A, N> rate[parts];
    Vec<T, N> from[parts], to[parts];
#pragma unroll
    for (int k = 0; k < parts; ++k) {
      state[k] = load<N>(states + N * k), rate[k] = load<N>(rates + N * k);
      from[k] = load<N>(in + N * k), to[k] = load<N>(out + N * k);
    }
    at.step_size(p);
#pragma unroll
    for (int k = 0; k < parts; ++k) {
#pragma unroll
      for (int lane = 0; lane < N; ++lane) {
        const A next = at.next(to_acc(state[k][lane]), rate[k][lane], to_acc(from[k][lane]));
        state[k][lane] = from_acc<S>(next);
        sums[lane] = math::fma(next, to_acc(to[k][lane]), sums[lane]);
      }
      store(states + N * k, state[k]);
    }
  }
  at.put(p, (sums[0] + sums[1]) + (sums[2] + sums[3]));
}

}  // namespace baracuda
