#pragma once
// lstm_cell   c' = sigmoid(f) c + sigmoid(i) tanh(g), h = sigmoid(o) tanh(c'), i, f, g, o of gates + gates_h. The gates of a unit.
#include "recurrence/recurrent_cell.cuh"

namespace baracuda {

namespace cell {

// Gates after their functions, and the cell before and after; z: what goes into the gates.
template <class A> struct LstmState {
  A i, f, g, o, before, after;
  BARACUDA_D LstmState(const A (&z)[4], A c)
      : i(sigmoid(z[0])), f(sigmoid(z[1])), g(math::tanh(z[2])), o(sigmoid(z[3])), before(c),
        after(math::fma(f, before, i * g)) {}
  // Slopes of what goes into the gates; returns that of the cell before.
  BARACUDA_D A slopes(A dh, A dc_next, A (&to)[4]) const {
    const A t = math::tanh(after), dc = math::fma(dh * o, A(1) - t * t, dc_next);
    to[0] = dc * g * (i * (A(1) - i)), to[1] = dc * before * (f * (A(1) - f));
    to[2] = dc * i * (A(1) - g * g), to[3] = dh * t * (o * (A(1) - o));
    return dc * f;
  }
};

// The sum of a gate's parts; gates_h may be absent.
template <class T, class P> BARACUDA_D acc_t<T> lstm_sum(const P& p, const Unit& u, int which) {
  acc_t<T> x = get<T>(p.gates, u.gate(p, p.places[which], p.gates_strides));
  if (p.gates_h != nullptr) x += get<T>(p.gates_h, u.gate(p, p.places[which], p.gates_h_strides));
  return x;
}
template <class T, class P> BARACUDA_D LstmState<acc_t<T>> lstm_state(const P& p, const Unit& u, acc_t<T> c) {
  const acc_t<T> z[4] = {lstm_sum<T>(p, u, 0), lstm_sum<T>(p, u, 1), lstm_sum<T>(p, u, 2), lstm_sum<T>(p, u, 3)};
  return {z, c};
}

}  // namespace cell

}  // namespace baracuda
