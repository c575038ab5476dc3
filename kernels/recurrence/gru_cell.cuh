#pragma once
// gru_cell   h' = (1 - z) n + z h, r, z = sigmoid(gates + gates_h), n = tanh(gates + r gates_h). The gates of a unit.
#include "recurrence/recurrent_cell.cuh"

namespace baracuda {

namespace cell {

template <class A> struct GruState {
  A r, z, n, hidden, before;  // hidden: the part of n that r multiplies
  // own and other: the input's parts of the gates, and the state's.
  BARACUDA_D GruState(const A (&own)[3], const A (&other)[3], A h)
      : r(sigmoid(own[0] + other[0])), z(sigmoid(own[1] + other[1])), n(math::tanh(math::fma(r, other[2], own[2]))),
        hidden(other[2]), before(h) {}
  // Slopes of the input's parts of the gates; that of the state's part of n is to[2] r.
  BARACUDA_D void slopes(A dh, A (&to)[3]) const {
    const A dn = dh * (A(1) - z) * (A(1) - n * n);
    to[0] = dn * hidden * (r * (A(1) - r)), to[1] = dh * (before - n) * (z * (A(1) - z)), to[2] = dn;
  }
};

template <class T, class P> BARACUDA_D GruState<acc_t<T>> gru_state(const P& p, const Unit& u, acc_t<T> h) {
  const auto own = [&](int which) { return get<T>(p.gates, u.gate(p, p.places[which], p.gates_strides)); };
  const auto other = [&](int which) { return get<T>(p.gates_h, u.gate(p, p.places[which], p.gates_h_strides)); };
  const acc_t<T> x[3] = {own(0), own(1), own(2)}, m[3] = {other(0), other(1), other(2)};
  return {x, m, h};
}

}  // namespace cell

}  // namespace baracuda
